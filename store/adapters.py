"""Adapters and their lineage. Files are immutable and named by content; what is served is the last row of a log.

`adapters/<id>/` is made whole by renaming a directory that was written and synced elsewhere, and only then does
a row name it, so a half-written adapter can never be live. Which adapter serves is decided by `activations`, an
append-only log: going live, rolling back and choosing by hand are each one small insert, and the host reads the
newest row at the next turn border. Adapters are never merged into each other.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from store import decisions, pins, units
from store.db import Store, explained
from store.errors import AdapterFileError, NotFound, UsageError
from store.files import force_to_disk
from store.ids import now
from store.types import Actor, AdapterState, UnitState, UnitUse

GGUF_NAME = "adapter.gguf"
MANIFEST_NAME = "manifest.json"
TOOK_BACK = "took back"
ID_LENGTH = 12


@dataclass(frozen=True)
class Adapter:
    """One adapter's row. ``version`` counts up per base model and is what people see (v1, v2 …)."""

    id: str
    version: int
    base_hash: str
    parent: str | None
    state: AdapterState
    created: str
    run: str | None
    manifest: dict[str, Any]
    gate: dict[str, Any]
    reason: str | None
    units: list[str]


@dataclass(frozen=True)
class Serving:
    """What the host should serve for a base: an adapter with its scale, or the base alone."""

    adapter: Adapter | None
    scale: float
    activation: int | None
    why: str | None = None
    """Why it serves, where neither the gate nor the owner decided that."""


def active(store: Store, base_hash: str) -> Serving:
    """What serves now for this base. No activation yet means the base alone."""
    row = store.conn.execute(
        "SELECT * FROM activations WHERE base_hash = ? ORDER BY id DESC LIMIT 1", (base_hash,)
    ).fetchone()
    why = str(row["reason"]) if row is not None and row["actor"] == Actor.WATCH else None
    if row is None or row["adapter"] is None:
        return Serving(None, 1.0, None if row is None else row["id"], why)
    return Serving(get(store, row["adapter"]), row["scale"], row["id"], why)


def on_trial(store: Store, base_hash: str) -> tuple[Adapter, str] | None:
    """What the gate made live and since when, which a rule may take back.

    None for the base, for a pin, and for what the owner or a rule chose: that stays.
    """
    serving = active(store, base_hash)
    if serving.adapter is None or pins.of(store, base_hash) is not None:
        return None
    row = store.conn.execute(
        "SELECT created, actor FROM activations WHERE id = ?", (serving.activation,)
    ).fetchone()
    return (serving.adapter, str(row["created"])) if row["actor"] == Actor.GATE else None


@dataclass(frozen=True)
class Left:
    """Who left an adapter for an older one or for the base, and why."""

    actor: Actor
    reason: str


def taken_back(store: Store) -> dict[str, Left]:
    """The adapters that an older one or the base was preferred to, and that do not serve again."""
    left: dict[str, Left] = {}
    serving: dict[str, tuple[str, int] | None] = {}
    for row in store.conn.execute(
        "SELECT activations.base_hash, adapter, version, actor, activations.reason FROM activations "
        "LEFT JOIN adapters ON adapters.id = adapter ORDER BY activations.id"
    ):
        before = serving.get(row["base_hash"])
        after = None if row["adapter"] is None else (row["adapter"], row["version"])
        if before is not None and (after is None or after[1] < before[1]):
            left[before[0]] = Left(Actor(row["actor"]), row["reason"])
        if after is not None:
            left.pop(after[0], None)
        serving[row["base_hash"]] = after
    return left


def files(store: Store, adapter: str) -> Path:
    """The directory that holds an adapter's files."""
    return store.home.adapters / adapter


def install(store: Store, made: Path) -> str:
    """Move a directory with a finished adapter into place, whole or not at all; returns the adapter's id.

    ``made`` must hold ``adapter.gguf`` and lie under the same data directory. Nothing serves it yet.
    """
    with explained(store.home):
        gguf = made / GGUF_NAME
        with gguf.open("rb") as file:
            adapter = hashlib.file_digest(file, "sha256").hexdigest()[:ID_LENGTH]
        for file_path in sorted(made.iterdir()):
            force_to_disk(file_path)
        force_to_disk(made)
        target = files(store, adapter)
        if target.exists():
            shutil.rmtree(made)
        else:
            made.rename(target)
            force_to_disk(target.parent)
    return adapter


