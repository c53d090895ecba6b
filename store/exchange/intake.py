"""Stores the conversations of a file: all of them or, when something fails in the middle, none.

What a message is called in the file it came from is kept as a hash in `origins`. A message that is known by it is
not stored again, and one that is new finds its parent through it: importing a file twice adds nothing, and a later
export of the same account adds what is new to the conversations that are there. Imported text is somebody else's
word until the owner says otherwise, so the conversation may neither be trained on nor feed the memory, also when it
only grew. A conversation that was held here is never added to: what a file says of it might not be what was said.

A client that resends its transcript is matched to its conversation by a hash over the path. Imported paths begin with
another word, or a copy of a conversation would draw the client's next turn to where nothing may be learned.

The file is read before the transaction begins, so that a chat going on beside it waits for the writing alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from store import consent, units
from store.consent import By
from store.conversations import path_hash, title_from
from store.db import Store
from store.errors import ExchangeFileError
from store.exchange import reading
from store.exchange.drafts import Draft, DraftMessage, Skipped, Source, digest
from store.exchange.records import IMPORTED
from store.ids import new_id, now
from store.types import Consent, Dial, MessageStatus, Role

_READ_SHARE = 0.5
_COLUMNS = (
    "status",
    "finished",
    "base_hash",
    "adapter",
    "scale",
    "sampler",
    "template",
    "context_items",
    "prompt_tokens",
    "completion_tokens",
    "logprobs",
    "finish_reason",
    "error_class",
    "error",
    "left_out",
    "usage",
    "timings",
)
_INSERT = (
    f"INSERT INTO messages (id, conversation, parent, role, text, created, path_hash, {', '.join(_COLUMNS)}) "
    f"VALUES ({', '.join('?' * (7 + len(_COLUMNS)))})"
)


@dataclass
class Report:
    """What an import came to. ``unchanged`` counts conversations that were here already."""

    added: int = 0
    extended: int = 0
    unchanged: int = 0
    messages: int = 0
    skipped: list[Skipped] = field(default_factory=list)


def import_file(
    store: Store, path: Path, source: Source | None = None, progress: Callable[[float], None] | None = None
) -> Report:
    """Import a file in one transaction. ``progress`` is told the share that is done, 0 to 1.

    Raises:
        NotFound: there is no such file.
        ExchangeFileError: it holds no conversation that can be read.
        DiskFull: nothing was imported.
    """
    told = progress or _ignore
    read = list(reading.drafts(path, source, lambda share: told(share * _READ_SHARE)))
    report = Report(skipped=[each for each in read if isinstance(each, Skipped)])
    drafts = [each for each in read if isinstance(each, Draft)]
    if not drafts:
        reason = f" ({report.skipped[0].entry}: {report.skipped[0].reason})" if report.skipped else ""
        raise ExchangeFileError(f"{path} holds no conversation that Mynah can read{reason}")
    with store.write() as connection:
        for number, draft in enumerate(drafts, start=1):
            _Writer(store, connection, draft, report).write()
            told(_READ_SHARE + (1 - _READ_SHARE) * number / len(drafts))
    return report


class _Writer:
    """Puts one draft into the store, within the caller's transaction."""

    def __init__(self, store: Store, connection: sqlite3.Connection, draft: Draft, report: Report) -> None:
        self._store = store
        self._connection = connection
        self._draft = draft
        self._report = report
        self._origins = {
            message.key: digest(draft.space, draft.key, message.key) for message in draft.messages
        }
        self._ids: dict[str, str] = {}
        self._hashes: dict[str, str] = {}

    def write(self) -> None:
        """Store what is new in the draft, and count it."""
        known = self._known()
        if known is None and self._is_ours():
            self._report.unchanged += 1
            return
        messages = [message for message in self._draft.messages if message.key not in self._ids]
        signals = self._new_signals()
        if not messages and not signals:
            self._report.unchanged += 1
            return
        conversation = known or self._create()
        self._deny(conversation)
        for message in messages:
            self._store_message(conversation, message)
        for key, signal in signals:
            self._store_signal(self._ids[key], signal)
        for key in dict.fromkeys(key for key, _ in signals):
            units.refresh(self._store, self._ids[key])
        self._show(conversation, known is None)
        self._report.messages += len(messages)
        if known is None:
            self._report.added += 1
        else:
            self._report.extended += 1

    def _known(self) -> str | None:
        """Find the messages that an earlier import brought; returns their conversation."""
        conversation = None
        by_origin = {origin: key for key, origin in self._origins.items()}
        for chunk in _chunks(list(by_origin)):
            for row in self._connection.execute(
                "SELECT origin, messages.id, conversation, path_hash FROM origins "
                f"JOIN messages ON messages.id = origins.message WHERE origin IN ({', '.join('?' * len(chunk))})",
                chunk,
            ):
                key = by_origin[row["origin"]]
                self._ids[key], self._hashes[key] = row["id"], row["path_hash"] or ""
                conversation = row["conversation"]
        return conversation

    def _is_ours(self) -> bool:
        """Whether the draft is an export of a conversation that is here already, not brought by this file's like."""
        wanted = self._draft.wanted
        return wanted is not None and self._taken("conversations", wanted)

    def _create(self) -> str:
        draft = self._draft
        conversation = draft.wanted or new_id("c")
        first = next((each.text for each in draft.messages if each.role is Role.USER), draft.messages[0].text)
        created = draft.created or draft.messages[0].created or now()
        self._connection.execute(
            "INSERT INTO conversations (id, title, created, updated, source, keep_history, feed_memory, train) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                conversation,
                draft.title or title_from(first),
                created,
                draft.updated or max(each.created or created for each in draft.messages),
                f"{IMPORTED}{draft.client}",
                Consent.ALLOW,
                Consent.DENY,
                Consent.DENY,
            ),
        )
        return conversation

    def _store_message(self, conversation: str, message: DraftMessage) -> None:
        above = message.parent if message.parent in self._ids else None
        ours = self._draft.wanted is not None and not self._taken("messages", message.key)
        identity = message.key if ours else new_id("m")
        hashed = path_hash(self._hashes[above] if above else IMPORTED, message.role, message.text)
        created = message.created or self._draft.created or now()
        record = {"status": MessageStatus.COMPLETE, "left_out": 0, "finished": created, **message.record}
        self._connection.execute(
            _INSERT,
            (
                identity,
                conversation,
                self._ids[above] if above else None,
                message.role,
                message.text,
                created,
                hashed,
                *(record.get(column) for column in _COLUMNS),
            ),
        )
        self._connection.execute(
            "INSERT INTO origins (message, origin, model) VALUES (?, ?, ?)",
            (identity, self._origins[message.key], message.model),
        )
        self._ids[message.key], self._hashes[message.key] = identity, hashed

    def _new_signals(self) -> list[tuple[str, dict[str, Any]]]:
        """The reactions of our own exports that are not here yet, with the keys of their replies."""
        return [
            (message.key, signal)
            for message in self._draft.messages
            if message.role is Role.ASSISTANT
            for signal in message.signals
            if not self._taken("signals", signal["id"])
        ]

    def _deny(self, conversation: str) -> None:
        """Nothing that came in is learned from or remembered until the owner says so; before any reaction comes."""
        for dial in (Dial.TRAIN, Dial.MEMORY):
            consent.set_(self._store, conversation, dial, Consent.DENY, By.IMPORT)

    def _store_signal(self, message: str, signal: dict[str, Any]) -> None:
        before = signal["supersedes"]
        self._connection.execute(
            "INSERT INTO signals (id, message, kind, value, text, source, confidence, created, supersedes) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                signal["id"],
                message,
                signal["kind"],
                signal["value"],
                signal["text"],
                signal["source"],
                signal["confidence"],
                signal["created"],
                before if before is not None and self._taken("signals", before) else None,
            ),
        )

    def _show(self, conversation: str, fresh: bool) -> None:
        """Show the branch that the file shows, unless the owner has gone on since."""
        draft = self._draft
        head = self._ids.get(draft.head or "") or self._ids[draft.messages[-1].key]
        row = self._connection.execute(
            "SELECT updated, origins.message AS imported FROM conversations "
            "LEFT JOIN origins ON origins.message = head WHERE conversations.id = ?",
            (conversation,),
        ).fetchone()
        if fresh or row["imported"] is not None:
            self._connection.execute("UPDATE conversations SET head = ? WHERE id = ?", (head, conversation))
        self._connection.execute(
            "UPDATE conversations SET updated = ? WHERE id = ?",
            (max(row["updated"], draft.updated or ""), conversation),
        )

    def _taken(self, table: str, identity: str) -> bool:
        return (
            self._connection.execute(f"SELECT 1 FROM {table} WHERE id = ?", (identity,)).fetchone()
            is not None
        )


def _chunks(values: Sequence[str], size: int = 500) -> list[Sequence[str]]:
    return [values[start : start + size] for start in range(0, len(values), size)]


def _ignore(_share: float) -> None:
    """Nobody watches the progress."""
