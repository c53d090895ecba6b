"""The whole story of one reply: what was said of it, what was made of that, what learned it, what was decided.

Every link of the chain is stored by somebody else; here it is only read in order, so that "what became of my
rating" can be followed from the message to the decision that put a version live.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from store import conversations, decisions, siblings, signals, units, verdicts
from store.conversations import Message
from store.db import Store
from store.decisions import Decision
from store.errors import UsageError
from store.signals import Signal
from store.types import Role, UnitUse
from store.units import Fate, Unit, Use
from store.verdicts import Verdict


@dataclass(frozen=True)
class Story:
    """One reply's chain. ``counted`` are the ids of the signals that its unit rests on; ``seen`` what was noted.

    ``followed``: something was said after it, so that a verdict can be turned over. ``compared``: whether another
    answer was kept instead of it, where somebody says so, and ``kept`` that answer, as far as it is still clear.
    """

    reply: Message
    question: str
    signals: list[Signal]
    counted: frozenset[str]
    seen: str | None
    verdict: Verdict | None
    unit: Unit | None
    fate: Fate | None
    uses: list[Use]
    decisions: list[Decision]
    followed: bool
    compared: Verdict | None = None
    kept: str | None = None

    @property
    def correction(self) -> str | None:
        """The owner's own version of the reply, where the unit rests on one."""
        return self.unit.target if self.unit is not None else None


def of(store: Store, message: str) -> Story:
    """The story of a reply.

    Raises:
        UsageError: the message is not a reply.
        NotFound: there is no such message.
    """
    reply = conversations.get_message(store, message)
    if reply.role is not Role.ASSISTANT:
        raise UsageError(f"{message} is not a reply of the model: only replies have a story")
    question = "" if reply.parent is None else conversations.get_message(store, reply.parent).text
    said = signals.all_of(store, message)
    unit = units.of_message(store, message)
    uses = [] if unit is None else units.uses(store, unit.id)
    compared = verdicts.beside(said)
    kept = None if compared is None else siblings.kept_over(store, message)
    return Story(
        reply,
        question,
        said,
        _counted(store, unit),
        verdicts.noted(store, message),
        verdicts.standing(said),
        unit,
        units.fate(store, message),
        uses,
        _decisions(store, unit, uses),
        verdicts.followed(store, message),
        compared,
        kept.id if kept is not None else None,
    )


def _counted(store: Store, unit: Unit | None) -> frozenset[str]:
    if unit is None:
        return frozenset()
    row = store.conn.execute("SELECT signals FROM units WHERE id = ?", (unit.id,)).fetchone()
    return frozenset(json.loads(row["signals"] or "[]"))


def _decisions(store: Store, unit: Unit | None, uses: list[Use]) -> list[Decision]:
    """What was decided about the unit, and about the adapters that took it as a lesson or a test; replays repeat it."""
    adapters = [use.adapter for use in uses if use.use is not UnitUse.REPLAYED]
    marks = ", ".join("?" * len(adapters))
    rows = store.conn.execute(
        f"SELECT id FROM decisions WHERE json_extract(inputs, '$.adapter') IN ({marks}) "
        "OR json_extract(inputs, '$.unit') = ? ORDER BY seq",
        (*adapters, None if unit is None else unit.id),
    ).fetchall()
    return [decisions.get(store, row["id"]) for row in rows]
