"""How things are put into words. Pure functions, so that what the chat says can be tested without a screen.

They return `Content`, never markup: titles, replies and errors come from outside and may hold brackets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from textual.content import Content

from app.counting import told_in_short
from app.service import LearningStatus, Snapshot, ThreadMessage
from store import verdicts
from store.adapters import Adapter, Serving
from store.conversations import Conversation
from store.runs import Run
from store.types import AdapterState, FinishReason, MessageStatus, RunOutcome, RunState, SignalSource, Trigger

SEPARATOR = " · "
MUTED = "$foreground 55%"
BAR = 10
ROOMY = 70
"""Cells from which on the status line has room for a bar."""
_GOOD, _BAD = "$text-success", "$text-warning"

_RUN_WORDS = {
    RunState.QUEUED: "learning starts",
    RunState.JUDGING: "reading what you said",
    RunState.PREPARING: "preparing",
    RunState.TRAINING: "training",
    RunState.EXPORTING: "writing the new version",
    RunState.GATING: "testing the new version",
    RunState.PUBLISHING: "going live",
}


STATES = {
    AdapterState.CANDIDATE: "not live",
    AdapterState.ACTIVE: "answers now",
    AdapterState.RETIRED: "set aside",
    AdapterState.REJECTED: "refused",
    AdapterState.TAINTED: "holds what was forgotten",
    AdapterState.DELETED: "deleted",
}


@dataclass(frozen=True)
class Speed:
    """Of the reply on the screen: tokens/s, and tokens in the context at its end."""

    tokens_per_second: float | None = None
    context_tokens: int | None = None


def model_name(name: str) -> str:
    """A model's name without what every chat model has in it."""
    return name.removesuffix("-Instruct") or "model"


ASKED_AGAIN = "↻ asked again"
_REACTIONS = {verdicts.PUT_RIGHT: "✎ you put it right", verdicts.OTHERWISE: "↻ you wanted it otherwise"}


def version_name(version: int | None) -> str:
    """`v3`, or `base` for the model as it came."""
    return "base" if version is None else f"v{version}"


def meta_line(entry: ThreadMessage) -> Content:
    """The line under a reply: version, speed, rating, what became of it, siblings."""
    message = entry.message
    parts: list[Content] = [Content(entry.elsewhere or _answered_by(entry))]
    if "extends" in message.sampler:
        parts.append(Content("goes on from the cut one beside it"))
    speed = message.timings.get("tokens_per_second")
    if speed:
        parts.append(Content(f"{speed:.0f} tok/s"))
    if message.left_out:
        short = told_in_short(message.left_out, int(message.sampler.get("summarised", 0)))
        parts.append(Content(f"{message.left_out} earlier messages left out{short}"))
    parts.extend(_ending(entry))
    if entry.note is not None:
        parts.append(Content.styled(entry.note, _BAD))
    if entry.rating:
        good = entry.rating > 0
        parts.append(Content.styled("▲ good" if good else "▼ bad", _GOOD if good else _BAD))
    if entry.corrected:
        parts.append(Content.styled("✎ corrected", _GOOD))
    if entry.verdict is not None and entry.verdict.asked_again:
        parts.append(Content.styled(reaction(entry.verdict.source, entry.seen), _BAD))
    if entry.fate is not None:
        parts.append(Content(entry.fate.text))
    if len(entry.siblings) > 1:
        parts.append(Content(f"‹ {entry.sibling + 1}/{len(entry.siblings)} ›"))
    return Content(SEPARATOR).join(parts)


def reaction(source: SignalSource, seen: str | None) -> str:
    """What the owner did next that found a reply wanting; the owner's own verdict and a rule's mean a question."""
    return _REACTIONS.get(seen or "", ASKED_AGAIN) if source is SignalSource.JUDGE else ASKED_AGAIN