def add_candidate(
    store: Store,
    adapter: str,
    *,
    base_hash: str,
    run: str,
    manifest: dict[str, Any],
    uses: Sequence[tuple[units.Unit, UnitUse]],
) -> Adapter:
    """Enter an installed adapter as a candidate, with the units its run saw. Entering it twice changes nothing.

    The same lesson makes the same file, to the bit. If the one that was here before was deleted or forgotten, it
    begins its life again.
    """
    with store.write() as connection:
        known = connection.execute("SELECT state FROM adapters WHERE id = ?", (adapter,)).fetchone()
        if known is not None and known["state"] in (AdapterState.DELETED, AdapterState.TAINTED):
            connection.execute(
                "UPDATE adapters SET state = ?, created = ?, run = ?, manifest = ?, gate = '{}', reason = NULL "
                "WHERE id = ?",
                (AdapterState.CANDIDATE, now(), run, json.dumps(manifest, sort_keys=True), adapter),
            )
            connection.execute("DELETE FROM unit_uses WHERE adapter = ?", (adapter,))
            units.record_uses(store, adapter, uses)
        elif known is None:
            version = connection.execute(
                "SELECT coalesce(max(version), 0) + 1 FROM adapters WHERE base_hash = ?", (base_hash,)
            ).fetchone()[0]
            serving = active(store, base_hash)
            connection.execute(
                "INSERT INTO adapters (id, version, base_hash, parent, state, created, run, manifest, gate) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, '{}')",
                (
                    adapter,
                    version,
                    base_hash,
                    serving.adapter.id if serving.adapter else None,
                    AdapterState.CANDIDATE,
                    now(),
                    run,
                    json.dumps(manifest, sort_keys=True),
                ),
            )
            units.record_uses(store, adapter, uses)
    return get(store, adapter)


def publish(store: Store, adapter: str, gate: dict[str, Any]) -> bool:
    """Make a candidate that passed the gate live, unless the owner pinned another; says whether it went live."""
    with store.write() as connection:
        candidate = get(store, adapter)
        _write_gate(connection, adapter, gate)
        pinned = pins.of(store, candidate.base_hash)
        if pinned is not None:
            decisions.append(
                store, "promotion", {"adapter": adapter, "gate": gate, "pinned": pinned}, {"action": "keep"}
            )
            return False
        decisions.append(
            store,
            "promotion",
            {"adapter": adapter, "gate": gate, "units": candidate.units},
            {"action": "promote", "rollback_to": candidate.parent},
        )
        _activate(connection, candidate, 1.0, Actor.GATE, "passed the gate")
        units.settle(store, adapter)
    return True


def reject(store: Store, adapter: str, gate: dict[str, Any], reason: str) -> None:
    """Close a candidate that must not serve, with the reason."""
    with store.write() as connection:
        _write_gate(connection, adapter, gate)
        connection.execute(
            "UPDATE adapters SET state = ?, reason = ? WHERE id = ? AND state != ?",
            (AdapterState.REJECTED, reason, adapter, AdapterState.TAINTED),
        )
        decisions.append(
            store, "promotion", {"adapter": adapter, "gate": gate}, {"action": "reject", "reason": reason}
        )


def withdraw(store: Store, adapter: str, reason: str) -> Serving:
    """The host could not load an adapter: mark it and fall back to its parent; returns what serves instead."""
    with store.write() as connection:
        broken = get(store, adapter)
        connection.execute(
            "UPDATE adapters SET state = ?, reason = ? WHERE id = ?", (AdapterState.REJECTED, reason, adapter)
        )
        decisions.append(store, "withdrawal", {"adapter": adapter, "reason": reason}, {"action": "fall back"})
        # A pin on what cannot serve would keep every later version from going live.
        pins.drop(store, [adapter])
        serving = active(store, broken.base_hash)
        if serving.adapter is None or serving.adapter.id != adapter:
            return serving
        _activate(connection, _usable_parent(store, broken), 1.0, Actor.HOST, reason, broken.base_hash)
        return active(store, broken.base_hash)


def fall_back(store: Store, taken_back: Adapter, reason: str) -> Adapter | None:
    """Let the version before answer again, since the owner objects to this one; returns it, None for the base.

    The one that is taken back stays as it is: the owner may choose it.
    """
    with store.write() as connection:
        before = _usable_parent(store, taken_back)
        _activate(connection, before, 1.0, Actor.WATCH, reason, taken_back.base_hash)
    return before


