"""The story of a reply in words, in the order in which it happened. Pure functions."""

from __future__ import annotations

from textual.content import Content

from app.tui import diffing, wording
from app.tui.pages import Line, Look, line, short
from store.decisions import Decision
from store.signals import Signal
from store.story import Story
from store.types import SignalKind, SignalSource, UnitKind, UnitUse
from store.units import Unit, Use
from store.verdicts import Verdict

GOOD, BAD = "$text-success", "$text-warning"
_WHO = {SignalSource.USER: "you", SignalSource.RULE: "a rule", SignalSource.JUDGE: "the judge"}
_DONE = {
    SignalKind.REGENERATE: "↻ asked for another answer",
    SignalKind.COPY: "⧉ copied",
    SignalKind.STOP: "■ stopped while it was written",
    SignalKind.THANKS: "♥ you thanked",
}
_KINDS = {
    UnitKind.CORRECTION: "your correction",
    UnitKind.THUMB_UP: "a reply you rated good",
    UnitKind.THUMB_DOWN: "a reply you rated bad",
    UnitKind.REQUERY: "a question you had to ask again",
    UnitKind.THANKS: "your thanks",
    UnitKind.LESSER: "the other answer, which you went on from",
}
_USES = {
    UnitUse.TRAINED: "learned from it",
    UnitUse.REPLAYED: "repeated it, so that it is not forgotten",
    UnitUse.HELD_OUT: "was tested on it, without having learned it",
}


def story(told: Story) -> list[Line]:
    """The whole page."""
    lines = [
        line(Look.TITLE, short(told.question) or "A reply without a question"),
        line(Look.NOTE, f"{told.reply.id} · {_age(told.reply.created)}"),
        line(Look.TEXT, short(told.reply.text, 400)),
    ]
    lines += _said(told)
    lines += _correction(told)
    lines += _verdict(told)
    lines += _lesson(told)
    lines += _versions(told.uses)
    lines += _decisions(told.decisions)
    return lines


def _said(told: Story) -> list[Line]:
    if not told.signals:
        return [
            line(Look.HEADING, "What was said of it"),
            line(Look.ITEM, "Nothing yet. F6 and F7 rate it, F8 corrects it."),
        ]
    lines = [line(Look.HEADING, f"What was said of it ({len(told.signals)})")]
    superseded = {each.supersedes for each in told.signals}
    for each in told.signals:
        counts = each.id in told.counted
        state = "counts" if counts else "replaced" if each.id in superseded else "noted"
        lines.append(
            Line(
                Look.ITEM,
                Content.assemble(
                    ("● " if counts else "○ ", GOOD if counts else wording.MUTED),
                    _signal(each, told.seen),
                    (f"  {_WHO[each.source]}, {_age(each.created)} · {state}", wording.MUTED),
                ),
            )
        )
        if each.text and each.kind is not SignalKind.CORRECTION:
            lines.append(line(Look.DETAIL, short(each.text, 240)))
    return lines


def _signal(signal: Signal, seen: str | None) -> Content:
    match signal.kind:
        case SignalKind.THUMB if not signal.value:
            return Content("the rating was taken back")
        case SignalKind.THUMB:
            good = (signal.value or 0) > 0
            return Content.styled("▲ good" if good else "▼ bad", GOOD if good else BAD)
        case SignalKind.CORRECTION:
            return Content.styled("✎ corrected", GOOD)
        case SignalKind.REQUERY if not signal.value:
            return Content("↻ nothing was asked again")
        case SignalKind.REQUERY:
            sure = "" if signal.source is SignalSource.USER else f" ({signal.confidence:.0%} sure)"
            return Content.styled(wording.reaction(signal.source, seen) + sure, BAD)
        case SignalKind.LESSER if not signal.value:
            return Content("the other answer was no better")
        case SignalKind.LESSER:
            sure = "" if signal.source is SignalSource.USER else f" ({signal.confidence:.0%} sure)"
            return Content.styled(f"⇄ you went on from another answer{sure}", BAD)
        case SignalKind.HINT:
            return Content("hint")
        case _:
            return Content(_DONE[signal.kind])


def _correction(told: Story) -> list[Line]:
    if told.correction is None:
        return []
    return [
        line(Look.HEADING, "What your correction changes"),
        Line(Look.DETAIL, diffing.difference(told.reply.text.strip(), told.correction)),
    ]


