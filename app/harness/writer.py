"""Writes memories: from what the owner typed in this turn, at once, and from nothing else.

Reading a message when it is saved, rather than a history later, is what makes the source certain: the one thing that
is looked at is the text of a person who is at the keyboard. Whether a conversation may be remembered is asked each
time, a secret is never written down, and what is known already is not written again. The step is recorded with the
message and holds only the memory's id.
"""

from __future__ import annotations

from app.harness.statements import Statement, stated
from store import consent, events, items
from store.db import Store
from store.events import Content
from store.items import Item
from store.redaction.redactor import contains_secret
from store.types import Consent, Dial, EventKind, ItemKind, ItemState

MOST_ACTIVE = 500
"""Memories that hold at once: more would say that something is written down that is none."""


def remember(store: Store, conversation: str, message: str, text: str) -> list[Item]:
    """Write down what the owner's message states; returns what was written, which is nothing as a rule."""
    found = stated(text)
    if not found or consent.of(store, conversation)[Dial.MEMORY] is not Consent.ALLOW:
        return []
    with store.write():
        return [
            item for statement in found if (item := _written(store, conversation, message, text, statement))
        ]


def _written(store: Store, conversation: str, message: str, text: str, said: Statement) -> Item | None:
    holding = items.active(store, ItemKind.MEMORY)
    topic = items.slug(said.topic)
    known = next((item for item in holding if item.topic == topic), None)
    if (
        (known is not None and known.text == said.text)
        or len(holding) >= MOST_ACTIVE
        or contains_secret(said.text)
    ):
        return None
    start = text.find(said.text)
    item = items.add(
        store,
        ItemKind.MEMORY,
        topic,
        {"text": said.text, "value_type": said.value_type},
        source=items.from_message(store, message, (start, start + len(said.text))),
        confidence=said.confidence,
        state=ItemState.ACTIVE,
        expires=None if said.seconds is None else items.seconds_from_now(said.seconds),
    )
    events.record(
        store, conversation, EventKind.MEMORY_WRITE, Content(action={"item": item.id}), message=message
    )
    return item
