"""A change is tried on the questions that went wrong before a person has to meet it.

Whether a change helps can be seen in the next replies, at the price of a person's patience: three more that are wrong
before the next knob gets its turn. The questions that led to the proposal are there already, with what was wrong in
each, so they are answered again with the change in force, and read by the same eye that read the failures: is this the
same fault again, next to the owner's own version? What a guard would make of a recorded reply is known without a model.
What nobody can see is not counted, and then the next replies decide, as ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from app.control.offers import KINDS, Offer
from app.harness import guards
from app.harness.guards import Judged
from store import causes, conversations
from store.causes import Signature, Violated
from store.control import Knob
from store.db import Store
from store.errors import MynahError, NotFound
from store.evidence import Count, Failure
from store.ids import now
from store.items import Item
from store.types import ItemKind, ItemState

MOST = 3
"""Questions, the newest: as many as a proposal needs. A reply of 160 tokens takes six seconds of two slow cores."""


class GoesOn(Exception):
    """A rehearsal is not over yet: nothing went wrong."""


class NoRehearsal(MynahError):
    """A question cannot be answered again."""


class Rehearsal(Protocol):
    """Who answers a recorded question again."""

    def again(self, store: Store, reply: str, item: Item) -> str:
        """The text that stands in a reply's place when ``item`` is in force as well.

        Raises:
            GoesOn: it is being made.
            NoRehearsal: it cannot be.
        """


def count(
    store: Store,
    rehearsal: Rehearsal | None,
    signature: Signature,
    failures: Sequence[Failure],
    offered: Mapping[Knob, Offer],
    knob: Knob,
) -> Count:
    """How many of the last failures are the same fault again with what a knob offers, of those that can be judged.

    Raises:
        GoesOn: replies are being made for it.
    """
    item = _as_item(offered[knob])
    check = offered.get(Knob.GUARD)
    judged: list[tuple[Failure, bool]] = []
    waits: GoesOn | None = None
    for failure in failures[-MOST:]:
        try:
            wrong = _wrong(store, rehearsal, signature, failure, item, check)
        except GoesOn as goes_on:
            waits = goes_on
            continue
        except (NoRehearsal, NotFound):
            continue
        if wrong is not None:
            judged.append((failure, wrong))
    if waits is not None:
        raise waits
    failed = [failure for failure, wrong in judged if wrong]
    return Count(len(failed), len({each.conversation for each in failed}), len(judged))


def effect(count: Count | None) -> dict[str, Any] | None:
    """What a rehearsal says of an item, as `store.items.set_effect` takes it; None where it says nothing."""
    if count is None or not count.steps:
        return None
    kept = Count(count.steps - count.failures, 0, count.steps)
    return {
        "measure": "kept to",
        "with": round(kept.rate, 4),
        "without": 0.0,
        "n": kept.steps,
        "changed": kept.failures,
        "interval": [round(bound, 4) for bound in kept.interval],
    }


def by_code(judged: Judged) -> str:
    """What a guard made of a reply by itself; the reply as it is where it had nothing against it.

    Raises:
        NoRehearsal: it could not mend it.
    """
    if judged.violations:
        raise NoRehearsal("only another reply would show it")
    return judged.text


def _wrong(
    store: Store,
    rehearsal: Rehearsal | None,
    signature: Signature,
    failure: Failure,
    item: Item,
    check: Offer | None,
) -> bool | None:
    reply = conversations.get_message(store, failure.message).text
    if rehearsal is not None:
        again = rehearsal.again(store, failure.message, item)
    elif item.kind is ItemKind.GUARD:
        again = by_code(guards.judge([item], reply))
    else:
        return None
    if item.kind is ItemKind.GUARD and again == reply:
        return True
    seen = causes.still_wrong(signature, reply, again, failure.target)
    # How long is too long the owner's words may say; next to a correction only what is much longer can be seen.
    doubtful = seen is None or (seen and signature.violated is Violated.TOO_LONG)
    if check is None or not doubtful:
        return seen
    return bool(guards.judge([_as_item(check)], again).breaches)


def _as_item(offer: Offer) -> Item:
    """What an offer would be, were it added."""
    return Item(
        id="",
        kind=KINDS[offer.knob],
        topic=offer.topic,
        version=0,
        state=ItemState.PROPOSED,
        body=offer.body,
        source_message=offer.source.message,
        source_span=offer.source.span,
        confidence=offer.confidence,
        expires=None,
        created=now(),
    )
