"""Signals: what happened to a reply, appended when it becomes known and never changed.

Taking a rating back is a new signal with value 0 that supersedes the old one. Each signal brings the reply's
learning unit up to date in the same transaction, so that "what became of my rating" has an answer at once.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from datetime import UTC, datetime

from store import conversations, events, units
from store.db import Store
from store.errors import UsageError
from store.ids import new_id, now
from store.types import MessageStatus, Role, SignalKind, SignalSource


@dataclass(frozen=True)
class Signal:
    """One stored signal. ``value`` is +1, -1 or 0 for a thumb, a similarity for a re-query, else None."""

    id: str
    message: str
    kind: SignalKind
    value: float | None
    text: str | None
    source: SignalSource
    confidence: float
    created: str
    supersedes: str | None


@dataclass(frozen=True)
class OwnerVerdict:
    """The owner's own word on whether a message was dissatisfied with the reply before it."""

    pair: units.NextState
    dissatisfied: bool


def record(
    store: Store,
    message: str,
    kind: SignalKind,
    *,
    value: float | None = None,
    text: str | None = None,
    source: SignalSource = SignalSource.USER,
    confidence: float = 1.0,
    supersedes: str | None = None,
) -> Signal:
    """Append a signal to a reply and refresh its learning unit. The same kind from the same source is superseded.

    ``supersedes`` names another signal that this one turns over: the owner's word against a rule's.

    Raises:
        UsageError: the message is not a reply, or still being written.
    """
    reply = conversations.get_message(store, message)
    if reply.role is not Role.ASSISTANT:
        raise UsageError(f"{message} is not a reply of the model: only replies can be rated or corrected")
    if reply.status is MessageStatus.GENERATING:
        raise UsageError(f"{message} is still being written: stop it first, or wait until it ends")
    with store.write() as connection:
        earlier = connection.execute(
            "SELECT id FROM signals WHERE message = ? AND kind = ? AND source = ? ORDER BY rowid DESC LIMIT 1",
            (message, kind, source),
        ).fetchone()
        signal = Signal(
            new_id("s"),
            message,
            kind,
            value,
            text,
            source,
            confidence,
            now(),
            earlier["id"] if earlier else supersedes,
        )
        connection.execute(
            "INSERT INTO signals (id, message, kind, value, text, source, confidence, created, supersedes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                signal.id,
                message,
                kind,
                value,
                text,
                source,
                confidence,
                signal.created,
                signal.supersedes,
            ),
        )
        events.append_reaction(connection, reply.conversation, message, signal.id, signal.created)
        units.refresh(store, message)
    return signal


def all_of(store: Store, message: str) -> list[Signal]:
    """Every signal a reply ever got, oldest first."""
    rows = store.conn.execute("SELECT * FROM signals WHERE message = ? ORDER BY rowid", (message,))
    return [_signal(row) for row in rows]


def of_conversation(store: Store, conversation: str) -> dict[str, list[Signal]]:
    """Every signal that replies of a conversation got, oldest first, by reply."""
    # CROSS JOIN: the few messages of one conversation lead, never all signals.
    rows = store.conn.execute(
        "SELECT signals.* FROM messages CROSS JOIN signals ON signals.message = messages.id "
        "WHERE conversation = ? ORDER BY signals.rowid",
        (conversation,),
    )
    found: dict[str, list[Signal]] = {}
    for row in rows:
        found.setdefault(row["message"], []).append(_signal(row))
    return found


def verdicts_of_owner(store: Store) -> list[OwnerVerdict]:
    """Every reply of which the owner said whether they had to ask again, with what was said around it."""
    rows = store.conn.execute(
        """
        SELECT said.message, said.value, question.text AS question, reply.text AS answer, next.text AS next_message
        FROM signals AS said
        JOIN messages AS reply ON reply.id = said.message
        JOIN messages AS question ON question.id = reply.parent
        JOIN messages AS next ON next.parent = reply.id AND next.role = ?
        WHERE said.kind = ? AND said.source = ?
          AND said.rowid = (SELECT max(rowid) FROM signals WHERE message = said.message AND kind = said.kind
                            AND source = said.source)
        GROUP BY said.message HAVING next.rowid = min(next.rowid) ORDER BY said.rowid
        """,
        (Role.USER, SignalKind.REQUERY, SignalSource.USER),
    )
    return [
        OwnerVerdict(
            units.NextState(row["message"], row["question"], row["answer"], row["next_message"]),
            bool(row["value"]),
        )
        for row in rows
    ]


def seconds_since_last(store: Store) -> float:
    """Seconds since anything was said of any reply; infinite where nothing ever was."""
    row = store.conn.execute("SELECT created FROM signals ORDER BY rowid DESC LIMIT 1").fetchone()
    if row is None:
        return float("inf")
    return (datetime.now(UTC) - datetime.fromisoformat(row["created"])).total_seconds()


def owner_active_since(store: Store, moment: str) -> bool:
    """Whether the owner has said anything, in a conversation or of a reply, after a moment as `ids.now` writes it."""
    row = store.conn.execute(
        "SELECT created FROM signals WHERE source = ? ORDER BY rowid DESC LIMIT 1", (SignalSource.USER,)
    ).fetchone()
    if row is not None and row["created"] > moment:
        return True
    talked = store.conn.execute("SELECT 1 FROM conversations WHERE updated > ? LIMIT 1", (moment,))
    return talked.fetchone() is not None


def _signal(row: sqlite3.Row) -> Signal:
    return Signal(
        row["id"],
        row["message"],
        SignalKind(row["kind"]),
        row["value"],
        row["text"],
        SignalSource(row["source"]),
        row["confidence"],
        row["created"],
        row["supersedes"],
    )
