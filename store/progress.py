"""How content the owner was, day by day and version by version, from nothing but what was said of replies.

A reply counts as left alone when nobody corrected it, rated it down or had to ask again; the share of those is the
curve to look at, since most good replies are never rated at all. A fault of the program is not counted: only
replies that were made here and came to an end. What was taken back or turned over says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from store import units
from store.db import Store
from store.types import MessageStatus, Role, UnitKind, UnitState


@dataclass(frozen=True)
class Tally:
    """Replies of a day or a version, and what was said of them. Each reply counts once, by its strongest signal."""

    replies: int = 0
    up: int = 0
    down: int = 0
    corrected: int = 0
    asked_again: int = 0

    @property
    def left_alone(self) -> float | None:
        """The share of replies that nobody objected to, 0 to 1; None where there was no reply."""
        if not self.replies:
            return None
        return 1.0 - (self.down + self.corrected + self.asked_again) / self.replies


def by_day(store: Store, since: str) -> dict[str, Tally]:
    """Tallies by local date (ISO), oldest first, of the days from ``since`` (as `ids.now` writes it) with a reply."""
    return _tallies(store, "date(messages.created, 'localtime')", since)


def by_adapter(store: Store) -> dict[str | None, Tally]:
    """Tallies of each adapter's replies; None is the base model."""
    found = _tallies(store, "messages.adapter", "")
    return {key or None: tally for key, tally in found.items()}


def since(store: Store, moment: str) -> Tally:
    """One tally of everything from a moment on."""
    return _tallies(store, "''", moment).get("", Tally())


def _tallies(store: Store, key: str, since: str) -> dict[str, Tally]:
    kinds = ", ".join(f"sum(units.kind = '{kind}')" for kind in _COLUMNS)
    rows = store.conn.execute(
        f"""
        SELECT coalesce({key}, ''), count(*), {kinds} FROM messages
        LEFT JOIN units ON units.message = messages.id
          AND NOT (units.state = ? AND coalesce(units.reason, '') IN (?, ?))
        WHERE messages.role = ? AND messages.base_hash IS NOT NULL AND messages.status IN (?, ?)
          AND messages.created >= ?
        GROUP BY 1 ORDER BY min(messages.created)
        """,
        (
            UnitState.REFUSED,
            units.TAKEN_BACK,
            units.OVERTURNED,
            Role.ASSISTANT,
            MessageStatus.COMPLETE,
            MessageStatus.STOPPED,
            since,
        ),
    )
    return {
        row[0]: Tally(row[1], *(row[place] or 0 for place in range(2, 2 + len(_COLUMNS)))) for row in rows
    }


_COLUMNS = (UnitKind.THUMB_UP, UnitKind.THUMB_DOWN, UnitKind.CORRECTION, UnitKind.REQUERY)
