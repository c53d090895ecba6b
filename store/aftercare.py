"""What is looked at after a version went live: whether it is objected to more, and how far it has come from the base.

The gate sees a version for seconds, the owner for days. A version that the gate let through and the owner keeps
correcting is taken back by itself, because nobody should have to find out first that there is a key for that; it is
said once, and the owner may let it answer again. A drift that has grown over several versions, so that the next one
would leave what the gate allows, is no fault of any of them: learning stops and the owner is asked. Both are decisions
with their inputs on record. Only what the gate made live is watched: what the owner chose stays, and so does everything
while the owner lets nothing be changed.

The controller (`app.control`) watches the same version for something else: whether what it was made for went wrong more
often. A reply counts against one suspect only, or one fault would undo two changes. Replies with an item in force that
came after the version and has not been shown to help count against that item, in its own trial, and not here; those of
a version that was taken back count against nothing else any more.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from store import adapters, changes, conversations, decisions, sequential, settings, steering, units
from store.adapters import Adapter
from store.changes import Stage
from store.db import Store
from store.ids import now
from store.sequential import Finding, Watched
from store.types import Actor, MessageStatus, Role, UnitKind, UnitState

WINDOW = 600
"""Newest messages that are looked at: a version that has answered longer than that has been judged already."""
SILENCE_SECONDS = 600.0
"""A reply that nobody said anything about for so long counts as accepted; before, the owner may still be reading."""
_OBJECTS = (UnitKind.CORRECTION, UnitKind.THUMB_DOWN, UnitKind.REQUERY)
_DRIFT = "reference_kl"


def look(store: Store) -> list[str]:
    """Watch what the gate made live, for each base; returns what was done, in words. Cheap where nothing happened."""
    if steering.frozen(store):
        return []
    bases = store.conn.execute("SELECT DISTINCT base_hash FROM activations").fetchall()
    done = []
    for base in bases:
        done += [said for said in (_rise(store, base["base_hash"]), _drift(store, base["base_hash"])) if said]
    return done


def watched(store: Store, base_hash: str) -> Watched | None:
    """The test of what serves now; None where nothing is to be watched: the base, a pin, a choice of the owner's."""
    trial = adapters.on_trial(store, base_hash)
    if trial is None:
        return None
    adapter, live = trial
    replies = _replies(store, base_hash)
    suspects = _suspects(store, live)
    since = [
        each.objected
        for each in replies
        if each.adapter == adapter.id and each.created >= live and not suspects & each.items
    ]
    before = [each.objected for each in replies if each.created < live]
    return sequential.watch((sum(before), len(before)), since)


def _suspects(store: Store, live: str) -> set[str]:
    """The items that came after a version went live by a rule, and have not been shown to help."""
    return {
        change.item
        for change in changes.changes(store)
        if change.item is not None
        and change.applied is not None
        and change.applied > live
        and any(change.stage(each) is not Stage.HELPED for each in change.signatures)
    }


def _rise(store: Store, base_hash: str) -> str | None:
    found = watched(store, base_hash)
    if found is None or found.finding is not Finding.RISEN:
        return None
    with store.write():
        # Again, with nobody else writing: the owner may have gone back, or taken a rating back, a moment ago.
        found = watched(store, base_hash)
        serving = adapters.active(store, base_hash).adapter
        if found is None or serving is None or found.finding is not Finding.RISEN:
            return None
        share = found.objections / found.replies
        reason = (
            f"{adapters.TOOK_BACK} v{serving.version}: you objected to {share:.0%} of its replies, "
            f"{found.usual:.0%} before"
        )
        after = adapters.fall_back(store, serving, reason)
        decisions.append(
            store,
            decisions.WATCH,
            {"adapter": serving.id, "test": found.as_dict()},
            {"action": "roll back", "to": None if after is None else after.id, "reason": reason},
        )
    return reason


