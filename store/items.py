"""Memories, instructions and guards: versioned items, each from words of the owner's and each with its effect.

One table for the three, because all that matters of them is the same: who said it, since when it holds, what it
replaced, whether it helps, and that one command takes it back. Nothing is overwritten: what is said anew of a topic
is its next version, and the one before is switched off and stays readable. Whoever adds one, code included, has to
say where it comes from, and anything but the owner's own words is refused here, at the one door; a span of a message
must lie outside what the message quotes. Every switch is a row of its own, so that it can be told later which items
held when.

What is forgotten loses its words, its topic and its origin and keeps its id: a reply may have had it in its prompt.
"""

from __future__ import annotations

import difflib
import json
import re
import sqlite3
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from store.db import Store
from store.errors import NotFound, UsageError
from store.ids import new_id, now
from store.provenance import Provenance, may_instruct, of_message, own_words
from store.types import ItemKind, ItemState, Role, SignalSource

LONGEST_BODY = 4000
"""Characters of an item's body as JSON: what is longer than a page is no rule and no fact."""

_SLUG = 48
_STANDING = (ItemState.PROPOSED, ItemState.ACTIVE)


@dataclass(frozen=True)
class Source:
    """Where an item comes from. ``message`` is what has to be forgotten for the item to be forgotten with it.

    ``span`` is where in that message it stands, in characters.
    """

    provenance: Provenance
    message: str | None = None
    span: tuple[int, int] | None = None


TYPED = Source(Provenance.OWNER)
"""The owner typed it as what it is, in a command or on a screen."""


@dataclass(frozen=True)
class Item:
    """One version of one item. ``confidence`` is 0 to 1; ``expires`` is a time as `ids.now` writes it."""

    id: str
    kind: ItemKind
    topic: str
    version: int
    state: ItemState
    body: dict[str, Any]
    source_message: str | None
    source_span: tuple[int, int] | None
    confidence: float
    expires: str | None
    created: str
    decision: str | None = None
    effect: dict[str, Any] | None = None
    conversation: str | None = None

    @property
    def text(self) -> str:
        """What it says, in one line: a guard's template with its parameters, else the text."""
        if self.kind is ItemKind.GUARD:
            parameters = json.dumps(self.body.get("parameters", {}), ensure_ascii=False, sort_keys=True)
            return f"{self.body.get('template', '')} {parameters}"
        return str(self.body.get("text", ""))

    @property
    def expired(self) -> bool:
        """Whether its time is over."""
        return self.expires is not None and self.expires <= now()


@dataclass(frozen=True)
class Switched:
    """One change of an item's state."""

    item: str
    state: ItemState
    created: str
    decision: str | None


def from_message(store: Store, message: str, span: tuple[int, int] | None = None) -> Source:
    """The source that a message, or a span of it, is: by who wrote it, whatever it says.

    Raises:
        NotFound: there is no such message.
    """
    row = store.conn.execute(
        "SELECT role, base_hash, EXISTS (SELECT 1 FROM origins WHERE origins.message = messages.id) AS imported "
        "FROM messages WHERE id = ?",
        (message,),
    ).fetchone()
    if row is None:
        raise NotFound(f"no message has the id {message}")
    made_here = row["base_hash"] is not None
    return Source(
        of_message(Role(row["role"]), made_here=made_here, imported=bool(row["imported"])), message, span
    )


def from_signal(store: Store, signal: str) -> Source:
    """The source that a rating, a reason or a correction is; what a rule or the judge concluded is none.

    Raises:
        NotFound: there is no such signal.
    """
    row = store.conn.execute("SELECT message, source FROM signals WHERE id = ?", (signal,)).fetchone()
    if row is None:
        raise NotFound(f"no rating has the id {signal}")
    owner = row["source"] == SignalSource.USER
    return Source(Provenance.OWNER if owner else Provenance.MODEL, row["message"])


