"""Conversations as trees of messages. Nothing is overwritten: regenerate and edit make siblings.

The rejected reply is half of what the learner learns from, so it stays. The owner's message is saved before
anything is generated, the reply's row exists from its first moment with status `generating`, and its text is
checkpointed while it streams: whatever dies, at most the last half second of a reply is lost. A message's
`path_hash` covers the text of all messages up to it, which is how a client that only resends its transcript is
matched to its conversation. `head` is the leaf the owner looked at last.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from store import erasure, events, settings, textindex
from store.db import Store
from store.errors import NotFound, UsageError
from store.ids import new_id, now
from store.replay import Recorded
from store.types import Consent, ErrorClass, FinishReason, ItemKind, MessageStatus, Role, Shelf

TITLE_LENGTH = 60

PROGRAM = "api"
"""The source of conversations that programs have over the endpoint."""

ASIDE = "aside"
"""The source of conversations that a program kept out of learning: no other transcript is matched to them."""

INSTEAD_OF = "instead_of"
"""Key of a reply's sampler settings: the attempt before it, which a guard refused and nobody saw."""
REPLACED = f"CASE WHEN instr(sampler, '\"{INSTEAD_OF}\"') THEN json_extract(sampler, '$.{INSTEAD_OF}') END"
"""That attempt as SQL, cheap where there is none."""

_MOST_ALIKE = 50


@dataclass(frozen=True)
class Message:
    """One node of a conversation, without its token arrays (see `tokens`)."""

    id: str
    conversation: str
    parent: str | None
    role: Role
    text: str
    status: MessageStatus
    created: str
    base_hash: str | None = None
    adapter: str | None = None
    scale: float | None = None
    finish_reason: FinishReason | None = None
    error_class: ErrorClass | None = None
    error: str | None = None
    left_out: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    sampler: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Tokens:
    """What the model saw and said: token ids, and natural-log probabilities at temperature 1 per reply token."""

    prompt: list[int]
    completion: list[int]
    logprobs: list[float]


@dataclass(frozen=True)
class Conversation:
    """One conversation's head row."""

    id: str
    title: str
    created: str
    updated: str
    source: str
    head: str | None
    train: Consent
    messages: int = 0
    pinned: str | None = None
    archived: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class ReplyStart:
    """Everything that is known when a reply begins: the harness state that made it."""

    base_hash: str
    adapter: str | None
    scale: float
    sampler: dict[str, Any]
    template: str
    prompt_tokens: Sequence[int]
    left_out: int = 0
    context_items: Sequence[str] = ()


@dataclass(frozen=True)
class ReplyEnd:
    """Everything that is known when a reply has ended."""

    text: str
    status: MessageStatus
    finish_reason: FinishReason
    completion_tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    error_class: ErrorClass | None = None
    error: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)
    """How it was computed: ``engine`` and ``mynah`` versions, ``cpu``, ``threads``, and the prompt as ``evaluated``."""
    guards: Sequence[dict[str, Any]] = ()
    """What each guard found: ``item``, ``template``, ``verdict``, ``repaired``, ``retries``; ``text`` is repaired."""


def title_from(text: str) -> str:
    """The first line of a first message, cut at a word near sixty characters."""
    line = " ".join(text.strip().splitlines()[0].split()) if text.strip() else "(empty)"
    if len(line) <= TITLE_LENGTH:
        return line
    cut = line[:TITLE_LENGTH]
    return (cut.rsplit(" ", 1)[0] if " " in cut[20:] else cut) + "…"


def create(store: Store, title: str, source: str) -> str:
    """Start a conversation with the default dials; returns its id. ``source`` is the client: chat, cli or api."""
    conversation, moment = new_id("c"), now()
    keep, memory, train = (
        Consent(settings.get(store, key))
        for key in (settings.KEEP_HISTORY, settings.FEED_MEMORY, settings.TRAIN)
    )
    if keep is Consent.DENY:
        memory = train = Consent.DENY
    with store.write() as connection:
        connection.execute(
            "INSERT INTO conversations (id, title, created, updated, source, keep_history, feed_memory, train) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (conversation, title, moment, moment, source, keep, memory, train),
        )
    return conversation


