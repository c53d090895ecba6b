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

from store.db import Store

PARTS = 4
TABLES = tuple(f"messages_fts_{part}" for part in range(PARTS))

Rows = Generator[int, None, None]
"""Row numbers of `messages`, the newest first; closing it gives the database's snapshot back."""

MANY_SEGMENTS = 12
"""More are merged when nobody waits. A busy part has so many after some fifty turns."""

_PAGES_AT_ONCE = 500
"""About 25 ms: as long may another writer have to wait."""

_MOST_LEVELS = 1000
"""Each `optimize` after something was written adds one or two, and above 2,000 SQLite before 3.41 takes its own index
for malformed, after some thousand of them (seen with 3.40). Only making the index anew takes them away."""

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
        table = TABLES[part]
        how = "rebuild" if _levels(connection, table) > _MOST_LEVELS else "optimize"
        connection.execute(f"INSERT INTO {table} ({table}) VALUES (?)", (how,))


def tidy(store: Store, begun: str | None = None) -> str | None:
    """Merge a little where a part is in many segments. For moments in which nobody waits.

    A look-up asks every segment. With 8 to 26 of them a search among a million messages took two to five times as
    long as with one.

    Returns the part that is not done yet, to be given as ``begun`` the next time, or None.
    """
    table = begun or next((each for each in TABLES if _segments(store.conn, each) > MANY_SEGMENTS), None)
    if table is None:
        return None
    with store.write() as connection:
        # Two of a size become one, so that few are left and none is written anew more than some ten times. Merging
        # all there are (a negative number of pages) would begin afresh after each turn, and add levels.
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('usermerge', 2)")
        before = _changes(connection)
        connection.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('merge', ?)", (_PAGES_AT_ONCE,))
        # Fewer than two rows changed: nothing was left to merge (sqlite.org/fts5.html, 6.8).
        return table if _changes(connection) - before >= 2 else None


def _changes(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT total_changes()").fetchone()[0])


def _segments(connection: sqlite3.Connection, table: str) -> int:
    count, last = 0, 0
    while True:
        row = connection.execute(f"SELECT min(segid) FROM {table}_idx WHERE segid > ?", (last,)).fetchone()
        if row[0] is None:
            return count
        count, last = count + 1, int(row[0])


def _levels(connection: sqlite3.Connection, table: str) -> int:
    """How many levels its segments are sorted into: of the structure record, the number after four bytes."""
    record = connection.execute(f"SELECT block FROM {table}_data WHERE id = 10").fetchone()[0]
    levels = 0
    for byte in record[4:]:
        levels = levels << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return levels


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
