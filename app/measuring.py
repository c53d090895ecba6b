"""What an item does: recorded questions answered once with it and once without, by the live host, and compared.

Both replies are drawn at temperature 0 from the conversation as it was, keep nothing and go behind everything a person
waits for. Of a guard it is counted how many replies keep to it; of what is only told to the model, how many replies are
another one. Eight of a person's own questions say little about quality and much about whether a thing does anything at
all, and that is the question here: what changes nothing is retired, since it takes room in every prompt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from app.harness import guards
from app.host.client import TurnRequest
from app.host.events import Done
from app.service import Service
from store import conversations, items
from store.errors import MynahError, UsageError
from store.items import Item
from store.types import ItemKind, ItemState, Role

CASES = 8
LEAST = 5
"""Fewer cases retire nothing."""

_LONGEST_REPLY = 160
_Z = 1.96


@dataclass(frozen=True)
class Case:
    """A recorded question with what was said before it."""

    before: list[dict[str, str]]
    text: str


@dataclass(frozen=True)
class Measured:
    """An item after it was measured."""

    item: Item
    effect: dict[str, Any]
    retired: bool


def measure(
    mynah: Service, item: str, most: int = CASES, told: Callable[[float], None] = lambda _share: None
) -> Measured:
    """Answer recorded questions with and without an item, keep what came of it, retire it where that is nothing.

    Raises:
        UsageError: it is forgotten, or there are no recorded questions.
    """
    found = items.get(mynah.store, item)
    if found.state is ItemState.FORGOTTEN:
        raise UsageError(f"{item} was forgotten: there is nothing to measure")
    recorded = list(cases(mynah, found, most))
    if not recorded:
        raise UsageError("there are no recorded questions yet: chat first, then measure")
    others = [
        each.id for each in items.active(mynah.store) if (each.kind, each.topic) != (found.kind, found.topic)
    ]
    pairs = []
    for number, case in enumerate(recorded):
        pairs.append((_answer(mynah, case, [*others, item]), _answer(mynah, case, others)))
        told((number + 1) / len(recorded))
    effect = effect_of(found, pairs)
    kept = items.set_effect(mynah.store, item, effect)
    retired = effect["changed"] == 0 and effect["n"] >= LEAST
    if retired:
        kept = items.switch(mynah.store, item, ItemState.RETIRED)
    return Measured(kept, effect, retired)


def cases(mynah: Service, item: Item, most: int) -> Iterator[Case]:
    """The owner's last questions that were answered here, the newest first; not the one the item was read off."""
    rows = mynah.store.conn.execute(
        "SELECT asked.id FROM messages AS asked JOIN conversations ON conversations.id = asked.conversation "
        "WHERE asked.role = ? AND keep_history = 'allow' AND asked.id IS NOT ? AND asked.id NOT IN "
        "(SELECT message FROM origins) AND EXISTS (SELECT 1 FROM messages AS reply WHERE reply.parent = asked.id "
        "AND reply.base_hash IS NOT NULL) ORDER BY asked.rowid DESC LIMIT ?",
        (Role.USER, item.source_message, most),
    ).fetchall()
    for row in rows:
        *before, asked = conversations.path(mynah.store, row["id"])
        told = [
            {"role": message.role.value, "content": message.text}
            for message in before
            if message.role is not Role.TOOL
        ]
        yield Case(told, asked.text)


def effect_of(item: Item, pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """What the pairs of replies, with the item and without, say of it. ``interval``: 95 % of the share changed."""
    changed = sum(with_ != without for with_, without in pairs)
    count = len(pairs)
    if item.kind is ItemKind.GUARD:
        share = [
            sum(not guards.judge([item], pair[side]).breaches for pair in pairs) / count for side in (0, 1)
        ]
    else:
        share = [changed / count, 0.0]
    return {
        "measure": "kept to" if item.kind is ItemKind.GUARD else "changed",
        "with": round(share[0], 4),
        "without": round(share[1], 4),
        "n": count,
        "changed": changed,
        "interval": [round(bound, 4) for bound in wilson(changed, count)],
    }


def wilson(hits: int, count: int) -> tuple[float, float]:
    """The 95 % score interval of a share (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    share, spread = hits / count, _Z * _Z / count
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(share * (1 - share) / count + spread / (4 * count))
    return max(middle - half, 0.0), min(middle + half, 1.0)


def _answer(mynah: Service, case: Case, holding: list[str]) -> str:
    request = TurnRequest(
        text=case.text,
        incognito=True,
        incognito_turns=case.before,
        items=holding,
        aside=True,
        sampler={"temperature": 0.0, "max_tokens": _LONGEST_REPLY},
    )
    last = None
    with mynah.chat(request) as stream:
        for event in stream:
            last = event
    if not isinstance(last, Done):
        raise MynahError(
            f"a recorded question could not be answered: {getattr(last, 'message', 'the host went away')}"
        )
    return last.text