def append(store: Store, conversation: str, role: Role, text: str, parent: str | None) -> Message:
    """Save a finished message that the model did not write here (what the owner typed, or a client's transcript)."""
    message, moment = new_id("m"), now()
    with store.write() as connection:
        connection.execute(
            "INSERT INTO messages (id, conversation, parent, role, text, status, created, finished, path_hash) "
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message,
                conversation,
                parent,
                role,
                text,
                MessageStatus.COMPLETE,
                moment,
                moment,
                path_hash(_parent_hash(connection, parent), role, text),
            ),
        )
        events.append_message(connection, conversation, message, role, moment)
        _touch(connection, conversation, message, moment)
    return get_message(store, message)


def append_user(store: Store, conversation: str, text: str, parent: str | None) -> Message:
    """Save what the owner typed, before anything is generated from it."""
    return append(store, conversation, Role.USER, text, parent)


def begin_reply(store: Store, conversation: str, parent: str | None, start: ReplyStart) -> Message:
    """Save the row of a reply that is about to be generated."""
    message, moment = new_id("m"), now()
    with store.write() as connection:
        gone = _forgotten(connection, start.context_items)
        tokens = _pack("i", () if gone else start.prompt_tokens)
        connection.execute(
            "INSERT INTO messages (id, conversation, parent, role, text, status, created, base_hash, adapter, scale, "
            "sampler, template, context_items, context_hash, prompt_tokens, left_out) "
            "VALUES (?, ?, ?, ?, '', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                message,
                conversation,
                parent,
                Role.ASSISTANT,
                MessageStatus.GENERATING,
                moment,
                start.base_hash,
                start.adapter,
                start.scale,
                json.dumps(start.sampler, sort_keys=True),
                start.template,
                json.dumps(list(start.context_items)),
                hashlib.sha256(tokens).hexdigest(),
                tokens,
                start.left_out,
            ),
        )
        connection.executemany(
            "INSERT OR IGNORE INTO item_uses SELECT id, ? FROM items WHERE id = ?",
            [(message, item) for item in start.context_items],
        )
        _touch(connection, conversation, message, moment)
    return get_message(store, message)


def checkpoint(store: Store, message: str, text: str) -> None:
    """Save the text so far of a reply that still streams."""
    with store.write() as connection:
        connection.execute(
            "UPDATE messages SET text = ? WHERE id = ? AND status = ?",
            (text, message, MessageStatus.GENERATING),
        )


def finish_reply(store: Store, message: str, end: ReplyEnd) -> Message:
    """Close a reply. From here on its record cannot change."""
    with store.write() as connection:
        row = connection.execute(
            "SELECT parent, conversation, base_hash, sampler, prompt_tokens, created FROM messages WHERE id = ?",
            (message,),
        ).fetchone()
        if row is None:
            raise NotFound(f"no message has the id {message}")
        moment = now()
        closed = connection.execute(
            "UPDATE messages SET text = ?, status = ?, finished = ?, path_hash = ?, completion_tokens = ?, "
            "logprobs = ?, finish_reason = ?, error_class = ?, error = ?, usage = ?, timings = ? "
            "WHERE id = ? AND status = ?",
            (
                end.text,
                end.status,
                moment,
                path_hash(_parent_hash(connection, row["parent"]), Role.ASSISTANT, end.text),
                _pack("i", end.completion_tokens),
                _pack("f", end.logprobs),
                end.finish_reason,
                end.error_class,
                end.error,
                json.dumps(end.usage),
                json.dumps(end.timings),
                message,
                MessageStatus.GENERATING,
            ),
        )
        if closed.rowcount:
            events.append_model_call(
                connection,
                row["conversation"],
                message,
                moment,
                recorded=_recorded(row, end),
                machine=end.machine,
                harness={"guards": list(end.guards)} if end.guards else {},
                error_class=end.error_class,
            )
            events.append_harness(
                connection,
                row["conversation"],
                message,
                begun=row["created"],
                ended=moment,
                memories=_memories(connection, message),
                guards=end.guards,
            )
    return get_message(store, message)