def _answered_by(entry: ThreadMessage) -> str:
    """The version, with its strength where that was not the whole."""
    name, scale = version_name(entry.version), entry.message.scale
    return f"{name} at {scale:.0%}" if entry.version is not None and scale and scale < 1 else name


def _ending(entry: ThreadMessage) -> list[Content]:
    message = entry.message
    if message.status is MessageStatus.STOPPED:
        return [Content("stopped · F10 goes on")]
    if message.status is MessageStatus.GENERATING:
        return [Content("being written")]
    if message.status is MessageStatus.FAILED:
        why = message.error or "the reply was cut off"
        return [Content.styled(f"{why} (not counted against the model) · ^R tries again", _BAD)]
    if message.finish_reason is FinishReason.LENGTH:
        return [Content("cut at its length limit · F10 goes on")]
    return []


def serving_name(serving: Serving) -> str:
    """The version that answers now, with its strength where that is not the whole."""
    name = version_name(serving.adapter.version if serving.adapter else None)
    return f"{name} at {serving.scale:.0%}" if serving.adapter is not None and serving.scale < 1 else name


def learner(status: LearningStatus, bar: int = 0) -> Content:
    """What the learner does and how long it will take, in a few words, with a bar of ``bar`` cells on a run."""
    waiting = len(status.waiting)
    if status.run is not None:
        doing = Content.styled(f"◐ {run_progress(status.run)}", "$text-accent")
        left = remaining(status.run, status.usual)
        after = "" if left is None else f" · {duration(left)} left"
        return doing + progress_bar(status.run.fraction, bar) + Content(after)
    if status.paused:
        return Content(f"learning paused{f', {waiting} waiting' if waiting else ''}")
    if waiting and status.last is not None and status.last.state is RunState.FAILED:
        return Content.styled("✗ learning failed · ^L tries again", _BAD)
    if waiting:
        new = "new " if status.old else ""
        more = f", {status.needed} {new}to go" if status.needed else ""
        takes = f" · takes {duration(status.usual)}" if status.usual is not None and bar else ""
        return Content.styled(f"● {waiting} waiting{more}", "$text-accent") + Content(takes)
    return Content.styled("○ nothing to learn", MUTED)


def progress_bar(fraction: float, cells: int) -> Content:
    """A bar with a blank before it; nothing for no cells."""
    if not cells:
        return Content("")
    full = round(fraction * cells)
    return Content.assemble(" ", ("━" * full, "$text-accent"), ("─" * (cells - full), MUTED))


def remaining(run: Run, usual: float | None, now: datetime | None = None) -> float | None:
    """Seconds until a run ends: from its own pace as far as it has come, from the usual length for the rest."""
    if run.state is RunState.QUEUED or run.started is None:
        return usual
    took = ((now or datetime.now(UTC)) - datetime.fromisoformat(run.started)).total_seconds()
    expected = None if usual is None else max(usual - took, 0.0)
    if run.fraction < 0.05:
        return expected
    paced = took * (1 - run.fraction) / run.fraction
    return paced if expected is None else run.fraction * paced + (1 - run.fraction) * expected


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    if seconds < 10:
        return "a few seconds"
    if seconds < 90:
        return f"about {round(seconds / 10) * 10:.0f} s"
    return f"about {seconds / 60:.0f} min"


def run_progress(run: Run) -> str:
    """One run under way."""
    words = _RUN_WORDS.get(run.state, str(run.state))
    return words if run.state is RunState.QUEUED else f"{words} {run.fraction:.0%}"


