"""Reads a conversation as a line of steps: each event joined with the text, tokens and reactions it is about.

Rewards are late-bound. A step says what happened and never changes; every reaction to it, by the owner, a rule or
the judge, is found when it is read, with what replaced it since. Messages and signals from before events were kept,
and those that came in by import, have no event of their own. They are read as steps all the same, made from their
rows and marked as not recorded: nothing has to be written for a million old messages, and nothing is claimed of
them that their rows do not say.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from store import conversations, replay
from store.db import Store
from store.events import HELD_HERE, kind_of
from store.replay import Recorded
from store.types import ErrorClass, EventKind, MessageStatus, ReplayClass, Role


@dataclass(frozen=True)
class Reward:
    """One reaction to a step. ``superseded`` where the same source has said something else since."""

    signal: str
    kind: str
    source: str
    value: float | None
    text: str | None
    confidence: float
    created: str
    superseded: bool


@dataclass(frozen=True)
class Step:
    """One step. ``id`` is None where no event was recorded and the step was made from its message or signal."""

    id: str | None
    kind: EventKind
    message: str | None
    created: str
    observation: dict[str, Any]
    harness: dict[str, Any]
    action: dict[str, Any]
    outcome: dict[str, Any]
    rewards: tuple[Reward, ...]
    metadata: dict[str, Any]
    replay: ReplayClass
    error_class: ErrorClass | None


@dataclass
class _Rows:
    """All rows of one conversation."""

    messages: dict[str, sqlite3.Row]
    signals: dict[str, sqlite3.Row]
    events: list[sqlite3.Row]
    verdicts: dict[str, str]
    rewards: dict[str, tuple[Reward, ...]] = field(default_factory=dict)


def read(store: Store, conversation: str) -> list[Step]:
    """The steps of a conversation in the order they ended, all branches together. A reply in the making is left out.

    Raises:
        NotFound: there is no such conversation.
    """
    conversations.get(store, conversation)
    # One moment of the store: a message and its event are written, and deleted, together.
    store.conn.execute("BEGIN")
    try:
        rows = _load(store, conversation)
    finally:
        store.conn.execute("COMMIT")
    steps = [_recorded(event, rows) for event in rows.events]
    told = {(event["kind"], _about(event)) for event in rows.events}
    steps += [
        _of_message(None, message, rows)
        for message in rows.messages.values()
        if (_kind(message), message["id"]) not in told
    ]
    steps += [
        _of_signal(None, signal)
        for signal in rows.signals.values()
        if (EventKind.REACTION, signal["id"]) not in told
    ]
    # Stable: steps of the same microsecond stay in the order they were written in.
    return sorted(steps, key=lambda step: step.created)


def _load(store: Store, conversation: str) -> _Rows:
    messages = store.conn.execute(
        "SELECT messages.*, origins.message AS imported FROM messages "
        "LEFT JOIN origins ON origins.message = messages.id "
        "WHERE conversation = ? AND status != ? ORDER BY messages.rowid",
        (conversation, MessageStatus.GENERATING),
    )
    of_mine = "IN (SELECT id FROM messages WHERE conversation = ?)"
    signals = store.conn.execute(
        f"SELECT * FROM signals WHERE message {of_mine} ORDER BY rowid", (conversation,)
    ).fetchall()
    events = store.conn.execute("SELECT * FROM events WHERE conversation = ? ORDER BY seq", (conversation,))
    judged = store.conn.execute(
        f"SELECT message, verdict FROM judged WHERE message {of_mine}", (conversation,)
    )
    rows = _Rows(
        {row["id"]: row for row in messages},
        {row["id"]: row for row in signals},
        events.fetchall(),
        {row["message"]: row["verdict"] for row in judged},
    )
    replaced = {row["supersedes"] for row in signals}
    for row in signals:
        reward = Reward(
            row["id"],
            row["kind"],
            row["source"],
            row["value"],
            row["text"],
            row["confidence"],
            row["created"],
            row["id"] in replaced,
        )
        rows.rewards[row["message"]] = (*rows.rewards.get(row["message"], ()), reward)
    return rows


def _about(event: sqlite3.Row) -> str | None:
    """The message or signal that an event was written with; None for one that stands alone."""
    if event["kind"] == EventKind.REACTION:
        return str(json.loads(event["action"])["signal"])
    return None if _stands_alone(event) else str(event["message"])


def _stands_alone(event: sqlite3.Row) -> bool:
    """A tool call is also the step of a tool's message, which then holds the text."""
    return event["kind"] in HELD_HERE and any(
        event[part] != "{}" for part in ("observation", "harness", "action", "outcome", "metadata")
    )