def recover(store: Store) -> int:
    """Close replies that a dead host left open, keeping their text; returns how many. Infrastructure, not quality."""
    # Written out, not bound: only so is it seen that the index of open replies answers it.
    rows = store.conn.execute(
        f"SELECT id, text FROM messages WHERE status = '{MessageStatus.GENERATING}'"
    ).fetchall()
    for row in rows:
        finish_reply(
            store,
            row["id"],
            ReplyEnd(
                text=row["text"],
                status=MessageStatus.FAILED,
                finish_reason=FinishReason.ERROR,
                error_class=ErrorClass.HOST_DOWN,
                error="the host ended before the reply did",
            ),
        )
    return len(rows)


def being_written(store: Store) -> list[str]:
    """The replies that are being generated now."""
    rows = store.conn.execute(f"SELECT id FROM messages WHERE status = '{MessageStatus.GENERATING}'")
    return [row["id"] for row in rows]


def get_message(store: Store, message: str) -> Message:
    """One message by its full id."""
    row = store.conn.execute(f"SELECT {_COLUMNS} FROM messages WHERE id = ?", (message,)).fetchone()
    if row is None:
        raise NotFound(f"no message has the id {message}")
    return _message(row)


def tokens(store: Store, message: str) -> Tokens:
    """The token arrays of a reply; empty where there are none."""
    row = store.conn.execute(
        "SELECT prompt_tokens, completion_tokens, logprobs FROM messages WHERE id = ?", (message,)
    ).fetchone()
    if row is None:
        raise NotFound(f"no message has the id {message}")
    return Tokens(
        list(_unpack("i", row["prompt_tokens"])),
        list(_unpack("i", row["completion_tokens"])),
        list(_unpack("f", row["logprobs"])),
    )


def path(store: Store, message: str) -> list[Message]:
    """The messages from the root to this one."""
    rows = store.conn.execute(
        f"""
        WITH RECURSIVE up(id, depth) AS (
          SELECT ?, 0
          UNION ALL
          SELECT messages.parent, up.depth + 1 FROM messages JOIN up ON messages.id = up.id
          WHERE messages.parent IS NOT NULL
        )
        SELECT {_COLUMNS} FROM messages JOIN up USING (id) ORDER BY up.depth DESC
        """,
        (message,),
    ).fetchall()
    if not rows:
        raise NotFound(f"no message has the id {message}")
    return [_message(row) for row in rows]


def siblings(store: Store, message: str) -> list[Message]:
    """All messages with the same parent, in the order they were made, this one included."""
    node = get_message(store, message)
    # First messages have no parent, and there are as many as conversations: the + keeps that index out.
    place = "+parent IS NULL AND conversation = ?" if node.parent is None else "parent = ?"
    rows = store.conn.execute(
        f"SELECT {_COLUMNS} FROM messages WHERE {place} AND role = ? ORDER BY rowid",
        (node.parent or node.conversation, node.role),
    )
    return [_message(row) for row in rows]


def beside(store: Store, conversation: str) -> dict[str, list[str]]:
    """The `siblings` of every message of a conversation, by id: one question for them all.

    An attempt that nobody saw is beside nothing.
    """
    rows = store.conn.execute(
        f"SELECT id, parent, role, {REPLACED} AS replaced FROM messages WHERE conversation = ? ORDER BY rowid",
        (conversation,),
    ).fetchall()
    unseen = {row["replaced"] for row in rows}
    places: dict[tuple[str | None, str], list[str]] = {}
    found = {}
    for row in rows:
        place = [] if row["id"] in unseen else places.setdefault((row["parent"], row["role"]), [])
        place.append(row["id"])
        found[row["id"]] = place
    return found


