"""Requests to forget: what one is about, what it will undo, and the transaction that makes serving clean.

An adapter that has seen a thing cannot be made to unsee it, so forgetting reaches the weights by lineage: every
adapter whose run trained on it, went over it again, was tested on it or was shown it while practising is tainted and
serves no more. Every round starts at the bare base, so an adapter's parent tells nothing, and the units its run saw
tell all. Asking is one transaction: the request, the tainted adapters, what serves instead, and the lost lessons back
in the queue, or none of it. What is left to do is in the row's plan, for whoever goes on (see `store.purging`), and
the plan holds ids and numbers only: nothing in it may quote what is to be forgotten.

A message takes what hangs below it along: the replies to it were made from it, and what was asked next as well.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from store import adapters, conversations, decisions, erasure, items, textindex, units
from store.adapters import Adapter, Moved
from store.db import Store
from store.errors import NotFound, UsageError
from store.ids import new_id, now
from store.types import AdapterState, ForgetState, ItemState, Role, Scope, SignalKind, SignalSource, UnitKind

_MAKING = timedelta(hours=1)
SAW_IT = "it saw what the owner asked to forget"
TO_BE_FORGOTTEN = "the owner asked to forget it"


@dataclass(frozen=True)
class Item:
    """What a request is about.

    ``conversation`` is deleted whole where it is given. ``reply`` is one that stays, but whose re-query was read off
    the first of the messages; ``lesser`` are those that stay, but learned that one of the messages was better. Scope
    `all` names no messages: it means all of them. ``items`` are the versions of a memory (or rule) that is forgotten by
    itself; those that came from a message go with it.
    """

    scope: Scope
    target: str | None
    messages: tuple[str, ...] = ()
    conversation: str | None = None
    reply: str | None = None
    items: tuple[str, ...] = ()
    lesser: tuple[str, ...] = ()


@dataclass(frozen=True)
class Preview:
    """What a request would undo. ``tainted`` and ``serving`` are ids; ``versions`` gives the numbers people know.

    ``backups`` hold it; ``unreached`` are those of them that forgetting cannot write anew, with the reason.
    """

    scope: Scope
    target: str | None
    conversations: int
    messages: int
    ratings: int
    units: int
    tainted: list[str]
    versions: list[int]
    serving_moves: bool
    serving: str | None
    retrain: bool
    backups: list[str]
    unreached: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Forgetting:
    """One request. ``plan`` and ``receipt`` hold ids, numbers and times, never text."""

    id: str
    scope: Scope
    target: str | None
    state: ForgetState
    created: str
    updated: str
    plan: dict[str, Any]
    run: str | None
    receipt: dict[str, Any] | None


def find(store: Store, scope: Scope, target: str | None) -> Item:
    """What a request is about, as things are now. Raises NotFound."""
    if scope is Scope.ALL:
        return Item(scope, None)
    if target is None:
        raise UsageError(f"say which {scope} to forget")
    if scope is Scope.ADAPTER:
        adapters.get(store, target)
        return Item(scope, target)
    if scope is Scope.MEMORY:
        return Item(scope, target, items=_versions(store, target))
    if scope is Scope.CONVERSATION:
        conversations.get(store, target)
        return Item(
            scope, target, _ids(store, "SELECT id FROM messages WHERE conversation = ?", target), target
        )
    message = conversations.get_message(store, target)
    below = _ids(
        store,
        "WITH RECURSIVE down(id) AS (SELECT ? UNION ALL SELECT messages.id FROM messages JOIN down "
        "ON messages.parent = down.id) SELECT id FROM down",
        target,
    )
    count = conversations.get(store, message.conversation).messages
    whole = message.conversation if len(below) == count else None
    return Item(
        scope,
        target,
        below,
        whole,
        None if whole else _reacted_to(store, message),
        lesser=_lesser_than(store, message),
    )


def preview(store: Store, scope: Scope, target: str | None) -> Preview:
    """What a request would undo, without doing it."""
    item = find(store, scope, target)
    tainted = [adapters.get(store, each) for each in seen_by(store, item)]
    ids = [each.id for each in tainted]
    moving = [base for base in {each.base_hash for each in tainted} if _serves(store, base) in ids]
    after = adapters.newest_sound(store, moving[0], ids) if moving else None
    counts = counted(store, item)
    paths = store.conn.execute(
        "SELECT path FROM backups WHERE created >= ? ORDER BY created", (_since(store.conn, item),)
    )
    return Preview(
        scope=scope,
        target=target,
        **counts,
        tainted=ids,
        versions=[each.version for each in tainted],
        serving_moves=bool(moving),
        serving=after.id if after else None,
        retrain=bool(moving) and scope not in (Scope.ALL, Scope.ADAPTER),
        backups=[row["path"] for row in paths],
        unreached={},
    )


def counted(store: Store, item: Item) -> dict[str, int]:
    """How much a request takes away."""
    if item.scope is Scope.ALL:
        tables = {
            "conversations": "conversations",
            "messages": "messages",
            "ratings": "signals",
            "units": "units",
        }
        return {
            name: store.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for name, table in tables.items()
        }
    ids = json.dumps(item.messages)
    mine = "message IN (SELECT value FROM json_each(?))"
    return {
        "conversations": int(item.conversation is not None),
        "messages": len(item.messages),
        "ratings": store.conn.execute(f"SELECT count(*) FROM signals WHERE {mine}", (ids,)).fetchone()[0],
        "units": store.conn.execute(f"SELECT count(*) FROM units WHERE {mine}", (ids,)).fetchone()[0],
    }


def seen_by(store: Store, item: Item) -> list[str]:
    """The adapters whose runs saw any of it and that are not tainted yet, oldest first."""
    if item.scope is Scope.ALL:
        return [each.id for each in adapters.list_(store)][::-1]
    if item.scope is Scope.ADAPTER:
        return [str(item.target)]
    touched = json.dumps([*item.messages, *([item.reply] if item.reply else []), *item.lesser])
    rows = store.conn.execute(
        "SELECT id FROM adapters WHERE state != ? AND id IN (SELECT adapter FROM unit_uses JOIN units "
        "ON units.id = unit WHERE message IN (SELECT value FROM json_each(?))) ORDER BY created, version",
        (AdapterState.TAINTED, touched),
    )
    return [row["id"] for row in rows]


def request(store: Store, scope: Scope, target: str | None) -> Forgetting:
    """Ask to forget. When this returns, nothing that saw it is served any more.

    Raises:
        NotFound: there is no such thing.
    """
    with store.write() as connection:
        item = find(store, scope, target)
        asked = new_id("f")
        plan: dict[str, Any] = {
            "item": {**asdict(item), "messages": list(item.messages), "items": list(item.items)},
            "counts": counted(store, item),
            "taught": bool(_units(connection, item)),
            "parts": textindex.parts_of(connection, item.messages),
            "since": _since(connection, item),
            "steps": {},
        }
        for unit in _units(connection, item):
            units.refuse(store, unit, TO_BE_FORGOTTEN)
        _switch_off(connection, item)
        tainted, moved = make_clean(store, item)
        plan["tainted"] = tainted
        plan["moved"] = [_moved(each) for each in moved]
        lost = units.queue_lost(store) if moved and scope not in (Scope.ALL, Scope.ADAPTER) else []
        plan["lost"] = len(lost)
        if scope is Scope.ADAPTER:
            _forget_its_lessons(store, str(target))
        decisions.append(
            store,
            "forgetting",
            {"request": asked, "scope": scope, "target": target, "tainted": tainted},
            {"serving": {each.base_hash: each.after.id if each.after else None for each in moved}},
        )
        connection.execute(
            "INSERT INTO forgettings (id, scope, target, state, created, updated, [plan]) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (asked, scope, target, ForgetState.REQUESTED, now(), now(), json.dumps(plan)),
        )
    return get(store, asked)


def carry_over(live: Store, copy: Store) -> None:
    """Ask a copy that is about to take a home's place to forget what that home has forgotten, and list its backups.

    Not where everything was forgotten: who puts a backup back after that wants it back.
    """
    known = {row["id"] for row in copy.conn.execute("SELECT id FROM forgettings WHERE state = 'purged'")}
    for row in live.conn.execute("SELECT path, created FROM backups").fetchall():
        with copy.write() as connection:
            connection.execute("INSERT OR REPLACE INTO backups VALUES (?, ?)", (row["path"], row["created"]))
    for each in reversed(list_(live, -1)):
        # Each restore asks again for what it brings back, so one thing may have several receipts.
        again = (each.scope, each.target) in [(asked.scope, asked.target) for asked in open_(copy)]
        if each.id in known or each.scope is Scope.ALL or again:
            continue
        wanted = json.dumps([*each.plan["item"]["messages"], each.target])
        there = copy.conn.execute(
            f"SELECT 1 FROM {_TABLES[each.scope]} WHERE id IN (SELECT value FROM json_each(?)) LIMIT 1",
            (wanted,),
        ).fetchone()
        if there is not None:
            with suppress(NotFound):
                request(copy, each.scope, each.target)


def make_clean(store: Store, item: Item) -> tuple[list[str], list[Moved]]:
    """Taint what saw the item and move serving away from it."""
    with store.write():
        tainted = seen_by(store, item)
        moved = adapters.taint(store, tainted, SAW_IT if item.scope is not Scope.ADAPTER else TO_BE_FORGOTTEN)
    return tainted, moved


def get(store: Store, asked: str) -> Forgetting:
    """One request by its id. Raises NotFound."""
    row = store.conn.execute("SELECT * FROM forgettings WHERE id = ?", (asked,)).fetchone()
    if row is None:
        raise NotFound(f"no request to forget has the id {asked}")
    return _forgetting(row)


def list_(store: Store, limit: int = 50) -> list[Forgetting]:
    """The requests, newest first."""
    rows = store.conn.execute("SELECT * FROM forgettings ORDER BY created DESC LIMIT ?", (limit,))
    return [_forgetting(row) for row in rows]


def open_(store: Store) -> list[Forgetting]:
    """The requests that are not carried out to their end, oldest first."""
    rows = store.conn.execute(
        "SELECT * FROM forgettings WHERE state != ? ORDER BY created", (ForgetState.PURGED,)
    )
    return [_forgetting(row) for row in rows]


def latest(store: Store) -> str | None:
    """When a request to forget last moved, as `ids.now` writes it: what was computed before may hold what is gone."""
    moment = store.conn.execute("SELECT max(updated) FROM forgettings").fetchone()[0]
    return None if moment is None else str(moment)


def last_round(store: Store, base_hash: str) -> int | None:
    """The version whose lesson is to be taught again because of an open request; None where there is none."""
    versions = [
        moved["before_version"]
        for each in open_(store)
        for moved in each.plan["moved"]
        if moved["base"] == base_hash and each.plan["lost"]
    ]
    return max(versions, default=None)


def note(store: Store, asked: str, **changes: Any) -> Forgetting:
    """Write down how far a request got: any of ``state``, ``plan``, ``run``, ``receipt``."""
    for name in ("plan", "receipt"):
        if name in changes:
            changes[name] = json.dumps(changes[name])
    with store.write() as connection:
        columns = ", ".join(f"[{name}] = ?" for name in changes)
        connection.execute(
            f"UPDATE forgettings SET {columns}, updated = ? WHERE id = ?", (*changes.values(), now(), asked)
        )
    return get(store, asked)


_TABLES = {
    Scope.MESSAGE: "messages",
    Scope.CONVERSATION: "conversations",
    Scope.ADAPTER: "adapters",
    Scope.MEMORY: "items",
}


def _versions(store: Store, target: str) -> tuple[str, ...]:
    """All that was ever said of the topic of a memory or rule. Raises NotFound."""
    found = items.get(store, target)
    if found.state is ItemState.FORGOTTEN:
        raise NotFound(f"{target} was forgotten already")
    return tuple(each.id for each in items.versions(store, found.kind, found.topic))


def _switch_off(connection: sqlite3.Connection, item: Item) -> None:
    """Nothing that is to be forgotten reaches a reply from now on."""
    ids = json.dumps([*item.items, *erasure.items_from(connection, item.messages)])
    everything = item.scope is Scope.ALL
    connection.execute(
        "UPDATE items SET state = 'off' WHERE state IN ('active', 'proposed') "
        "AND (? OR id IN (SELECT value FROM json_each(?)))",
        (everything, ids),
    )


def _reacted_to(store: Store, message: conversations.Message) -> str | None:
    """The reply before a message, where a rule or the judge took the message for a sign of discontent with it."""
    if message.role is not Role.USER or message.parent is None:
        return None
    first = store.conn.execute(
        "SELECT id FROM messages WHERE parent = ? AND role = ? ORDER BY rowid LIMIT 1",
        (message.parent, Role.USER),
    ).fetchone()
    found = store.conn.execute(
        "SELECT 1 FROM signals WHERE message = ? AND kind = ? AND source != ?",
        (message.parent, SignalKind.REQUERY, SignalSource.USER),
    ).fetchone()
    return message.parent if found is not None and first["id"] == message.id else None


def _lesser_than(store: Store, message: conversations.Message) -> tuple[str, ...]:
    """The replies beside a reply whose lesson is, or was, that another answer than they was kept: maybe this one."""
    if message.role is not Role.ASSISTANT or message.parent is None:
        return ()
    rows = store.conn.execute(
        "SELECT messages.id FROM messages JOIN units ON units.message = messages.id AND units.kind = ? "
        "WHERE parent = ? AND messages.id != ?",
        (UnitKind.LESSER, message.parent, message.id),
    )
    return tuple(row["id"] for row in rows)


def _units(connection: sqlite3.Connection, item: Item) -> list[str]:
    """The learning units that hold any of it."""
    if item.scope is Scope.ALL:
        return [row["id"] for row in connection.execute("SELECT id FROM units")]
    rows = connection.execute(
        "SELECT id FROM units WHERE message IN (SELECT value FROM json_each(?)) OR (message = ? AND kind = ?)",
        (json.dumps([*item.messages, *item.lesser]), item.reply, UnitKind.REQUERY),
    )
    return [row["id"] for row in rows]


def _forget_its_lessons(store: Store, adapter: str) -> None:
    """What only a forgotten adapter had learned is not learned again: the owner would get it back unasked."""
    version = adapters.get(store, adapter).version
    for unit in units.queue_lost(store):
        if adapter in [use.adapter for use in units.uses(store, unit)]:
            units.refuse(store, unit, f"its adapter v{version} was forgotten")


def _since(connection: sqlite3.Connection, item: Item) -> str:
    """When the first of it was said or made: what was backed up before does not hold it.

    A backup has the time at which its making began, and it takes what comes in the meantime along.
    """
    if item.scope is Scope.ADAPTER:
        query, values = "SELECT created FROM adapters WHERE id = ?", str(item.target)
    else:
        query = "SELECT min(created) FROM messages WHERE id IN (SELECT value FROM json_each(?))"
        values = json.dumps(item.messages)
    row = connection.execute(query, (values,)).fetchone()
    if row is None or row[0] is None:
        return ""
    return (datetime.fromisoformat(row[0]) - _MAKING).astimezone(UTC).isoformat(timespec="microseconds")


def _serves(store: Store, base_hash: str) -> str | None:
    serving: Adapter | None = adapters.active(store, base_hash).adapter
    return serving.id if serving else None


def _moved(moved: Moved) -> dict[str, Any]:
    return {
        "base": moved.base_hash,
        "before": moved.before.id,
        "before_version": moved.before.version,
        "after": moved.after.id if moved.after else None,
        "after_version": moved.after.version if moved.after else None,
    }


def _ids(store: Store, query: str, value: str) -> tuple[str, ...]:
    rows: Sequence[sqlite3.Row] = store.conn.execute(query, (value,)).fetchall()
    return tuple(row["id"] for row in rows)


def _forgetting(row: sqlite3.Row) -> Forgetting:
    return Forgetting(
        row["id"],
        Scope(row["scope"]),
        row["target"],
        ForgetState(row["state"]),
        row["created"],
        row["updated"],
        json.loads(row["plan"]),
        row["run"],
        json.loads(row["receipt"]) if row["receipt"] else None,
    )