def add(
    store: Store,
    kind: ItemKind,
    topic: str,
    body: dict[str, Any],
    *,
    source: Source,
    confidence: float,
    state: ItemState,
    decision: str | None = None,
    expires: str | None = None,
    conversation: str | None = None,
) -> Item:
    """Add the next version of a topic. One that becomes active, or is proposed, takes the place of one that was.

    Raises:
        UsageError: it does not come from the owner's own words, it is empty, or the topic is.
    """
    name = slug(topic)
    with store.write() as connection:
        _check(store, source)
        packed = _packed(kind, body)
        last = connection.execute(
            "SELECT max(version) FROM items WHERE kind = ? AND topic = ?", (kind, name)
        ).fetchone()[0]
        item = new_id("i")
        start, end = source.span or (None, None)
        connection.execute(
            "INSERT INTO items (id, kind, topic, version, state, body, conversation, source_message, source_start, "
            "source_end, confidence, expires, created, decision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(item, kind, name, (last or 0) + 1, ItemState.OFF, packed, conversation, source.message),
                *(start, end, confidence, expires, now(), decision),
            ),
        )
        return switch(store, item, state, decision)


def edit(store: Store, item: str, body: dict[str, Any], *, expires: str | None = None) -> Item:
    """What the owner makes of an item: its next version, which is forgotten with what the item came from.

    Raises:
        NotFound: there is no such item.
        UsageError: it is forgotten, or nothing is changed.
    """
    before = _known(store, item)
    if body == before.body and expires == before.expires:
        raise UsageError(f"{item} says that already: nothing was changed")
    return add(
        store,
        before.kind,
        before.topic,
        body,
        source=Source(Provenance.OWNER, before.source_message),
        confidence=1.0,
        state=ItemState.ACTIVE if before.state in _STANDING else before.state,
        expires=expires,
        conversation=before.conversation,
    )


def switch(store: Store, item: str, state: ItemState, decision: str | None = None) -> Item:
    """Bring an item into a state. One that becomes active or proposed switches other versions of its topic off.

    Raises:
        NotFound: there is no such item.
        UsageError: it is forgotten, or should become so (see `store.forgetting`).
    """
    if state is ItemState.FORGOTTEN:
        raise UsageError(f"`mynah forget memory {item}` forgets it")
    with store.write() as connection:
        found = _known(store, item)
        if state in _STANDING:
            replaced = _STANDING if state is ItemState.ACTIVE else (ItemState.PROPOSED,)
            others = connection.execute(
                "SELECT id FROM items WHERE kind = ? AND topic = ? AND id != ? AND state IN "
                f"({', '.join('?' * len(replaced))})",
                (found.kind, found.topic, item, *replaced),
            ).fetchall()
            for other in others:
                _change(connection, other["id"], ItemState.OFF, decision)
        if state is not found.state or not changes(store, item):
            _change(connection, item, state, decision)
    return get(store, item)


def set_effect(store: Store, item: str, effect: dict[str, Any]) -> Item:
    """Keep what was measured of an item: ``with``, ``without``, ``n``, ``interval``."""
    with store.write() as connection:
        _known(store, item)
        connection.execute("UPDATE items SET effect = ? WHERE id = ?", (json.dumps(effect), item))
    return get(store, item)


def active(store: Store, kind: ItemKind | None = None, conversation: str | None = None) -> list[Item]:
    """What holds now, oldest topic first: everywhere, and of what holds in one conversation only, in this one."""
    rows = store.conn.execute(
        "SELECT * FROM items WHERE state = ? AND (?2 IS NULL OR kind = ?2) AND (expires IS NULL OR expires > ?3) "
        "AND (conversation IS NULL OR conversation = ?4) ORDER BY seq",
        (ItemState.ACTIVE, kind, now(), conversation),
    )
    return [_item(row) for row in rows]