def _recorded(event: sqlite3.Row, rows: _Rows) -> Step:
    if event["kind"] == EventKind.REACTION:
        return _of_signal(event, rows.signals[json.loads(event["action"])["signal"]])
    if not _stands_alone(event) and event["message"] is not None:
        return _of_message(event, rows.messages[event["message"]], rows)
    return Step(
        id=event["id"],
        kind=EventKind(event["kind"]),
        message=event["message"],
        created=event["created"],
        observation=json.loads(event["observation"]),
        harness=json.loads(event["harness"]),
        action=json.loads(event["action"]),
        outcome=json.loads(event["outcome"]),
        rewards=(),
        metadata=json.loads(event["metadata"]),
        replay=ReplayClass(event["replay"]),
        error_class=ErrorClass(event["error_class"]) if event["error_class"] else None,
    )


def _kind(message: sqlite3.Row) -> EventKind:
    return EventKind.MODEL_CALL if message["base_hash"] else kind_of(Role(message["role"]))


def _of_message(event: sqlite3.Row | None, row: sqlite3.Row, rows: _Rows) -> Step:
    kind = _kind(row)
    machine = {} if event is None else json.loads(event["metadata"])
    call = kind is EventKind.MODEL_CALL
    return Step(
        id=None if event is None else event["id"],
        kind=kind,
        message=row["id"],
        created=(row["finished"] if call else None) or row["created"],
        observation=_present(
            {"parent": row["parent"], "left_out": row["left_out"] if call else None}
            | {"prompt_tokens": conversations.known_numbers("i", row["prompt_tokens"]) or None}
        ),
        harness=(_harness(row) if call else {}) | ({} if event is None else json.loads(event["harness"])),
        action=_present(
            {
                "role": row["role"],
                "text": row["text"],
                "tokens": conversations.known_numbers("i", row["completion_tokens"]) or None,
                "logprobs": conversations.known_numbers("f", row["logprobs"]) or None,
            }
        ),
        outcome=_present(
            {
                "status": row["status"],
                "finish_reason": row["finish_reason"],
                "error": row["error"],
                "judged": rows.verdicts.get(row["id"]),
            }
        ),
        rewards=rows.rewards.get(row["id"], ()),
        metadata=_present(
            {
                "usage": _json(row["usage"]),
                "timings": _json(row["timings"]),
                "imported": True if row["imported"] else None,
            }
        )
        | machine,
        replay=ReplayClass(event["replay"]) if event is not None else _inferred(row, kind),
        error_class=ErrorClass(row["error_class"]) if row["error_class"] else None,
    )


def _harness(row: sqlite3.Row) -> dict[str, Any]:
    return {
        "base_hash": row["base_hash"],
        "adapter": row["adapter"],
        "scale": row["scale"],
        "template": row["template"],
        "sampler": _json(row["sampler"]),
        "items": _json(row["context_items"]) or [],
    }


def _inferred(row: sqlite3.Row, kind: EventKind) -> ReplayClass:
    """The class of a step nobody recorded: how it was computed is not known, so it is never deterministic."""
    if kind is not EventKind.MODEL_CALL:
        return replay.of_step(kind, {})
    prompt, completion = (len(row[name] or b"") // 4 for name in ("prompt_tokens", "completion_tokens"))
    sampler = _json(row["sampler"]) or {}
    return replay.of_model_call(Recorded(row["base_hash"], sampler, prompt, completion))


def _of_signal(event: sqlite3.Row | None, row: sqlite3.Row) -> Step:
    action = {name: row[name] for name in ("kind", "value", "text", "source", "confidence")}
    return Step(
        id=None if event is None else event["id"],
        kind=EventKind.REACTION,
        message=row["message"],
        created=row["created"],
        observation={"reply": row["message"]},
        harness={},
        action=_present({"signal": row["id"], **action, "supersedes": row["supersedes"]}),
        outcome={},
        rewards=(),
        metadata={},
        replay=replay.of_step(EventKind.REACTION, {}),
        error_class=None,
    )


def _present(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _json(text: str | None) -> Any:
    return json.loads(text) if text else None
