"""A simulated person at the store: turns that are rated, corrected or asked again, and faults of the machinery."""

from __future__ import annotations

from dataclasses import replace

from app.control.hearing import hear
from store import conversations, items, signals
from store.conversations import ReplyEnd
from store.db import Store
from store.types import ErrorClass, FinishReason, ItemKind, MessageStatus, SignalKind, SignalSource
from tests.seed import START, say

LONG = " ".join(f"word{number}" for number in range(40))


def disliked(store: Store, question: str, answer: str = LONG, hint: str | None = None) -> str:
    """A reply with a thumb down, and a reason where there is one; returns the reply."""
    _, _, reply = say(store, question, answer)
    signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=hint)
    return reply


def corrected(store: Store, question: str, answer: str, correction: str) -> str:
    """A reply that the owner corrected; returns it."""
    _, _, reply = say(store, question, answer)
    signals.record(store, reply, SignalKind.CORRECTION, text=correction)
    return reply


def told_again(store: Store, question: str, answer: str, following: str) -> str:
    """A reply whose question was asked again in other words, as a rule saw it; returns the reply."""
    conversation, _, reply = say(store, question, answer)
    conversations.append_user(store, conversation, following, reply)
    signals.record(
        store, reply, SignalKind.REQUERY, value=1.0, text=following, source=SignalSource.RULE, confidence=0.9
    )
    return reply


def typed(store: Store, words: str, question: str = "Hello") -> str:
    """Something the owner typed after a reply, heard as the host hears it; returns the message."""
    conversation, _, reply = say(store, question, "Hi.")
    message = conversations.append_user(store, conversation, words, reply).id
    hear(store, conversation, message, words)
    return message


def faulty(store: Store, question: str, error: ErrorClass, hint: str | None = None) -> str:
    """A reply that the machinery cut off, disliked by the owner all the same; returns it."""
    conversation = conversations.create(store, "a fault", "cli")
    asked = conversations.append_user(store, conversation, question, None)
    reply = conversations.begin_reply(store, conversation, asked.id, START)
    end = ReplyEnd(
        "Half an", MessageStatus.FAILED, FinishReason.ERROR, [3], [-0.1], error_class=error, error=str(error)
    )
    conversations.finish_reply(store, reply.id, end)
    signals.record(store, reply.id, SignalKind.THUMB, value=-1.0, text=hint)
    return reply.id


def fine(
    store: Store, question: str, answer: str = "Yes.", item: str | None = None, adapter: str | None = None
) -> str:
    """A reply that nobody objected to, of an adapter and with an item in its prompt where they are named; its id."""
    conversation = conversations.create(store, "fine", "cli")
    return in_force(store, conversation, question, answer, item, adapter)


def in_force(
    store: Store,
    conversation: str,
    question: str,
    answer: str,
    item: str | None,
    adapter: str | None = None,
) -> str:
    """A reply of an adapter, with an item in its prompt."""
    asked = conversations.append_user(store, conversation, question, None)
    start = replace(START, adapter=adapter, context_items=() if item is None else (item,))
    reply = conversations.begin_reply(store, conversation, asked.id, start)
    conversations.finish_reply(
        store, reply.id, ReplyEnd(answer, MessageStatus.COMPLETE, FinishReason.STOP, [3, 4], [-0.1, -0.2])
    )
    return reply.id


def disliked_with(store: Store, question: str, item: str | None, hint: str | None) -> str:
    """A reply with an item in its prompt that was disliked all the same; returns it."""
    reply = fine(store, question, LONG, item)
    signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=hint)
    return reply


def holding(store: Store, kind: ItemKind | None = None) -> list[items.Item]:
    """The items that hold now."""
    return items.active(store, kind)