def run_ended(run: Run) -> str | None:
    """What a finished run came to, for a toast; None where the new version speaks for itself."""
    if run.outcome is RunOutcome.PROMOTED:
        return None
    if run.outcome is RunOutcome.REJECTED:
        summary = str(run.result.get("gate", {}).get("summary") or "it did not pass its test")
        return f"Nothing changed: {summary}. What you taught keeps waiting."
    if run.outcome is RunOutcome.NOTHING_TO_LEARN:
        if run.trigger is not Trigger.MANUAL:
            # It looked by itself, and nobody waits for what it found.
            return None
        skipped = run.result.get("skipped") or []
        why = f" ({skipped[0].get('reason')})" if skipped else ": rate or correct a reply first"
        return f"Nothing to learn{why}"
    return (
        f"Learning failed: {run.error or 'see mynah learn history'}. What you taught waits; ^L tries again."
    )


def status_line(snapshot: Snapshot | None, host: str, speed: Speed, width: int) -> Content:
    """Model, version, speed, context and learner, as much as fits; the learner last and never dropped."""
    if snapshot is None:
        return Content(host)
    right = learner(snapshot.learning, BAR if width >= ROOMY else 0)
    context = snapshot.host.get("context") if snapshot.host else None
    parts = {
        "model": Content(host),
        "version": Content.styled(serving_name(snapshot.serving), "bold"),
        "speed": Content(f"{speed.tokens_per_second:.0f} tok/s" if speed.tokens_per_second else ""),
        "context": Content(
            f"context {speed.context_tokens / context:.0%}" if speed.context_tokens and context else ""
        ),
    }
    kept: set[str] = set()
    line = Content("")
    for name in ("version", "context", "speed", "model"):
        candidate = Content(SEPARATOR).join(
            [part for key, part in parts.items() if part.plain and key in kept | {name}]
        )
        if candidate.cell_length + right.cell_length + 2 <= width or name == "version":
            kept.add(name)
            line = candidate
    gap = max(width - line.cell_length - right.cell_length, 2)
    return line + Content(" " * gap) + right


def welcome(latest: Conversation | None, *, lesson: bool = False) -> Content:
    """The empty page: what this is, and where to go on."""
    lines = [
        Content.styled("Mynah", "bold $primary"),
        Content("a chat that learns from you, on this machine"),
        Content(""),
        Content.styled("Ask something. If the reply is not what you wanted, F8 corrects it,", MUTED),
        Content.styled("F6 and F7 rate it. After a few of these it answers your way.", MUTED),
    ]
    if lesson:
        lines += [
            Content(""),
            Content.assemble(("/lesson", "bold $primary"), " teaches it something in two minutes"),
        ]
    if latest is not None:
        title = " ".join(latest.title.split())
        lines += [Content(""), Content.styled(f"^O Enter goes on with “{title}”", MUTED)]
    return Content("\n").join(lines)


def went_live(serving: Serving) -> str:
    """The notice that another version answers from now on."""
    if serving.why is not None:
        name = "The base model" if serving.adapter is None else serving_name(serving)
        return f"{name} answers again: {serving.why}. F3 shows the versions."
    if serving.adapter is None:
        return "The base model answers from now on"
    taught = len(serving.adapter.units)
    learned = (
        f": it learned from {taught} of your replies"
        if taught != 1
        else ": it learned from one of your replies"
    )
    return f"v{serving.adapter.version} is live{learned}. F3 shows what, F9 goes back."


def asks(question: str) -> str:
    """The notice that learning stopped by itself."""
    return f"Learning has stopped: {question}"


def adapter_state(adapter: Adapter, serving: bool, pinned: bool) -> Content:
    """A version's state in the list."""
    if serving:
        return Content.styled("● answers now" + (", pinned" if pinned else ""), _GOOD)
    if adapter.state is AdapterState.REJECTED:
        return Content.styled("✗ refused", _BAD)
    return Content.styled(str(adapter.state), MUTED)


def ago(moment: str, now: datetime | None = None) -> str:
    """How long ago an ISO time was, in the unit that says enough."""
    try:
        then = datetime.fromisoformat(moment)
    except ValueError:
        return ""
    if then.tzinfo is None:
        then = then.replace(tzinfo=UTC)
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    if seconds < 60:
        return "now"
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return ""
