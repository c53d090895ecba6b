"""Small pieces of history that tests put into a store."""

from __future__ import annotations

from pathlib import Path

from store import adapters, conversations, signals, units
from store.adapters import Adapter
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.types import FinishReason, MessageStatus, SignalKind, UnitUse
from store.units import Unit

BASE = "b" * 64
START = ReplyStart(
    base_hash=BASE, adapter=None, scale=1.0, sampler={"temperature": 0.0}, template="t", prompt_tokens=[1, 2]
)


def say(
    store: Store, question: str, answer: str, conversation: str | None = None, parent: str | None = None
) -> tuple[str, str, str]:
    """One finished turn; returns the ids of conversation, question and reply."""
    conversation = conversation or conversations.create(store, conversations.title_from(question), "cli")
    asked = conversations.append_user(store, conversation, question, parent)
    reply = conversations.begin_reply(store, conversation, asked.id, START)
    conversations.finish_reply(
        store, reply.id, ReplyEnd(answer, MessageStatus.COMPLETE, FinishReason.STOP, [3, 4], [-0.1, -0.2])
    )
    return conversation, asked.id, reply.id


def corrected(store: Store, question: str, answer: str, correction: str) -> Unit:
    """A turn whose reply the owner corrected; returns its learning unit."""
    _, _, reply = say(store, question, answer)
    signals.record(store, reply, SignalKind.CORRECTION, text=correction)
    return unit_of(store, reply)


def unit_of(store: Store, reply: str) -> Unit:
    """The learning unit that a reply must have."""
    unit = units.of_message(store, reply)
    assert unit is not None
    return unit


def adapter(store: Store, content: bytes, uses: list[tuple[Unit, UnitUse]], run: str = "r1") -> Adapter:
    """An installed candidate whose file holds ``content`` (not a real adapter)."""
    made: Path = store.home.scratch / content.hex()
    made.mkdir()
    (made / adapters.GGUF_NAME).write_bytes(content)
    name = adapters.install(store, made)
    return adapters.add_candidate(store, name, base_hash=BASE, run=run, manifest={"seed": 1}, uses=uses)
