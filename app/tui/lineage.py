"""A version's story in words: where it comes from, what it learned, how its test went, how people liked it.

Pure functions. They return lines with a look each, so that the same words are readable on every theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.content import Content

from app.service import AdapterDetail, LearningStatus, Taught
from app.tui import wording
from app.tui.pages import Line, Look, line, short
from store.adapters import Adapter, Serving
from store.progress import Tally
from store.types import UnitKind, UnitUse

GOOD, BAD = "$text-success", "$text-warning"
BAR = 12
_USES = {
    UnitUse.TRAINED: ("Learned from", "what it was trained on"),
    UnitUse.HELD_OUT: (
        "Tested on",
        "kept out of training, to see whether it helps on more than what was taught",
    ),
    UnitUse.REPLAYED: ("Kept in mind", "learned by an earlier version, repeated so that it is not forgotten"),
}


def version_row(adapter: Adapter, serving: Serving, pinned: bool) -> Content:
    """A version in the list, on two lines; the stroke leads down to what was there before it."""
    live = serving.adapter is not None and serving.adapter.id == adapter.id
    state = wording.adapter_state(adapter, live, pinned)
    if live and serving.scale < 1:
        state = state + Content.styled(f" at {serving.scale:.0%}", GOOD)
    taught = f"{len(adapter.units)} {'reply' if len(adapter.units) == 1 else 'replies'}"
    second = Content.styled(f"│    {taught} · {wording.ago(adapter.created)}", wording.MUTED)
    return Content.styled(f"v{adapter.version:<4}", "bold") + state + Content("\n") + second


def next_row(learning: LearningStatus) -> Content:
    """The version that is not made yet, in the list; while it is made, how far it is."""
    run = learning.run
    if run is not None:
        left = wording.remaining(run, learning.usual)
        first = Content.styled(f"◐ {wording.run_progress(run)}", "$text-accent")
        after = Content.styled("" if left is None else f"  {wording.duration(left)}", wording.MUTED)
        second = Content.styled("┆   ", wording.MUTED) + wording.progress_bar(run.fraction, BAR) + after
    else:
        first = wording.learner(learning)
        refused = f"    {len(learning.refused)} not used" if learning.refused else ""
        second = Content.styled(f"┆{refused}", wording.MUTED)
    return Content.styled("next ", "bold") + first + Content("\n") + second


def next_story(learning: LearningStatus, waiting: Sequence[Taught], refused: Sequence[Taught]) -> list[Line]:
    """What the next version would learn from, and what it would not, and why."""
    lines = [line(Look.TITLE, "The next version"), Line(Look.TEXT, wording.learner(learning))]
    if learning.usual is not None and learning.run is None:
        lines.append(line(Look.NOTE, f"a run takes {wording.duration(learning.usual)} as a rule"))
    for title, lessons in (("Waiting", waiting), ("Not used", refused)):
        if lessons:
            lines.append(line(Look.HEADING, f"{title} ({len(lessons)})"))
        for each in lessons:
            lines += _lesson(each)
            if each.unit.reason:
                lines.append(line(Look.DETAIL, (each.unit.reason, BAD)))
    return lines


def base_row(serving: bool) -> Content:
    """The model as it came, in the list."""
    state = Content.styled("● answers now", GOOD) if serving else Content("")
    below = Content.styled("╵    the model as it came", wording.MUTED)
    return Content.styled("base ", "bold") + state + Content("\n") + below


def base_story(serving: Serving, versions: int, tally: Tally | None) -> list[Line]:
    """What there is to say of the base model."""
    now = (
        "It answers now."
        if serving.adapter is None
        else "Enter lets it answer again; nothing learned is lost."
    )
    learned = (
        f"{versions} {'version stands' if versions == 1 else 'versions stand'} on top of it."
        if versions
        else "Nothing was learned yet: rate or correct a few replies."
    )
    return [line(Look.TITLE, "The model as it came"), line(Look.TEXT, f"{now} {learned}"), *_liked(tally)]


def now_answers(serving: Serving) -> str:
    """The confirmation of a choice."""
    name = "The base model" if serving.adapter is None else f"v{serving.adapter.version}"
    strength = (
        f" at {serving.scale:.0%} strength" if serving.adapter is not None and serving.scale < 1 else ""
    )
    return f"{name} answers{strength} from the next message on"


def story(detail: AdapterDetail, tally: Tally | None) -> list[Line]:
    """Everything about one version."""
    adapter = detail.adapter
    lines = _origin(detail)
    if adapter.reason:
        lines.append(line(Look.TEXT, (adapter.reason, BAD)))
    lines += _liked(tally)
    lines += _gate(adapter.gate)
    for use in (UnitUse.TRAINED, UnitUse.HELD_OUT, UnitUse.REPLAYED):
        taught = [each for each in detail.taught if each.use is use]
        if taught:
            title, meaning = _USES[use]
            lines.append(line(Look.HEADING, f"{title} ({len(taught)})"))
            lines.append(line(Look.NOTE, meaning))
            for each in taught:
                lines += _lesson(each)
    return lines


def _origin(detail: AdapterDetail) -> list[Line]:
    adapter = detail.adapter
    state = "answers now" if detail.serving else wording.STATES[adapter.state]
    age = wording.ago(adapter.created)
    made = age if age == "now" else f"{age} ago"
    return [
        line(Look.TITLE, f"v{adapter.version}", (f"  {state}", wording.MUTED)),
        line(Look.NOTE, f"made {made} · {adapter.id}"),
    ]


def liked(tally: Tally) -> str:
    """What was said of somebody's replies, in a sentence."""
    objections = [
        f"{number} {word}"
        for number, word in (
            (tally.corrected, "corrected"),
            (tally.down, "rated bad"),
            (tally.asked_again, "asked again"),
            (tally.up, "rated good"),
        )
        if number
    ]
    replies = f"{tally.replies} {'reply' if tally.replies == 1 else 'replies'}"
    share = f", {tally.left_alone:.0%} left as they were" if tally.left_alone is not None else ""
    return f"{replies}{share}" + (f" ({', '.join(objections)})" if objections else "")