def children(store: Store, message: str) -> list[Message]:
    """The direct answers to a message."""
    rows = store.conn.execute(f"SELECT {_COLUMNS} FROM messages WHERE parent = ? ORDER BY rowid", (message,))
    return [_message(row) for row in rows]


def select(store: Store, message: str) -> str:
    """Make the newest leaf below a message the conversation's head; returns that leaf."""
    node = get_message(store, message)
    leaf = node.id
    while below := children(store, leaf):
        leaf = below[-1].id
    with store.write() as connection:
        connection.execute("UPDATE conversations SET head = ? WHERE id = ?", (leaf, node.conversation))
    return leaf


def get(store: Store, conversation: str) -> Conversation:
    """One conversation by its full id."""
    row = store.conn.execute(
        f"SELECT {_HEAD_COLUMNS} FROM conversations WHERE id = ?",
        (conversation,),
    ).fetchone()
    if row is None:
        raise NotFound(f"no conversation has the id {conversation}")
    return _conversation(row)


def list_(store: Store, limit: int = 200, shelf: Shelf = Shelf.OPEN) -> list[Conversation]:
    """The conversations of a shelf that are kept in history: pinned ones first, then the last used first."""
    rows = store.conn.execute(
        f"SELECT {_HEAD_COLUMNS} FROM conversations WHERE keep_history = 'allow' "
        "AND (?1 = 'all' OR (archived IS NULL) = (?1 = 'open')) "
        "ORDER BY pinned IS NULL, updated DESC LIMIT ?2",
        (shelf, limit),
    )
    return [_conversation(row) for row in rows]


def rename(store: Store, conversation: str, title: str) -> None:
    """Give a conversation another title.

    Raises:
        UsageError: the title is empty.
    """
    if not title.strip():
        raise UsageError("a title needs at least one visible character")
    get(store, conversation)
    with store.write() as connection:
        connection.execute("UPDATE conversations SET title = ? WHERE id = ?", (title.strip(), conversation))


def delete(store: Store, conversation: str) -> None:
    """Delete a conversation that no adapter has learned from, to its last byte in the database file and the WAL.

    Raises:
        UsageError: an adapter has learned from it; deleting the text would not take that back.
    """
    get(store, conversation)
    with store.write() as connection:
        taught = connection.execute(
            "SELECT DISTINCT adapter FROM unit_uses JOIN units ON units.id = unit_uses.unit WHERE conversation = ?",
            (conversation,),
        ).fetchall()
        if taught:
            names = ", ".join(row["adapter"] for row in taught)
            raise UsageError(
                f"adapters learned from this conversation ({names}): `mynah forget conversation {conversation}` "
                "takes that back too; nothing was changed"
            )
        mine = connection.execute(
            "SELECT id FROM messages WHERE conversation = ?", (conversation,)
        ).fetchall()
        gone = [row["id"] for row in mine]
        parts = textindex.parts_of(connection, gone)
        erasure.delete_messages(connection, gone)
        connection.execute("DELETE FROM conversations WHERE id = ?", (conversation,))
    erasure.clean_index(store, parts)
    erasure.empty_log(store)


def by_path(store: Store, digest: str, *, asides: bool = False) -> list[Message]:
    """The finished messages whose whole path has this hash, newest first; in asides alone, or in all but asides."""
    rows = store.conn.execute(
        f"SELECT {_COLUMNS} FROM messages WHERE path_hash = ? AND (? = (SELECT source = ? FROM conversations "
        "WHERE conversations.id = messages.conversation)) ORDER BY messages.rowid DESC LIMIT ?",
        (digest, asides, ASIDE, _MOST_ALIKE),
    )
    return [_message(row) for row in rows]


def path_hash(parent: str, role: Role, text: str) -> str:
    """Hash of a message and, through ``parent`` (empty for none), of everything before it."""
    return hashlib.sha256("\x00".join((parent, role, text)).encode("utf-8", "surrogatepass")).hexdigest()