def _verdict(told: Story) -> list[Line]:
    verdict = told.verdict
    if verdict is None and told.compared is not None:
        return _comparison(told, told.compared)
    lines = [line(Look.HEADING, "Was the reply wanting, by what you said next?")]
    if verdict is not None:
        says = "Yes" if verdict.asked_again else "No"
        by = f"{_WHO[verdict.source]} {'say' if verdict.source is SignalSource.USER else 'says'} so"
        noted = f" (you {told.seen})" if told.seen and verdict.source is SignalSource.JUDGE else ""
        noted = f" ({told.seen})" if told.seen and verdict.source is SignalSource.RULE else noted
        lines.append(line(Look.ITEM, (says, BAD if verdict.asked_again else GOOD), f", {by}{noted}."))
        lines.append(line(Look.NOTE, "F turns this verdict over."))
    elif told.seen is not None:
        lines.append(line(Look.ITEM, "No: your next message was looked at, and it asks something else."))
        lines.append(line(Look.NOTE, "F turns this verdict over."))
    elif told.followed:
        lines.append(line(Look.ITEM, "Nobody has looked at your next message yet."))
        lines.append(line(Look.NOTE, "F says that it was."))
    else:
        lines.append(line(Look.ITEM, "You have said nothing after it yet."))
    return lines


def _comparison(told: Story, verdict: Verdict) -> list[Line]:
    better = verdict.value > 0
    by = f"{_WHO[verdict.source]} {'say' if verdict.source is SignalSource.USER else 'says'} so"
    kept = f" ({told.kept})" if told.kept else ""
    return [
        line(Look.HEADING, "Was another answer better, by the one you went on from?"),
        line(Look.ITEM, ("Yes" if better else "No", BAD if better else GOOD), f"{kept}, {by}."),
        line(Look.NOTE, "F turns this verdict over."),
    ]


def keys(told: Story) -> str:
    """What can be done about a story: there is nothing to turn over where nothing followed."""
    if told.verdict is None and told.compared is not None:
        return "F flip the verdict · Esc back"
    if not told.followed:
        return "Esc back"
    return "F flip the verdict · Esc back" if told.verdict or told.seen else "F it was wanting · Esc back"


def _lesson(told: Story) -> list[Line]:
    lines = [line(Look.HEADING, "The lesson")]
    unit = told.unit
    if unit is None or told.fate is None:
        return [*lines, line(Look.ITEM, "None: nothing that was said of this reply teaches anything.")]
    refused = bool(unit.reason)
    lines.append(line(Look.ITEM, (told.fate.text, BAD if refused else GOOD)))
    lines.append(line(Look.DETAIL, f"It rests on {_KINDS[unit.kind]}{_weight(unit)}."))
    if unit.hint:
        lines.append(line(Look.DETAIL, f"Hint for the next time: {short(unit.hint, 240)}"))
    lines.append(line(Look.NOTE, f"lesson {unit.id}"))
    return lines


def _weight(unit: Unit) -> str:
    return "" if unit.weight >= 1 else f", and weighs {unit.weight:.2f} of what your own word does"


def _versions(uses: list[Use]) -> list[Line]:
    if not uses:
        return []
    lines = [line(Look.HEADING, f"Versions ({len(uses)})")]
    lines += [
        line(
            Look.ITEM,
            (f"v{use.version} ", "bold"),
            _USES[use.use],
            (f"  {wording.STATES[use.state]} · {use.adapter}", wording.MUTED),
        )
        for use in uses
    ]
    return lines


def _decisions(decisions: list[Decision]) -> list[Line]:
    if not decisions:
        return []
    lines = [line(Look.HEADING, f"Decisions ({len(decisions)})")]
    for each in decisions:
        gate = each.inputs.get("gate") or {}
        why = str(each.choice.get("reason") or gate.get("summary") or "")
        action = str(each.choice.get("action", ""))
        lines.append(line(Look.ITEM, (f"{action} ", "bold"), str(each.inputs.get("adapter", ""))))
        if why:
            lines.append(line(Look.DETAIL, why))
        lines.append(line(Look.NOTE, f"{each.id} · {_age(each.created)} · record {each.hash[:12]}"))
    return lines


def _age(moment: str) -> str:
    age = wording.ago(moment)
    return "just now" if age == "now" else f"{age} ago"
