"""A version's story in words: where it comes from, what it learned, how its test went. Pure functions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.content import Content

from app.service import AdapterDetail, LearningStatus, Taught
from app.tui import wording
from app.tui.palette import BAD, GOOD
from store.adapters import Adapter, Serving
from store.types import UnitKind, UnitUse

SHORT = 120
_USES = {
    UnitUse.TRAINED: ("Learned from", "what it was trained on"),
    UnitUse.HELD_OUT: (
        "Tested on",
        "kept out of training, to see whether it helps on more than what was taught",
    ),
    UnitUse.REPLAYED: ("Kept in mind", "learned by an earlier version, repeated so that it is not forgotten"),
}


def version_row(adapter: Adapter, serving: bool, pinned: bool) -> Content:
    """A version in the list, on two lines."""
    state = wording.adapter_state(adapter, serving, pinned)
    taught = f"{len(adapter.units)} {'reply' if len(adapter.units) == 1 else 'replies'}"
    second = Content.styled(f"    {taught} · {wording.ago(adapter.created)}", wording.MUTED)
    return Content.styled(f"v{adapter.version:<3}", "bold") + state + Content("\n") + second


def next_row(learning: LearningStatus) -> Content:
    """The version that is not made yet, in the list."""
    below = Content.styled(
        f"     {len(learning.refused)} not used" if learning.refused else "", wording.MUTED
    )
    return Content.styled("next ", "bold") + wording.learner(learning) + Content("\n") + below


def next_story(
    learning: LearningStatus, waiting: Sequence[Taught], refused: Sequence[Taught]
) -> RenderableType:
    """What the next version would learn from, and what it would not, and why."""
    parts: list[RenderableType] = [
        Text("The next version", style="bold"),
        Text(wording.learner(learning).plain),
    ]
    for title, lessons in (("Waiting", waiting), ("Not used", refused)):
        if lessons:
            parts += [Text(""), Text(f"{title} ({len(lessons)})", style="bold")]
        for each in lessons:
            parts += [Text(f"  {short(each.question)}", overflow="fold"), _lesson(each)]
            if each.unit.reason:
                parts.append(Text(f"    {each.unit.reason}", style=BAD, overflow="fold"))
    return Group(*parts)


def base_row(serving: bool) -> Content:
    """The model as it came, in the list."""
    state = Content.styled("● answers now", "$text-success") if serving else Content("")
    below = Content.styled("     the model as it came", wording.MUTED)
    return Content.styled("base ", "bold") + state + Content("\n") + below


def base_story(serving: Serving, versions: int) -> RenderableType:
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
    return Group(Text("The model as it came", style="bold"), Text(f"{now} {learned}"))


def now_answers(serving: Serving) -> str:
    """The confirmation of a choice."""
    name = "The base model" if serving.adapter is None else f"v{serving.adapter.version}"
    return f"{name} answers from the next message on"


def story(detail: AdapterDetail) -> RenderableType:
    """Everything about one version."""
    adapter = detail.adapter
    parts: list[RenderableType] = [_origin(detail)]
    if adapter.reason:
        parts += [Text(""), Text(adapter.reason, style="italic")]
    parts += [Text(""), *_gate(adapter.gate)]
    for use in (UnitUse.TRAINED, UnitUse.HELD_OUT, UnitUse.REPLAYED):
        taught = [each for each in detail.taught if each.use is use]
        if taught:
            parts += [Text(""), *_lessons(use, taught)]
    return Group(*parts)


def _origin(detail: AdapterDetail) -> Text:
    adapter = detail.adapter
    state = "answers now" if detail.serving else str(adapter.state)
    line = Text(f"v{adapter.version}", style="bold")
    age = wording.ago(adapter.created)
    line.append(f"  {state} · made {age if age == 'now' else f'{age} ago'}", style="not bold")
    line.append(f" · {adapter.id}", style="not bold dim")
    return line


def _gate(gate: dict[str, Any]) -> list[RenderableType]:
    checks = gate.get("checks") or []
    if not checks:
        return [Text("Not tested yet", style="dim")]
    verdict = Text("Test ", style="bold")
    passed = bool(gate.get("passed"))
    verdict.append("passed" if passed else "not passed", style=f"bold {GOOD if passed else BAD}")
    summary = str(gate.get("summary") or "").removeprefix("passed: ")
    table = Table.grid(padding=(0, 2))
    table.add_column(width=1)
    table.add_column(ratio=2)
    table.add_column(justify="right")
    table.add_column(justify="right")
    for check in checks:
        good = bool(check.get("passed"))
        table.add_row(
            Text("✓" if good else "✗", style=GOOD if good else BAD),
            Text(str(check.get("name", "")).replace("_", " ")),
            Text(_number(check.get("value"))),
            Text(f"limit {_number(check.get('limit'))}", style="dim"),
        )
    return [verdict, *([Text(summary)] if summary else []), table]


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def _lessons(use: UnitUse, taught: Sequence[Taught]) -> list[RenderableType]:
    title, meaning = _USES[use]
    heading = Text(f"{title} ({len(taught)})", style="bold")
    heading.append(f"  {meaning}", style="not bold dim")
    parts: list[RenderableType] = [heading]
    for each in taught:
        parts.append(Text(f"  {short(each.question)}", overflow="fold"))
        parts.append(_lesson(each))
    return parts


def _lesson(taught: Taught) -> Text:
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
        case _:
            said = f"↻ {short(unit.hint or 'you asked again')}"
    return Text(f"    {said}", style="dim", overflow="fold")


def short(text: str) -> str:
    """One line of at most ``SHORT`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= SHORT else line[: SHORT - 1] + "…"