def list_(
    store: Store, kind: ItemKind | None = None, states: Sequence[ItemState] | None = None
) -> list[Item]:
    """One version of each topic with one of the states (None: any but forgotten), newest first.

    That is the newest which holds or waits for an approval, else the newest: an earlier one may have been brought back.
    """
    wanted = [each for each in ItemState if each is not ItemState.FORGOTTEN] if states is None else states
    rows = store.conn.execute(
        "SELECT * FROM items AS mine WHERE (?1 IS NULL OR kind = ?1) AND state IN (SELECT value FROM json_each(?2)) "
        "AND seq = (SELECT seq FROM items WHERE kind = mine.kind AND topic = mine.topic "
        "AND state IN (SELECT value FROM json_each(?2)) "
        "ORDER BY state IN (SELECT value FROM json_each(?3)) DESC, version DESC LIMIT 1) ORDER BY seq DESC",
        (kind, json.dumps(wanted), json.dumps(_STANDING)),
    )
    return [_item(row) for row in rows]


def versions(store: Store, kind: ItemKind, topic: str) -> list[Item]:
    """Everything that was ever said of a topic and not forgotten, oldest first."""
    rows = store.conn.execute(
        "SELECT * FROM items WHERE kind = ? AND topic = ? AND state != ? ORDER BY version",
        (kind, slug(topic), ItemState.FORGOTTEN),
    )
    return [_item(row) for row in rows]


def changes(store: Store, item: str | None = None) -> list[Switched]:
    """Every switch of an item, or of all, oldest first."""
    rows = store.conn.execute(
        "SELECT * FROM item_changes WHERE ?1 IS NULL OR item = ?1 ORDER BY seq", (item,)
    )
    return [Switched(row["item"], ItemState(row["state"]), row["created"], row["decision"]) for row in rows]


def get(store: Store, item: str) -> Item:
    """One item by its full id. Raises NotFound."""
    row = store.conn.execute("SELECT * FROM items WHERE id = ?", (item,)).fetchone()
    if row is None:
        raise NotFound(f"no memory, instruction or guard has the id {item}")
    return _item(row)


def diff(before: Item | None, after: Item) -> str:
    """What changed from one version to another, as a unified diff; everything where there was none before."""
    old, new = [] if before is None else _lines(before), _lines(after)
    first = "/dev/null" if before is None else f"{before.topic} v{before.version}"
    return "\n".join(difflib.unified_diff(old, new, first, f"{after.topic} v{after.version}", lineterm=""))


def read_off(store: Store, message: str) -> list[Item]:
    """What was read off one message of the owner's and holds now, oldest first."""
    rows = store.conn.execute(
        "SELECT id FROM items WHERE source_message = ? AND state = ? ORDER BY seq",
        (message, ItemState.ACTIVE),
    )
    return [get(store, row["id"]) for row in rows]


def before(store: Store, item: Item) -> Item | None:
    """The version before one."""
    return next(
        (each for each in reversed(versions(store, item.kind, item.topic)) if each.version < item.version),
        None,
    )


def uses(store: Store, item: str) -> list[str]:
    """The replies that an item reached, oldest first."""
    rows = store.conn.execute(
        "SELECT message FROM item_uses JOIN messages ON messages.id = message WHERE item = ? ORDER BY messages.rowid",
        (item,),
    )
    return [row["message"] for row in rows]


def without_vector(store: Store, embedder: str) -> list[Item]:
    """The standing items that this embedder has not turned into a vector yet."""
    rows = store.conn.execute(
        "SELECT * FROM items WHERE state IN (?, ?) AND embedder IS NOT ? ORDER BY seq", (*_STANDING, embedder)
    )
    return [_item(row) for row in rows]


def set_vector(store: Store, item: str, embedder: str, vector: Sequence[float]) -> None:
    """Keep an item's embedding: float32, of unit length, under the embedder's name."""
    with store.write() as connection:
        connection.execute(
            "UPDATE items SET embedder = ?, vector = ? WHERE id = ? AND state != ?",
            (embedder, array("f", vector).tobytes(), item, ItemState.FORGOTTEN),
        )


