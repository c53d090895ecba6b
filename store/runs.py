"""Learning runs as rows: asked for by anyone, carried out by the learner, readable by all while they happen.

A run survives a restart because it is nothing but a row and a scratch directory. There is one learner per home
(it holds a lock), so a run that is neither queued nor finished when the learner starts belongs to a dead one and
is begun again, three times at the most: after that the fault is not bad luck.
"""

from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any

from store.db import Store
from store.errors import NotFound
from store.ids import new_id, now
from store.types import RunOutcome, RunState, Trigger

MAX_ATTEMPTS = 3


_OPEN = tuple(state for state in RunState if not state.finished)


@dataclass(frozen=True)
class Run:
    """One learning run. ``fraction`` is 0 to 1 over the whole run; ``result`` is the contract's JSON object."""

    id: str
    trigger: Trigger
    state: RunState
    outcome: RunOutcome | None
    created: str
    started: str | None
    finished: str | None
    pid: int | None
    attempts: int
    fraction: float
    note: str
    result: dict[str, Any]
    error: str | None


def request(store: Store, trigger: Trigger) -> Run:
    """Ask for a run. A run that is still queued serves the new request too, unless one of them is to retrain."""
    with store.write() as connection:
        row = connection.execute(
            'SELECT * FROM learning_runs WHERE state = ?1 AND ("trigger" = ?3) = (?2 = ?3) ORDER BY rowid LIMIT 1',
            (RunState.QUEUED, trigger, Trigger.FORGETTING),
        ).fetchone()
        if row is not None:
            return _run(row)
        run = new_id("r")
        connection.execute(
            'INSERT INTO learning_runs (id, "trigger", state, created, attempts) VALUES (?, ?, ?, ?, 0)',
            (run, trigger, RunState.QUEUED, now()),
        )
    return get(store, run)


def claim(store: Store, pid: int) -> Run | None:
    """Take the next run: a broken-off one, then one that retrains. To be called with the learner's lock held."""
    with store.write() as connection:
        while True:
            row = connection.execute(
                "SELECT * FROM learning_runs WHERE state NOT IN (?, ?) "
                'ORDER BY state = ?, "trigger" != ?, rowid LIMIT 1',
                (RunState.DONE, RunState.FAILED, RunState.QUEUED, Trigger.FORGETTING),
            ).fetchone()
            if row is None:
                return None
            if row["attempts"] >= MAX_ATTEMPTS:
                _close(
                    connection,
                    row["id"],
                    RunState.FAILED,
                    RunOutcome.FAILED,
                    {},
                    f"the learner died {MAX_ATTEMPTS} times during this run",
                )
                continue
            connection.execute(
                "UPDATE learning_runs SET state = ?, pid = ?, attempts = attempts + 1, started = ?, fraction = 0, "
                "note = '' WHERE id = ?",
                (RunState.PREPARING, pid, now(), row["id"]),
            )
            return get(store, row["id"])


def release(store: Store, run: str) -> None:
    """Put a claimed run back, as if it had not been begun: its learner was asked to end."""
    with store.write() as connection:
        connection.execute(
            "UPDATE learning_runs SET state = ?, attempts = attempts - 1, pid = NULL, fraction = 0, note = '' "
            "WHERE id = ? AND state NOT IN (?, ?, ?)",
            (RunState.QUEUED, run, RunState.QUEUED, RunState.DONE, RunState.FAILED),
        )


def progress(store: Store, run: str, state: RunState, fraction: float, note: str = "") -> None:
    """Say how far a run is."""
    with store.write() as connection:
        connection.execute(
            "UPDATE learning_runs SET state = ?, fraction = ?, note = ? WHERE id = ? AND state NOT IN (?, ?)",
            (state, min(max(fraction, 0.0), 1.0), note, run, RunState.DONE, RunState.FAILED),
        )


def finish(store: Store, run: str, outcome: RunOutcome, result: dict[str, Any]) -> None:
    """Close a run that was carried out, whatever it came to."""
    with store.write() as connection:
        _close(connection, run, RunState.DONE, outcome, result, None)


def fail(store: Store, run: str, error: str) -> None:
    """Close a run that could not be carried out. Infrastructure: it says nothing about the units."""
    with store.write() as connection:
        _close(connection, run, RunState.FAILED, RunOutcome.FAILED, {}, error)


def get(store: Store, run: str) -> Run:
    """One run by its full id."""
    row = store.conn.execute("SELECT * FROM learning_runs WHERE id = ?", (run,)).fetchone()
    if row is None:
        raise NotFound(f"no learning run has the id {run}")
    return _run(row)


def list_(store: Store, limit: int = 50) -> list[Run]:
    """The newest runs, newest first."""
    rows = store.conn.execute("SELECT * FROM learning_runs ORDER BY rowid DESC LIMIT ?", (limit,))
    return [_run(row) for row in rows]


def open_(store: Store) -> list[Run]:
    """Runs that are queued or under way, oldest first."""
    rows = store.conn.execute(
        f"SELECT * FROM learning_runs WHERE state IN ({', '.join('?' * len(_OPEN))}) ORDER BY rowid", _OPEN
    )
    return [_run(row) for row in rows]


def _close(
    connection: sqlite3.Connection,
    run: str,
    state: RunState,
    outcome: RunOutcome,
    result: dict[str, Any],
    error: str | None,
) -> None:
    connection.execute(
        "UPDATE learning_runs SET state = ?, outcome = ?, finished = ?, fraction = 1, result = ?, error = ? "
        "WHERE id = ?",
        (state, outcome, now(), json.dumps(result, sort_keys=True), error, run),
    )


def _run(row: sqlite3.Row) -> Run:
    return Run(
        row["id"],
        Trigger(row["trigger"]),
        RunState(row["state"]),
        RunOutcome(row["outcome"]) if row["outcome"] else None,
        row["created"],
        row["started"],
        row["finished"],
        row["pid"],
        row["attempts"],
        row["fraction"] or 0.0,
        row["note"] or "",
        json.loads(row["result"] or "{}"),
        row["error"],
    )
