"""Databases as earlier releases left them: fixtures as they were, and any database taken back to such a schema."""

from __future__ import annotations

import gzip
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

FIXTURES = Path(__file__).resolve().parent / "fixtures"
SCHEMAS = sorted(int(path.name[7:-6]) for path in FIXTURES.glob("schema-*.db.gz"))


def database(schema: int) -> bytes:
    """The file of a released schema."""
    return gzip.decompress((FIXTURES / f"schema-{schema}.db.gz").read_bytes())


def take_back(connection: sqlite3.Connection, schema: int) -> None:
    """Take everything out of a database that came after a released schema, so that it is as that release left it."""
    with tempfile.NamedTemporaryFile(suffix=".db") as file:
        file.write(database(schema))
        file.flush()
        with closing(sqlite3.connect(file.name)) as released:
            then = {
                row[0]: (row[1], row[2])
                for row in released.execute("SELECT name, type, sql FROM sqlite_master")
            }
            columns = {name: _columns(released, name) for name in then}
    for kind in ("trigger", "index", "view", "table"):
        # A virtual table takes the tables that it is kept in along; their names are longer than its own.
        for name in sorted(_named(connection, kind) - set(then), key=len):
            if name in _named(connection, kind):
                connection.execute(f"DROP {kind} {name}")
    for name in _named(connection, "table") & set(then):
        for column in _columns(connection, name) - columns[name]:
            connection.execute(f"ALTER TABLE {name} DROP COLUMN {column}")
    for kind in ("table", "trigger"):
        for name, (what, sql) in then.items():
            if what == kind and name not in _named(connection, kind):
                connection.execute(sql)
                if "fts5" in sql:
                    connection.execute(f"INSERT INTO {name} ({name}) VALUES ('rebuild')")
    connection.execute(
        "DELETE FROM _sqlite_migrations WHERE CAST(substr(name, 2, 3) AS INTEGER) > ?", (schema,)
    )
    connection.execute(f"PRAGMA user_version = {schema}")
    connection.commit()


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f"PRAGMA table_info({table})")}


def _named(connection: sqlite3.Connection, kind: str) -> set[str]:
    return {
        row[0]
        for row in connection.execute(
            "SELECT name FROM sqlite_master WHERE type = ? AND sql IS NOT NULL",
            (kind,),
        )
    }