def _drift(store: Store, base_hash: str) -> str | None:
    live = _made_live(store, base_hash)
    checks = [check for adapter in live if (check := _check(adapter)) is not None]
    if not checks or settings.get(store, settings.LEARNING_PAUSED):
        return None
    values = [value for value, _ in checks]
    limit = checks[-1][1]
    if not sequential.next_beyond(values, limit):
        return None
    newest = live[-1]
    asked = store.conn.execute(
        "SELECT 1 FROM decisions WHERE kind = 'drift' AND json_extract(inputs, '$.adapter') = ?", (newest.id,)
    ).fetchone()
    if asked is not None:
        return None
    question = (
        f"the drift on neutral text has grown with each of the last versions, to {values[-1]:.2f} of the {limit:g} "
        f"allowed in v{newest.version}: `mynah learn resume` goes on all the same, `mynah adapters use` goes back"
    )
    with store.write():
        decisions.append(
            store,
            "drift",
            {"adapter": newest.id, "drift": [round(value, 4) for value in values[-4:]], "limit": limit},
            {"action": "stop learning and ask", "reason": question},
        )
        settings.put(store, settings.LEARNING_PAUSED, True)
        settings.put(store, settings.LEARNING_ASKS, question)
    return question


@dataclass(frozen=True)
class _Reply:
    created: str
    adapter: str | None
    items: frozenset[str]
    objected: bool


def _replies(store: Store, base_hash: str) -> list[_Reply]:
    """The newest answered replies, oldest first, without the attempts that a guard refused and nobody saw."""
    kinds = ", ".join("?" * len(_OBJECTS))
    rows = store.conn.execute(
        f"""
        SELECT latest.id, {conversations.REPLACED} AS replaced, latest.created, latest.adapter, latest.context_items,
          units.id IS NOT NULL AND units.kind IN ({kinds}) AS objected
        FROM (SELECT rowid AS place, * FROM messages ORDER BY rowid DESC LIMIT ?) AS latest
        LEFT JOIN units ON units.message = latest.id
          AND NOT (units.state = ? AND coalesce(units.reason, '') IN (?, ?))
        WHERE latest.role = ? AND latest.base_hash = ? AND latest.status IN (?, ?)
          AND (units.id IS NOT NULL OR latest.created <= ? OR EXISTS (SELECT 1 FROM messages WHERE parent = latest.id))
        ORDER BY latest.place
        """,
        (
            *_OBJECTS,
            WINDOW,
            UnitState.REFUSED,
            units.TAKEN_BACK,
            units.OVERTURNED,
            Role.ASSISTANT,
            base_hash,
            MessageStatus.COMPLETE,
            MessageStatus.STOPPED,
            now(-SILENCE_SECONDS),
        ),
    ).fetchall()
    unseen = {row["replaced"] for row in rows}
    return [
        _Reply(
            row["created"],
            row["adapter"],
            frozenset(json.loads(row["context_items"] or "[]")),
            bool(row["objected"]),
        )
        for row in rows
        if row["id"] not in unseen
    ]


def _made_live(store: Store, base_hash: str) -> list[Adapter]:
    """What the gate made live, oldest first, up to what serves now."""
    serving = adapters.active(store, base_hash).adapter
    if serving is None:
        return []
    rows = store.conn.execute(
        "SELECT adapter FROM activations JOIN adapters ON adapters.id = adapter "
        "WHERE activations.base_hash = ? AND actor = ? AND version <= ? GROUP BY adapter ORDER BY version DESC LIMIT 4",
        (base_hash, Actor.GATE, serving.version),
    ).fetchall()
    return [adapters.get(store, row["adapter"]) for row in reversed(rows)]


def _check(adapter: Adapter) -> tuple[float, float] | None:
    """An adapter's drift on neutral text and the limit it had, from its gate report."""
    for check in adapter.gate.get("checks", []):
        if check.get("name") == _DRIFT:
            return float(check["value"]), float(check["limit"])
    return None
