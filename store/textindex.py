"""The full-text index in four parts, so that forgetting writes one of them anew and not the index of a whole life.

FTS5 keeps the trigrams of a deleted row in its segments until these are merged, and merging rewrites a whole index:
0.6 s of processor time at 100,000 messages, ten times that at a million. (`secure-delete` would spare it, but needs
SQLite 3.42, and what it wrote no older SQLite reads; Python comes with either.) A conversation is in one part, told by
the last character of its id, which is random: so taking one out costs a quarter. A search asks all parts and merges
their answers, newest first; it pays for that with a look-up in each, which is why there are not more of them.
"""

from __future__ import annotations

import heapq
import itertools
import json
import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence

PARTS = 4
TABLES = tuple(f"messages_fts_{part}" for part in range(PARTS))

Rows = Generator[int, None, None]
"""Row numbers of `messages`, the newest first; closing it gives the database's snapshot back."""

_PART = f"unicode(substr(conversation, -1)) % {PARTS}"
_LAST = "\U0010ffff"


def matching(connection: sqlite3.Connection, expression: str, below: int | None = None) -> Rows:
    """The rows that fit an FTS5 expression, older than ``below`` where it is given."""
    bound, values = ("", ()) if below is None else (" AND rowid < ?", (below,))
    return newest_of(
        _rows(
            connection.execute(
                f"SELECT rowid FROM {table} WHERE {table} MATCH ?{bound} ORDER BY rowid DESC",
                (expression, *values),
            )
        )
        for table in TABLES
    )


def reach(connection: sqlite3.Connection, expression: str, count: int) -> int:
    """How far back so many of the rows that fit go, told from one part: 0 where it has not as many."""
    row = connection.execute(
        f"SELECT rowid FROM {TABLES[0]} WHERE {TABLES[0]} MATCH ? ORDER BY rowid DESC LIMIT 1 OFFSET ?",
        (expression, max(count // PARTS, 1) - 1),
    ).fetchone()
    return 0 if row is None else int(row[0])


def newest_of(sources: Iterable[Iterator[int]]) -> Rows:
    """Several answers as one, each row once."""
    for row, _ in itertools.groupby(heapq.merge(*sources, reverse=True)):
        yield row


def condition(expression: str) -> tuple[str, list[object]]:
    """An SQL condition on `messages` that holds for the rows that fit, with its values."""
    asked = " UNION ALL ".join(f"SELECT rowid FROM {table} WHERE {table} MATCH ?" for table in TABLES)
    return f"messages.rowid IN ({asked})", [expression] * PARTS


def holds(connection: sqlite3.Connection, expression: str) -> bool:
    """Whether anything fits."""
    return next(iter(matching(connection, expression)), None) is not None


def terms(connection: sqlite3.Connection, beginning: str) -> Iterator[str]:
    """The trigrams that begin with a folded text: one look-up each, however often they occur; some come repeatedly."""
    for table in TABLES:
        connection.execute(
            f"CREATE VIRTUAL TABLE IF NOT EXISTS temp.{table}_terms USING fts5vocab(main, {table}, instance)"
        )
        term = beginning
        while True:
            row = connection.execute(
                f"SELECT term FROM temp.{table}_terms WHERE term >= ? AND term <= ? LIMIT 1",
                (term, beginning + _LAST),
            ).fetchone()
            if row is None:
                break
            yield row[0]
            # The next after it: no term continues another.
            term = row[0] + "\x01"


def parts_of(connection: sqlite3.Connection, messages: Sequence[str]) -> list[int]:
    """The parts that hold messages."""
    rows = connection.execute(
        f"SELECT DISTINCT {_PART} FROM messages WHERE id IN (SELECT value FROM json_each(?))",
        (json.dumps(list(messages)),),
    )
    return sorted(row[0] for row in rows)


def clean(connection: sqlite3.Connection, parts: Iterable[int]) -> None:
    """Take what was deleted out of some parts for good: merge each into one segment, in which it is not."""
    for part in parts:
        connection.execute(f"INSERT INTO {TABLES[part]} ({TABLES[part]}) VALUES ('optimize')")


def rebuild(connection: sqlite3.Connection) -> None:
    """Make the index anew: row numbers changed, or everything was deleted."""
    for table in TABLES:
        connection.execute(f"INSERT INTO {table} ({table}) VALUES ('rebuild')")


def check(connection: sqlite3.Connection) -> None:
    """Compare the index with the messages. Raises sqlite3.DatabaseError where they differ."""
    for table in TABLES:
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")


def quoted(text: str) -> str:
    """As one FTS5 string: operators, quotes and punctuation in it mean nothing but themselves."""
    return '"' + text.replace('"', '""') + '"'


def _rows(cursor: sqlite3.Cursor) -> Iterator[int]:
    return (int(row[0]) for row in cursor)