def use(store: Store, base_hash: str, adapter: str | None, scale: float = 1.0) -> Serving:
    """Let the owner choose what serves; None is the base alone.

    Raises:
        UsageError: the adapter is of another base, was refused, or the scale is outside 0 to 1.
        AdapterFileError: its files are gone.
    """
    if not 0.0 <= scale <= 1.0:
        raise UsageError(f"an adapter's scale is between 0 and 1, not {scale:g}")
    with store.write() as connection:
        chosen = get(store, adapter) if adapter is not None else None
        if chosen is not None:
            if chosen.base_hash != base_hash:
                raise UsageError(
                    f"adapter {chosen.id} was made for another model: switch to that model first"
                )
            if chosen.state in (AdapterState.REJECTED, AdapterState.TAINTED):
                why = chosen.reason or "it did not pass the gate"
                raise UsageError(f"adapter {chosen.id} is {chosen.state} and cannot serve: {why}")
            if not (files(store, chosen.id) / GGUF_NAME).exists():
                raise AdapterFileError(f"the files of adapter {chosen.id} are gone: choose another one")
        _activate(connection, chosen, scale, Actor.OWNER, "chosen by the owner", base_hash)
        _unpin_left(store, base_hash, chosen)
    return active(store, base_hash)


def rollback(store: Store, base_hash: str) -> tuple[Adapter, Serving]:
    """Go back to what served before the active adapter; returns the adapter taken back and what serves now.

    Raises:
        UsageError: the base model serves already.
    """
    with store.write() as connection:
        serving = active(store, base_hash)
        if serving.adapter is None:
            raise UsageError("the base model serves already: there is nothing to roll back")
        before = _usable_parent(store, serving.adapter)
        reason = f"rolled back from v{serving.adapter.version}"
        _activate(connection, before, 1.0, Actor.OWNER, reason, base_hash)
        _unpin_left(store, base_hash, before)
    return serving.adapter, active(store, base_hash)


@dataclass(frozen=True)
class Moved:
    """What serving was moved from and to for one base; ``after`` None is the base alone."""

    base_hash: str
    before: Adapter
    after: Adapter | None


def taint(store: Store, tainted: Sequence[str], reason: str) -> list[Moved]:
    """Take adapters out of service for good: serving goes to the newest older one that is sound, or to the base."""
    moved = []
    with store.write() as connection:
        marks = ", ".join("?" * len(tainted))
        connection.execute(
            f"UPDATE adapters SET state = ?, reason = ? WHERE id IN ({marks})",
            (AdapterState.TAINTED, reason, *tainted),
        )
        pins.drop(store, tainted)
        bases = connection.execute(
            f"SELECT DISTINCT base_hash FROM adapters WHERE id IN ({marks})", list(tainted)
        ).fetchall()
        for base in bases:
            before = active(store, base["base_hash"]).adapter
            if before is None or before.id not in tainted:
                continue
            after = newest_sound(store, before.base_hash, tainted)
            _activate(connection, after, 1.0, Actor.OWNER, reason, before.base_hash)
            moved.append(Moved(before.base_hash, before, after))
    return moved


def newest_sound(store: Store, base_hash: str, without: Sequence[str]) -> Adapter | None:
    """The newest version before the one that serves that has served, still can and is not among ``without``.

    Not a newer one: the owner had left that for the one that serves.
    """
    serving = active(store, base_hash).adapter
    for other in sorted(list_(store, base_hash), key=lambda each: -each.version):
        if serving is None or other.version >= serving.version or other.id in without:
            continue
        served = other.state in (AdapterState.ACTIVE, AdapterState.RETIRED)
        if served and (files(store, other.id) / GGUF_NAME).exists():
            return other
    return None


def delete(store: Store, adapter: str) -> None:
    """Delete an adapter's files. Its row stays, so that lineage and decisions can still be read.

    What only this adapter had learned is not learned again; what waits, because the gate refused it, waits on.

    Raises:
        UsageError: it serves now, or is pinned.
    """
    with store.write() as connection:
        row = get(store, adapter)
        serving = active(store, row.base_hash)
        if serving.adapter is not None and serving.adapter.id == adapter:
            raise UsageError(f"adapter {adapter} serves now: roll back or choose another one first")
        if adapter in pins.every(store):
            raise UsageError(f"adapter {adapter} is pinned: `mynah adapters pin --off` first")
        orphans = connection.execute(
            "SELECT unit FROM unit_uses JOIN units ON units.id = unit WHERE adapter = ? AND state IN (?, ?) "
            "AND unit NOT IN (SELECT unit FROM unit_uses WHERE adapter != ?)",
            (adapter, UnitState.USED, UnitState.HELD_OUT, adapter),
        ).fetchall()
        connection.execute("DELETE FROM unit_uses WHERE adapter = ?", (adapter,))
        for orphan in orphans:
            units.refuse(store, orphan["unit"], f"its adapter v{row.version} was deleted")
        connection.execute(
            "UPDATE adapters SET state = ?, reason = 'deleted by the owner' WHERE id = ?",
            (AdapterState.DELETED, adapter),
        )
        decisions.append(store, "deletion", {"adapter": adapter}, {"action": "delete files"})
    shutil.rmtree(files(store, adapter), ignore_errors=True)


