"""The life of the versions in words: what changed since yesterday, then everything, the newest day first."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby

from textual.content import Content

from app.tui import lineage, wording
from app.tui.pages import Line, Look, line
from store.timeline import Happening, Moment, Since

GOOD, BAD = "$text-success", "$text-warning"


def start_of_yesterday(now: datetime | None = None) -> datetime:
    """Midnight before last, in local time."""
    today = (now or datetime.now()).astimezone().replace(hour=0, minute=0, second=0, microsecond=0)
    return today - timedelta(days=1)


def since_yesterday(changes: Since) -> list[Line]:
    """What changed, in a few lines."""
    lines = [line(Look.TITLE, "Since yesterday")]
    if changes.tally.replies:
        lines.append(line(Look.ITEM, lineage.liked(changes.tally)))
    lines += [_event(moment) for moment in changes.moments]
    if len(lines) == 1:
        lines.append(line(Look.ITEM, "Nothing: no replies, and the same version answers."))
    return lines


def timeline(moments: Sequence[Moment], now: datetime | None = None) -> list[Line]:
    """Everything that happened, by day, the newest first."""
    if not moments:
        return [line(Look.HEADING, "Timeline"), line(Look.ITEM, "No version was made yet.")]
    lines = []
    for day, group in groupby(reversed(moments), key=lambda moment: _local(moment.created).date()):
        lines.append(line(Look.HEADING, _day_name(day.toordinal(), now) or day.strftime("%-d %B %Y")))
        for moment in group:
            lines.append(_event(moment))
            if moment.detail:
                lines.append(line(Look.DETAIL, (moment.detail, wording.MUTED)))
    return lines


def _day_name(ordinal: int, now: datetime | None) -> str:
    ago = (now or datetime.now()).date().toordinal() - ordinal
    return {0: "Today", 1: "Yesterday"}.get(ago, "")


def _local(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone()


def event(moment: Moment) -> str:
    """One event in a sentence."""
    name = wording.version_name(moment.adapter.version if moment.adapter else None)
    match moment.happening:
        case Happening.LIVE:
            taught = len(moment.adapter.units) if moment.adapter else 0
            return f"{name} went live, learned from {taught} {'reply' if taught == 1 else 'replies'}"
        case Happening.REFUSED:
            return f"{name} was refused at its test"
        case Happening.CHOSEN:
            strength = f" at {moment.scale:.0%}" if moment.adapter is not None and moment.scale < 1 else ""
            return f"you let {name} answer{strength}"
        case Happening.ROLLED_BACK:
            return f"you went back to {name}"
        case Happening.WITHDRAWN:
            return f"back on {name}: a version could not be loaded"
        case Happening.TAKEN_BACK:
            return f"back on {name} by itself"
        case Happening.KEPT_BACK:
            return f"{name} passed its test and was kept back, another one is pinned"
        case Happening.DELETED:
            return f"{name} was deleted"


_MARKS = {
    Happening.LIVE: ("● ", GOOD),
    Happening.REFUSED: ("✗ ", BAD),
    Happening.WITHDRAWN: ("✗ ", BAD),
    Happening.ROLLED_BACK: ("↶ ", BAD),
    Happening.TAKEN_BACK: ("↶ ", BAD),
}


def _event(moment: Moment) -> Line:
    return Line(
        Look.ITEM,
        Content.assemble(
            (f"{_local(moment.created):%H:%M}  ", wording.MUTED),
            _MARKS.get(moment.happening, ("○ ", wording.MUTED)),
            event(moment),
        ),
    )
