"""The log of what Mynah decided by itself: append-only, each record hashed over the one before it.

A record holds the inputs a decision was made from and the choice, as canonical JSON, so that it can be made
again from the record alone; changing a past record breaks every hash after it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from store.db import Store
from store.erasure import unguarded
from store.errors import NotFound
from store.ids import new_id, now
from store.quotes import Quotes

WATCH = "watch"
"""The kind of a record that a version was taken back because its replies were objected to."""
GENESIS = "0" * 64


@dataclass(frozen=True)
class Decision:
    """One decision as stored."""

    id: str
    created: str
    kind: str
    inputs: dict[str, Any]
    choice: dict[str, Any]
    previous: str
    hash: str


def append(store: Store, kind: str, inputs: dict[str, Any], choice: dict[str, Any]) -> str:
    """Record a decision and return its id."""
    with store.write() as connection:
        last = connection.execute("SELECT hash FROM decisions ORDER BY seq DESC LIMIT 1").fetchone()
        previous = last["hash"] if last else GENESIS
        decision, created = new_id("d"), now()
        connection.execute(
            "INSERT INTO decisions (id, created, kind, inputs, choice, previous, hash) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                decision,
                created,
                kind,
                _canonical(inputs),
                _canonical(choice),
                previous,
                _digest(decision, created, kind, _canonical(inputs), _canonical(choice), previous),
            ),
        )
    return decision


def list_(store: Store, limit: int = 100, without: Sequence[str] = ()) -> list[Decision]:
    """The newest decisions, newest first, but for some kinds."""
    marks = ", ".join("?" * len(without))
    rows = store.conn.execute(
        f"SELECT * FROM decisions WHERE kind NOT IN ({marks}) ORDER BY seq DESC LIMIT ?", (*without, limit)
    )
    return [_decision(row) for row in rows]


def of_kinds(store: Store, kinds: Sequence[str]) -> list[Decision]:
    """Every decision of some kinds, oldest first."""
    marks = ", ".join("?" * len(kinds))
    rows = store.conn.execute(f"SELECT * FROM decisions WHERE kind IN ({marks}) ORDER BY seq", list(kinds))
    return [_decision(row) for row in rows]


def get(store: Store, decision: str) -> Decision:
    """One decision by its id."""
    row = store.conn.execute("SELECT * FROM decisions WHERE id = ?", (decision,)).fetchone()
    if row is None:
        raise NotFound(f"no decision has the id {decision}")
    return _decision(row)


def broken_at(store: Store) -> str | None:
    """The id of the first record whose hash does not fit, or None when the chain is whole."""
    previous = GENESIS
    for row in store.conn.execute("SELECT * FROM decisions ORDER BY seq"):
        expected = _digest(row["id"], row["created"], row["kind"], row["inputs"], row["choice"], previous)
        if row["previous"] != previous or row["hash"] != expected:
            return str(row["id"])
        previous = row["hash"]
    return None


def forget(store: Store, quotes: Quotes) -> int:
    """Take quotations of forgotten texts out of the records, and hash what follows anew; returns how many held one.

    The chain shows that nothing was changed behind the owner's back; this is at the owner's word, and a record of
    its own says that it was done.
    """
    with store.write() as connection:
        rows = connection.execute("SELECT * FROM decisions ORDER BY seq").fetchall()
        cleaned = {
            row["seq"]: (quotes.without_json(row["inputs"]), quotes.without_json(row["choice"]))
            for row in rows
        }
        changed = [row["seq"] for row in rows if cleaned[row["seq"]] != (row["inputs"], row["choice"])]
        if not changed:
            return 0
        previous = next((row["previous"] for row in rows if row["seq"] == changed[0]), GENESIS)
        with unguarded(connection, "decisions"):
            for row in rows:
                if row["seq"] < changed[0]:
                    continue
                inputs, choice = cleaned[row["seq"]]
                digest = _digest(row["id"], row["created"], row["kind"], inputs, choice, previous)
                connection.execute(
                    "UPDATE decisions SET inputs = ?, choice = ?, previous = ?, hash = ? WHERE seq = ?",
                    (inputs, choice, previous, digest, row["seq"]),
                )
                previous = digest
        append(store, "forgetting", {"records": len(changed)}, {"action": "hash the chain anew"})
    return len(changed)


def _canonical(value: dict[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def _digest(*parts: str) -> str:
    return hashlib.sha256("\x00".join(parts).encode()).hexdigest()


def _decision(row: Any) -> Decision:
    return Decision(
        row["id"],
        row["created"],
        row["kind"],
        json.loads(row["inputs"]),
        json.loads(row["choice"]),
        row["previous"],
        row["hash"],
    )