def get(store: Store, adapter: str) -> Adapter:
    """One adapter by its full id."""
    row = store.conn.execute("SELECT * FROM adapters WHERE id = ?", (adapter,)).fetchone()
    if row is None:
        raise NotFound(f"no adapter has the id {adapter}")
    return _adapter(store, row)


def newest_activation(store: Store) -> int:
    """Where the log of what serves ends; a cheap reason to look again."""
    return int(store.conn.execute("SELECT coalesce(max(id), 0) FROM activations").fetchone()[0])


def is_gone(store: Store, adapter: str) -> bool:
    """Whether an adapter can never serve again, because its lessons were forgotten or its file is broken."""
    row = store.conn.execute("SELECT state FROM adapters WHERE id = ?", (adapter,)).fetchone()
    return row is None or row["state"] in (AdapterState.TAINTED, AdapterState.REJECTED)


def versions(store: Store, wanted: Iterable[str | None]) -> dict[str, int]:
    """The versions of some adapters by their ids, without what each of them learned: the chat asks all the time."""
    found = {}
    for adapter in {each for each in wanted if each is not None}:
        row = store.conn.execute("SELECT version FROM adapters WHERE id = ?", (adapter,)).fetchone()
        if row is not None:
            found[adapter] = int(row["version"])
    return found


def list_(store: Store, base_hash: str | None = None) -> list[Adapter]:
    """All adapters of a base (or of every base), newest first."""
    rows = store.conn.execute(
        "SELECT * FROM adapters WHERE ?1 IS NULL OR base_hash = ?1 ORDER BY created DESC, version DESC",
        (base_hash,),
    ).fetchall()
    return [_adapter(store, row) for row in rows]


def _activate(
    connection: sqlite3.Connection,
    adapter: Adapter | None,
    scale: float,
    actor: Actor,
    reason: str,
    base_hash: str | None = None,
) -> None:
    base = base_hash if adapter is None else adapter.base_hash
    connection.execute(
        "UPDATE adapters SET state = ? WHERE base_hash = ? AND state = ?",
        (AdapterState.RETIRED, base, AdapterState.ACTIVE),
    )
    if adapter is not None:
        # Without the reason of an earlier state: a run that is begun again may make the very file that was given up.
        connection.execute(
            "UPDATE adapters SET state = ?, reason = NULL WHERE id = ?", (AdapterState.ACTIVE, adapter.id)
        )
    connection.execute(
        "INSERT INTO activations (created, base_hash, adapter, scale, actor, reason) VALUES (?, ?, ?, ?, ?, ?)",
        (now(), base, adapter.id if adapter else None, scale, actor, reason),
    )


def _unpin_left(store: Store, base_hash: str, serving: Adapter | None) -> None:
    """A pin on a version the owner has left would silently keep every new one from going live."""
    pinned = pins.of(store, base_hash)
    if pinned is not None and (serving is None or serving.id != pinned):
        pins.unpin(store, base_hash)


def _usable_parent(store: Store, adapter: Adapter) -> Adapter | None:
    """The nearest ancestor that can serve, or None for the base."""
    parent = adapter.parent
    while parent is not None:
        candidate = get(store, parent)
        usable = candidate.state in (AdapterState.ACTIVE, AdapterState.RETIRED)
        if usable and (files(store, candidate.id) / GGUF_NAME).exists():
            return candidate
        parent = candidate.parent
    return None


def _write_gate(connection: sqlite3.Connection, adapter: str, gate: dict[str, Any]) -> None:
    connection.execute(
        "UPDATE adapters SET gate = ? WHERE id = ?", (json.dumps(gate, sort_keys=True), adapter)
    )


def _adapter(store: Store, row: sqlite3.Row) -> Adapter:
    trained = store.conn.execute(
        'SELECT unit FROM unit_uses WHERE adapter = ? AND "use" != ? ORDER BY rowid',
        (row["id"], UnitUse.HELD_OUT),
    )
    return Adapter(
        row["id"],
        row["version"],
        row["base_hash"],
        row["parent"],
        AdapterState(row["state"]),
        row["created"],
        row["run"],
        json.loads(row["manifest"]),
        json.loads(row["gate"]),
        row["reason"],
        [use["unit"] for use in trained],
    )
