"""How many versions ago a reply was given, and what that makes of a rating that is of nothing but the reply.

A thumb says of a reply that it was good or bad; it moves the model towards or away from what it said. Some versions
later the model does not say that any more, and pushing on it is noise: past two versions it counts half, past four not
at all (asynchronous RL loses half of its gain at four versions where nothing corrects for it: AReaL, arXiv 2505.24298).
A correction, and a hint that the teacher answers anew, say what is wanted and do not age. Counted are versions that
went live and are sound, so that a lesson without a forgotten unit is that of a ledger that never held it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from store.conversations import Message
from store.db import Store
from store.types import AdapterState

if TYPE_CHECKING:
    from learner.examples import Example

HALF_AFTER = 2
DROPPED_AFTER = 4
TOO_OLD = (
    "the reply is of an older version: {} have gone live since, and a rating alone counts for {} at most"
)


def of(store: Store, reply: Message) -> int:
    """How many sound versions have gone live since the one that gave the reply."""
    row = store.conn.execute(
        "SELECT count(*) AS count FROM adapters WHERE base_hash = ? AND state IN (?, ?) "
        "AND version > coalesce((SELECT version FROM adapters WHERE id = ?), 0)",
        (reply.base_hash, AdapterState.ACTIVE, AdapterState.RETIRED, reply.adapter),
    ).fetchone()
    return int(row["count"])


def ages(example: Example) -> bool:
    """Whether an example is of nothing but the reply that was given."""
    if example.kind.compares:
        return True
    return example.chosen is None and (example.hinted is None or example.kind.approves)


def aged(example: Example, staleness: int) -> Example | str:
    """The example with the weight that is left of it, or why nothing is."""
    if not ages(example) or staleness <= HALF_AFTER:
        return example
    if staleness > DROPPED_AFTER:
        return TOO_OLD.format(staleness, DROPPED_AFTER)
    return replace(example, weight=example.weight / 2)