def _liked(tally: Tally | None) -> list[Line]:
    if tally is None or not tally.replies:
        return []
    return [line(Look.HEADING, "What you thought of its replies"), line(Look.ITEM, liked(tally))]


def _gate(gate: dict[str, Any]) -> list[Line]:
    checks = gate.get("checks") or []
    if not checks:
        return [line(Look.HEADING, "Not tested yet")]
    passed = bool(gate.get("passed"))
    lines = [
        Line(Look.HEADING, Content.assemble("Test ", ("passed", GOOD) if passed else ("not passed", BAD)))
    ]
    summary = str(gate.get("summary") or "").removeprefix("passed: ")
    if summary:
        lines.append(line(Look.ITEM, summary))
    names = [str(check.get("name", "")).replace("_", " ") for check in checks]
    width = max(map(len, names))
    for name, check in zip(names, checks, strict=True):
        good = bool(check.get("passed"))
        lines.append(
            line(
                Look.ITEM,
                ("✓ " if good else "✗ ", GOOD if good else BAD),
                f"{name:<{width}}  {_number(check.get('value')):>8}",
                (f"  limit {_number(check.get('limit'))}", wording.MUTED),
            )
        )
        if not good and check.get("detail"):
            lines.append(line(Look.DETAIL, str(check["detail"])))
    return lines


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _lesson(taught: Taught) -> list[Line]:
    unit = taught.unit
    match unit.kind:
        case UnitKind.CORRECTION:
            said = f"✎ {short(unit.target or '')}"
        case UnitKind.THUMB_UP:
            said = f"▲ {short(taught.reply)}"
        case UnitKind.THUMB_DOWN:
            said = f"▼ {short(unit.hint or taught.reply)}"
        case UnitKind.THANKS:
            said = f"♥ {short(taught.reply)}"
        case UnitKind.LESSER:
            said = f"⇄ {short(taught.reply)}"
        case _:
            said = f"↻ {short(unit.hint or 'you asked again')}"
    return [line(Look.ITEM, short(taught.question)), line(Look.DETAIL, (said, wording.MUTED))]