def vectors(store: Store, embedder: str) -> dict[str, array[float]]:
    """The embeddings of what holds now, by item."""
    found: dict[str, array[float]] = {}
    rows = store.conn.execute(
        "SELECT id, vector FROM items WHERE state = ? AND embedder = ?", (ItemState.ACTIVE, embedder)
    )
    for row in rows:
        found[row["id"]] = array("f")
        found[row["id"]].frombytes(row["vector"])
    return found


def slug(topic: str) -> str:
    """A topic as it is kept: lower case, words with hyphens between, any script.

    Raises:
        UsageError: nothing is left of it.
    """
    name = re.sub(r"[\W_]+", "-", topic.lower()).strip("-")[:_SLUG].strip("-")
    if not name:
        raise UsageError("a topic needs at least one letter or digit")
    return name


def seconds_from_now(seconds: float) -> str:
    """The time in so many seconds, as ``expires`` takes it."""
    return datetime.fromtimestamp(datetime.now(UTC).timestamp() + seconds, UTC).isoformat(
        timespec="microseconds"
    )


def _check(store: Store, source: Source) -> None:
    """Refuse what the owner did not say.

    Raises:
        UsageError: it is somebody else's, or a quotation.
        NotFound: its message is gone.
    """
    if not may_instruct(source.provenance):
        raise UsageError(
            f"only the owner's own words can be remembered or become a rule, and this is from: {source.provenance}"
        )
    if source.message is None or source.span is None:
        return
    found = from_message(store, source.message)
    if not may_instruct(found.provenance):
        raise UsageError(
            f"only the owner's own words can be remembered or become a rule, and this is from: {found.provenance}"
        )
    row = store.conn.execute("SELECT text FROM messages WHERE id = ?", (source.message,)).fetchone()
    start, end = source.span
    said = str(row["text"])[start:end].strip()
    if not 0 <= start < end <= len(row["text"]) or said not in own_words(row["text"]):
        raise UsageError("that part of the message quotes somebody else: it cannot be remembered")


def _packed(kind: ItemKind, body: dict[str, Any]) -> str:
    key = "template" if kind is ItemKind.GUARD else "text"
    if not str(body.get(key) or "").strip():
        raise UsageError(f"a{'n' if kind is ItemKind.INSTRUCTION else ''} {kind} needs its {key}")
    packed = json.dumps(body, ensure_ascii=False, sort_keys=True)
    if len(packed) > LONGEST_BODY:
        raise UsageError(f"a {kind} holds at most {LONGEST_BODY} characters: say it shorter")
    return packed


def _change(connection: sqlite3.Connection, item: str, state: ItemState, decision: str | None) -> None:
    connection.execute("UPDATE items SET state = ? WHERE id = ?", (state, item))
    connection.execute(
        "INSERT INTO item_changes (item, state, created, decision) VALUES (?, ?, ?, ?)",
        (item, state, now(), decision),
    )


def _known(store: Store, item: str) -> Item:
    found = get(store, item)
    if found.state is ItemState.FORGOTTEN:
        raise UsageError(f"{item} was forgotten: nothing is left of it")
    return found


def _lines(item: Item) -> list[str]:
    if item.kind is ItemKind.GUARD:
        return json.dumps(item.body, ensure_ascii=False, indent=2, sort_keys=True).splitlines()
    return str(item.body["text"]).splitlines()


def _item(row: sqlite3.Row) -> Item:
    span = (row["source_start"], row["source_end"]) if row["source_start"] is not None else None
    return Item(
        id=row["id"],
        kind=ItemKind(row["kind"]),
        topic=row["topic"],
        version=row["version"],
        state=ItemState(row["state"]),
        body=json.loads(row["body"]),
        source_message=row["source_message"],
        source_span=span,
        confidence=row["confidence"],
        expires=row["expires"],
        created=row["created"],
        decision=row["decision"],
        effect=json.loads(row["effect"]) if row["effect"] else None,
        conversation=row["conversation"],
    )
