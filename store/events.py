"""Writes the steps of a conversation, each as one row, in the transaction of what it is about.

A step that has a row elsewhere is not written twice: of a message or a reaction the event holds which one, when, how
it was computed and whether it can be replayed; text and tokens stay where they are, so that deleting them deletes
them. A tool call, a memory access and a guard's verdict have no other row, and hold their content as JSON. Steps are
never changed. What was thought of one later is a signal, and joined when the trajectory is read (see `trajectory`).

Writing costs one insert: 45 µs beside the 190 µs of saving a message (median of 400, two busy cores).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from store import replay
from store.db import Store
from store.errors import NotFound, UsageError
from store.ids import new_id, now
from store.replay import Recorded
from store.types import ErrorClass, EventKind, ReplayClass, Role

HELD_HERE = frozenset(
    {EventKind.TOOL_CALL, EventKind.MEMORY_READ, EventKind.MEMORY_WRITE, EventKind.GUARD_VERDICT}
)
"""The kinds whose content is in the event itself."""

_INSERT = (
    "INSERT INTO events (id, conversation, message, kind, created, observation, harness, action, outcome, metadata, "
    "replay, error_class) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)


@dataclass(frozen=True)
class Content:
    """What a step held: what was seen, what was in force, what was done, what came of it, and what it took."""

    observation: Mapping[str, Any] = field(default_factory=dict)
    harness: Mapping[str, Any] = field(default_factory=dict)
    action: Mapping[str, Any] = field(default_factory=dict)
    outcome: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)


def record(
    store: Store,
    conversation: str,
    kind: EventKind,
    content: Content,
    *,
    message: str | None = None,
    error_class: ErrorClass | None = None,
) -> str:
    """Write a tool call, a memory access or a guard's verdict; returns its id. ``message`` is the one it belongs to.

    Raises:
        UsageError: the kind is written with the message or signal it is about.
        NotFound: there is no such conversation, or no such message in it.
    """
    if kind not in HELD_HERE:
        raise UsageError(f"a step of kind {kind} is written with what it is about, not by itself")
    with store.write() as connection:
        _check(connection, conversation, message)
        klass = replay.of_step(kind, content.metadata)
        return insert(connection, conversation, message, kind, now(), klass, content, error_class)


def append_message(
    connection: sqlite3.Connection, conversation: str, message: str, role: Role, created: str
) -> None:
    """The step of a message that no model wrote here."""
    kind = kind_of(role)
    insert(connection, conversation, message, kind, created, replay.of_step(kind, {}))


def append_model_call(
    connection: sqlite3.Connection,
    conversation: str,
    message: str,
    created: str,
    *,
    recorded: Recorded,
    machine: Mapping[str, Any],
    harness: Mapping[str, Any],
    error_class: ErrorClass | None,
) -> None:
    """The step of a reply that has ended. ``harness``: what of it no column of the message holds."""
    klass = replay.of_model_call(recorded)
    content = Content(harness=harness, metadata=machine)
    insert(connection, conversation, message, EventKind.MODEL_CALL, created, klass, content, error_class)


def append_harness(
    connection: sqlite3.Connection,
    conversation: str,
    message: str,
    *,
    begun: str,
    ended: str,
    memories: Sequence[str],
    guards: Sequence[Mapping[str, Any]],
) -> None:
    """The steps around a model call: which memories were read before it, and what each guard said of its reply.

    Ids only, no words: what is forgotten one day is not quoted here. Read before a reply was begun and so early in
    the line, though written with its end: a reply that never ends is no step either.
    """
    if memories:
        content = Content(action={"items": list(memories)})
        klass = replay.of_step(EventKind.MEMORY_READ, {})
        insert(connection, conversation, message, EventKind.MEMORY_READ, begun, klass, content)
    for each in guards:
        held = {name: value for name, value in each.items() if name not in ("item", "template")}
        content = Content(action={"item": each["item"], "template": each.get("template")}, outcome=held)
        klass = replay.of_step(EventKind.GUARD_VERDICT, {})
        insert(connection, conversation, message, EventKind.GUARD_VERDICT, ended, klass, content)


def append_reaction(
    connection: sqlite3.Connection, conversation: str, message: str, signal: str, created: str
) -> None:
    """The step of a signal on a reply."""
    content = Content(action={"signal": signal})
    klass = replay.of_step(EventKind.REACTION, {})
    insert(connection, conversation, message, EventKind.REACTION, created, klass, content)


def insert(
    connection: sqlite3.Connection,
    conversation: str,
    message: str | None,
    kind: EventKind,
    created: str,
    klass: ReplayClass,
    content: Content | None = None,
    error_class: ErrorClass | None = None,
    *,
    identity: str | None = None,
) -> str:
    """One row, within the caller's transaction; returns its id."""
    held = content or Content()
    event = identity or new_id("e")
    parts = (held.observation, held.harness, held.action, held.outcome, held.metadata)
    packed = (json.dumps(part, ensure_ascii=False, sort_keys=True) if part else "{}" for part in parts)
    connection.execute(_INSERT, (event, conversation, message, kind, created, *packed, klass, error_class))
    return event


def guard_verdicts(store: Store, message: str) -> list[dict[str, Any]]:
    """What each guard came to on a reply; see `app.harness.guards.Finding.record`."""
    row = store.conn.execute(
        "SELECT harness FROM events WHERE message = ? AND kind = ?", (message, EventKind.MODEL_CALL)
    ).fetchone()
    return list(json.loads(row["harness"]).get("guards", ())) if row is not None else []


def guarded_in(store: Store, conversation: str) -> dict[str, list[dict[str, Any]]]:
    """The replies of a conversation that a guard looked at, with what each guard came to."""
    rows = store.conn.execute(
        "SELECT message, harness FROM events WHERE conversation = ? AND kind = ? "
        "AND json_array_length(harness, '$.guards') > 0",
        (conversation, EventKind.MODEL_CALL),
    )
    return {row["message"]: json.loads(row["harness"])["guards"] for row in rows}


def repaired(store: Store, message: str) -> bool:
    """Whether a guard changed a reply: then its tokens are not those of its text."""
    return any(each["repaired"] for each in guard_verdicts(store, message))


def kind_of(role: Role) -> EventKind:
    """The kind of step that a message with this role is, where no model wrote it here."""
    if role is Role.USER:
        return EventKind.OWNER_MESSAGE
    return EventKind.TOOL_CALL if role is Role.TOOL else EventKind.GIVEN_MESSAGE


def _check(connection: sqlite3.Connection, conversation: str, message: str | None) -> None:
    if connection.execute("SELECT 1 FROM conversations WHERE id = ?", (conversation,)).fetchone() is None:
        raise NotFound(f"no conversation has the id {conversation}")
    if message is None:
        return
    row = connection.execute("SELECT conversation FROM messages WHERE id = ?", (message,)).fetchone()
    if row is None or row["conversation"] != conversation:
        raise NotFound(f"no message of conversation {conversation} has the id {message}")
