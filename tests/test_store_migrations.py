"""Databases of every released schema are brought up to date whole, wherever the program is killed on the way."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from store import conversations, signals, units
from store.db import SCHEMA_VERSION, Store
from store.errors import SchemaTooNew
from store.home import Home
from store.search import search
from store.types import SignalKind
from tests import released

ROOT = Path(__file__).resolve().parent.parent

Rows = list[tuple[object, ...]]


def put(home: Home, schema: int) -> None:
    """Give a home the database of a released schema; 0 is none."""
    if schema:
        home.db.write_bytes(released.database(schema))


def contents(path: Path, like: dict[str, Rows] | None = None) -> dict[str, Rows]:
    """Every row of every table, of those columns only that ``like`` was read with."""
    with closing(sqlite3.connect(path)) as connection:
        names = (
            list(like)
            if like is not None
            else [
                row[0]
                for row in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'messages_fts%' "
                    "AND name != '_sqlite_migrations'"
                )
            ]
        )
        return {
            name: connection.execute(f"SELECT {columns(path, name, like)} FROM {name} ORDER BY 1").fetchall()
            for name in names
        }


def columns(path: Path, table: str, like: dict[str, Rows] | None) -> str:
    with closing(sqlite3.connect(path)) as connection:
        names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    if like is not None and like[table]:
        # Columns are only ever added, and at the end.
        names = names[: len(like[table][0])]
    return ", ".join(f'"{name}"' for name in names)


def schema(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(
            "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
        ).fetchall()


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def test_there_is_a_database_of_every_schema_before_this_one() -> None:
    # The third was never by itself in what anybody got.
    assert set(released.SCHEMAS) == set(range(1, SCHEMA_VERSION)) - {3}


@pytest.mark.parametrize("old", released.SCHEMAS)
def test_a_released_schema_is_upgraded_with_all_it_holds(home: Home, old: int) -> None:
    put(home, old)
    before = contents(home.db)
    assert version(home.db) == old
    Store.open(home).close()
    assert version(home.db) == SCHEMA_VERSION
    assert contents(home.db, before) == before
    assert sum(map(len, before.values())) > 50
    fresh = Home(home.root.parent / "fresh").open()
    Store.open(fresh).close()
    assert schema(home.db) == schema(fresh.db)
    with closing(sqlite3.connect(home.db)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


@pytest.mark.parametrize("old", released.SCHEMAS)
def test_an_upgraded_database_is_as_good_as_a_new_one(home: Home, old: int) -> None:
    put(home, old)
    with Store.open(home) as store:
        assert [hit.role for hit in search(store, "C++")] == ["assistant"]
        assert len(search(store, "왜")) == 1
        assert {state.answer for state in units.unjudged(store)} == {
            "There are many ways to boil an egg.",
            "네, 두 글자도 됩니다.",
        }
        assert len(units.waiting(store)) == 1
        assert units.fresh(store) == []
        assert conversations.recover(store) == 1
        (hit,) = search(store, "The adapter.")
        assert signals.record(store, hit.message, SignalKind.CORRECTION, text="Adapter 1.").supersedes is None
        assert [unit.target for unit in units.fresh(store)] == ["Adapter 1."]


def test_a_newer_schema_is_refused_untouched(home: Home) -> None:
    put(home, released.SCHEMAS[-1])
    with closing(sqlite3.connect(home.db)) as connection:
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = {path.name: path.read_bytes() for path in home.root.iterdir() if path.is_file()}
    with pytest.raises(SchemaTooNew, match="update Mynah"):
        Store.open(home)
    assert {path.name: path.read_bytes() for path in home.root.iterdir() if path.is_file()} == before


KILLED = """
import os, signal, sqlite3, sys
from pathlib import Path
import store.db, store.migrations
from store.home import Home

opened = store.db._connect

def is_ours(statement):
    return not statement.startswith("--")

def at(number):
    seen = 0
    def told(statement):
        nonlocal seen
        seen += is_ours(statement)
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)
    def connect(home):
        connection = opened(home)
        connection.set_trace_callback(told)
        return connection
    return connect

for number, root in enumerate(sys.argv[1:], start=1):
    child = os.fork()
    if child == 0:
        os.umask(0o077)
        store.db._connect = at(number)
        store.db.Store.open(Home(Path(root)).open()).close()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if not os.WIFSIGNALED(status):
        sys.exit(f"it was over before statement {number}" if status == 0 else f"failed at statement {number}")
"""


@pytest.mark.parametrize("old", [0, *released.SCHEMAS])
def test_a_kill_at_any_statement_leaves_one_schema_or_the_next_and_is_made_good(home: Home, old: int) -> None:
    put(home, old)
    before, steps = contents(home.db) if old else {}, statements(home)
    homes = [Home(home.root.parent / f"killed-{number}").open() for number in range(1, steps + 1)]
    for each in homes:
        put(each, old)
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, *(str(each.root) for each in homes)],
        cwd=ROOT,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    references = {number: schema(path) for number, path in stepwise(home, old).items()}
    seen = set()
    for each in homes:
        found = version(each.db)
        seen.add(found)
        assert schema(each.db) == references[found]
        assert contents(each.db, before) == before
        Store.open(each).close()
        assert (version(each.db), schema(each.db)) == (SCHEMA_VERSION, references[SCHEMA_VERSION])
        assert contents(each.db, before) == before
    assert seen == set(range(old, SCHEMA_VERSION)) | ({SCHEMA_VERSION} if SCHEMA_VERSION in seen else set())


def statements(home: Home) -> int:
    """How many statements it takes to bring a home's database up to date; the database stays as it is."""
    from store import migrations

    copy = home.root.parent / "counted.db"
    if home.db.exists():
        shutil.copy(home.db, copy)
    counted: list[str] = []
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        connection.set_trace_callback(counted.append)
        migrations.migrate(connection)
    # What a statement does inside (a trigger, the tables of an index) is part of it.
    return sum(not each.startswith("--") for each in counted)


def stepwise(home: Home, old: int) -> dict[int, Path]:
    """The database at every schema from an old one to the present."""
    from sqlite_utils import Database

    from store.migrations import migrations

    made = {}
    place = home.root.parent / "stepwise.db"
    place.touch()
    if old:
        shutil.copy(home.db, place)
    for number in range(old, SCHEMA_VERSION + 1):
        if number > old:
            with closing(sqlite3.connect(place, isolation_level=None)) as connection:
                database = Database(connection, execute_plugins=False)
                pending = [each.name for each in migrations.pending(database)]
                migrations.apply(database, stop_before=pending[1:2])
        made[number] = home.root.parent / f"step-{number}.db"
        shutil.copy(place, made[number])
    return made