_HEAD_COLUMNS = (
    "*, (SELECT count(*) FROM messages WHERE conversation = conversations.id) AS messages, "
    "(SELECT json_group_array(tag) FROM (SELECT tag FROM tags WHERE conversation = conversations.id ORDER BY tag)) "
    "AS tags"
)
_COLUMNS = (
    "messages.id, conversation, parent, role, text, status, created, base_hash, adapter, scale, "
    "finish_reason, error_class, error, left_out, usage, timings, sampler"
)


def _message(row: sqlite3.Row) -> Message:
    return Message(
        id=row["id"],
        conversation=row["conversation"],
        parent=row["parent"],
        role=Role(row["role"]),
        text=row["text"],
        status=MessageStatus(row["status"]),
        created=row["created"],
        base_hash=row["base_hash"],
        adapter=row["adapter"],
        scale=row["scale"],
        finish_reason=FinishReason(row["finish_reason"]) if row["finish_reason"] else None,
        error_class=ErrorClass(row["error_class"]) if row["error_class"] else None,
        error=row["error"],
        left_out=row["left_out"],
        usage=json.loads(row["usage"] or "{}"),
        timings=json.loads(row["timings"] or "{}"),
        sampler=json.loads(row["sampler"] or "{}"),
    )


def _conversation(row: sqlite3.Row) -> Conversation:
    return Conversation(
        row["id"],
        row["title"],
        row["created"],
        row["updated"],
        row["source"],
        row["head"],
        Consent(row["train"]),
        row["messages"],
        row["pinned"],
        row["archived"],
        tuple(json.loads(row["tags"])),
    )


def _memories(connection: sqlite3.Connection, message: str) -> list[str]:
    """The memories that were in the prompt of a reply."""
    rows = connection.execute(
        "SELECT item FROM item_uses JOIN items ON items.id = item WHERE message = ? AND kind = ? ORDER BY item",
        (message, ItemKind.MEMORY),
    )
    return [row["item"] for row in rows]


def _forgotten(connection: sqlite3.Connection, items: Sequence[str]) -> bool:
    """Whether something in a prompt was forgotten after the prompt was made: then it is not kept."""
    if not items:
        return False
    marks = ", ".join("?" * len(items))
    row = connection.execute(
        f"SELECT 1 FROM items WHERE state = 'forgotten' AND id IN ({marks})", list(items)
    )
    return row.fetchone() is not None


def _touch(connection: sqlite3.Connection, conversation: str, head: str, moment: str) -> None:
    changed = connection.execute(
        "UPDATE conversations SET head = ?, updated = ? WHERE id = ?", (head, moment, conversation)
    )
    if changed.rowcount == 0:
        raise NotFound(f"no conversation has the id {conversation}")


def _parent_hash(connection: sqlite3.Connection, parent: str | None) -> str:
    if parent is None:
        return ""
    row = connection.execute("SELECT path_hash FROM messages WHERE id = ?", (parent,)).fetchone()
    if row is None:
        raise NotFound(f"no message has the id {parent}")
    return str(row["path_hash"] or "")


def _recorded(row: sqlite3.Row, end: ReplyEnd) -> Recorded:
    return Recorded(
        base_hash=row["base_hash"],
        sampler=json.loads(row["sampler"] or "{}"),
        prompt=len(row["prompt_tokens"] or b"") // 4,
        completion=len(end.completion_tokens),
        machine=end.machine,
    )


def known_numbers(code: str, data: bytes | None) -> list[Any]:
    """A stored array (``i`` or ``f``), or nothing unless all of it is known.

    Tokens that were taken over from a text have no probability (not a number), for which JSON has no word.
    """
    values = _unpack(code, data)
    return list(values) if all(map(math.isfinite, values)) else []


def _pack(code: str, values: Iterable[float]) -> bytes:
    return array(code, values).tobytes()


def _unpack(code: str, data: bytes | None) -> array[Any]:
    values: array[Any] = array(code)
    values.frombytes(data or b"")
    return values
