"""The steps of a conversation as they leave in an export and come back in an import.

A message's own step is made again from the message; what would be lost is how a reply was computed, and the tool calls,
memory accesses and guards' verdicts, which have no other row. Those go along with the message that they belong to.
Their texts are redacted like any other, and where tokens stay behind nothing of a reply can be replayed.
"""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from store import events
from store.db import Store
from store.events import HELD_HERE, Content
from store.exchange.drafts import clean, moment
from store.types import ErrorClass, EventKind, ReplayClass

_PARTS = ("observation", "harness", "action", "outcome", "metadata")
_ID = re.compile("e[0-9a-z]{10}")
_MODEL = EventKind.MODEL_CALL


def of_conversation(store: Store, conversation: str) -> dict[str, list[sqlite3.Row]]:
    """The events that an export carries, by message."""
    found: dict[str, list[sqlite3.Row]] = {}
    for row in store.conn.execute(
        "SELECT * FROM events WHERE conversation = ? AND message IS NOT NULL ORDER BY seq", (conversation,)
    ):
        if row["kind"] == _MODEL or (row["kind"] in HELD_HERE and any(row[part] != "{}" for part in _PARTS)):
            found.setdefault(row["message"], []).append(row)
    return found


def texts(found: Mapping[str, Sequence[sqlite3.Row]]) -> Iterator[str]:
    """All texts in them."""
    for rows in found.values():
        for row in rows:
            for part in _PARTS if row["kind"] != _MODEL else ():
                yield from _strings(json.loads(row[part]))


def replay_of(rows: Sequence[sqlite3.Row], *, hidden: bool) -> dict[str, Any] | None:
    """How a recorded reply can be replayed; None where nothing was recorded of it."""
    row = next((row for row in rows if row["kind"] == _MODEL), None)
    if row is None:
        return None
    klass = ReplayClass.NOT_REPLAYABLE if hidden else row["replay"]
    return {"class": klass, "machine": json.loads(row["metadata"])}


def leaving(rows: Sequence[sqlite3.Row], redact: Callable[[str], str]) -> tuple[dict[str, Any], ...]:
    """The other steps of a message, fit to leave."""
    return tuple(_leaving(row, redact) for row in rows if row["kind"] != _MODEL)


def _leaving(row: sqlite3.Row, redact: Callable[[str], str]) -> dict[str, Any]:
    step = {name: row[name] for name in ("id", "kind", "created", "replay", "error_class") if row[name]}
    return step | {part: _mapped(json.loads(row[part]), redact) for part in _PARTS if row[part] != "{}"}


def checked(mark: Mapping[str, Any]) -> tuple[dict[str, Any], ...]:
    """The steps of a message in an export of ours, each value checked for its kind. Raises ValueError or KeyError."""
    read: list[dict[str, Any]] = []
    replay = mark.get("replay")
    if replay is not None:
        machine = _mapping(replay["machine"])
        read.append({"id": None, "kind": _MODEL, "replay": ReplayClass(replay["class"]), "metadata": machine})
    for step in mark.get("steps") or ():
        kind, created = EventKind(step["kind"]), moment(step["created"])
        if kind not in HELD_HERE or not _ID.fullmatch(step["id"]) or created is None:
            raise ValueError("step")
        parts = {part: _mapping(step.get(part, {})) for part in _PARTS}
        error = ErrorClass(step["error_class"]) if step.get("error_class") else None
        fixed = {"id": step["id"], "kind": kind, "created": created, "replay": ReplayClass(step["replay"])}
        read.append({**parts, **fixed, "error_class": error})
    return tuple(read)


def store_steps(
    connection: sqlite3.Connection,
    conversation: str,
    message: str,
    finished: str,
    read: Sequence[dict[str, Any]],
) -> None:
    """Write the steps that came in with a message that is new."""
    for step in read:
        known = connection.execute("SELECT 1 FROM events WHERE id = ?", (step["id"],)).fetchone()
        if known is None:
            content = Content(**{part: step.get(part, {}) for part in _PARTS})
            events.insert(
                connection,
                conversation,
                message,
                step["kind"],
                step.get("created") or finished,
                step["replay"],
                content,
                step.get("error_class"),
                identity=step["id"],
            )


def _mapping(value: object) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("a step's part is no object")
    json.dumps(value, allow_nan=False)
    cleaned = _mapped(value, clean)
    assert isinstance(cleaned, dict)
    return cleaned


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for inner in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _strings(inner)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(each, change) for each in value]
    if isinstance(value, dict):
        return {name: _mapped(each, change) for name, each in value.items()}
    return value
