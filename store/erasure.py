"""Taking text out of the database file, its index, its write-ahead log and our logs: to the last byte.

A deleted row is not a deleted text. SQLite overwrites what it frees (`secure_delete`), but full-text segments keep
the trigrams of a deleted row until they are merged, the log keeps old pages until a checkpoint that no reader stands
in the way of, and a page that was split may hold a second copy of a row in its unused middle. So after the rows come
the index, the checkpoint, and a look at the bytes themselves; only where something is still found is the whole file
written anew, which takes seconds. Log files are written over in place: the processes that append to them go on.
"""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from store import artifacts, textindex
from store.db import Store
from store.errors import HomeError
from store.quotes import Quotes
from store.types import ItemKind

LOOKED_FOR = 6
"""Texts that are looked for in the bytes of the file, the longest first: each costs a pass over it."""

_SHORTEST_NEEDLE = 12
_NEEDLE = 64
_CHECKPOINT_SECONDS = 30.0
# In a process of its own: closing a file that SQLite has open would drop its locks (see `store.db`).
_LOOK = """
import mmap, sys
needles = [bytes.fromhex(line) for line in sys.stdin]
with open(sys.argv[1], "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
    print(*(needle.hex() for needle in needles if content.find(needle) >= 0))
"""
_JSON_COLUMNS = {"learning_runs": ("result",), "adapters": ("manifest", "gate")}
_TEXT_COLUMNS = {
    "learning_runs": ("note", "error"),
    "adapters": ("reason",),
    "activations": ("reason",),
}
# A child before what it points to.
_EMPTIED = (
    "item_uses item_changes items unit_uses units unjudged judged signals events consents origins tags drafts "
    "messages conversations activations adapters learning_runs decisions"
).split()


def texts_of(store: Store, messages: Sequence[str]) -> list[str]:
    """Everything that was said in messages and of them."""
    ids = json.dumps(list(messages))
    rows = store.conn.execute(
        "WITH wanted(id) AS (SELECT value FROM json_each(?)) "
        "SELECT text FROM messages JOIN wanted USING (id) "
        "UNION SELECT text FROM signals JOIN wanted ON message = wanted.id WHERE text IS NOT NULL "
        "UNION SELECT target FROM units JOIN wanted ON message = wanted.id WHERE target IS NOT NULL "
        "UNION SELECT hint FROM units JOIN wanted ON message = wanted.id WHERE hint IS NOT NULL",
        (ids,),
    )
    return [row["text"] for row in rows] + texts_of_items(store, items_from(store.conn, messages))


def items_from(connection: sqlite3.Connection, messages: Sequence[str]) -> list[str]:
    """The items that came from messages, those the owner made of them later included."""
    rows = connection.execute(
        "SELECT id FROM items WHERE source_message IN (SELECT value FROM json_each(?))",
        (json.dumps(list(messages)),),
    )
    return [row["id"] for row in rows]


def texts_of_items(store: Store, items: Sequence[str]) -> list[str]:
    """Every text that stands in items (memories, rules, the words that a guard looks for), and their hashes."""
    ids = json.dumps(list(items))
    rows = store.conn.execute(
        "SELECT atom FROM items, json_tree(items.body) WHERE items.id IN (SELECT value FROM json_each(?)) "
        "AND json_tree.type = 'text'",
        (ids,),
    )
    texts = [row["atom"] for row in rows]
    found = store.conn.execute(
        "SELECT kind, body FROM items WHERE body != '{}' AND id IN (SELECT value FROM json_each(?))", (ids,)
    )
    return texts + [artifacts.of_item(ItemKind(row["kind"]), json.loads(row["body"])) for row in found]


def forget_items(connection: sqlite3.Connection, items: Sequence[str]) -> None:
    """Leave of items their ids alone, and take them out of the prompts that are kept of replies.

    A prompt is kept as token ids, which say what the text said; without them the reply cannot be replayed.
    """
    ids = json.dumps(list(items))
    mine = "SELECT value FROM json_each(?)"
    connection.execute(
        "UPDATE items SET state = 'forgotten', topic = id, body = '{}', conversation = NULL, source_message = NULL, "
        "source_start = NULL, source_end = NULL, expires = NULL, effect = NULL, embedder = NULL, vector = NULL "
        f"WHERE id IN ({mine})",
        (ids,),
    )
    had = f"SELECT message FROM item_uses WHERE item IN ({mine})"
    if connection.execute(f"{had} LIMIT 1", (ids,)).fetchone() is None:
        return
    with _without_triggers(connection, "messages"), _without_triggers(connection, "events"):
        connection.execute(
            f"UPDATE messages SET prompt_tokens = x'', context_hash = '' WHERE id IN ({had})", (ids,)
        )
        connection.execute(
            f"UPDATE events SET replay = 'not_replayable' WHERE kind = 'model_call' AND message IN ({had})",
            (ids,),
        )


def delete_messages(connection: sqlite3.Connection, messages: Sequence[str]) -> None:
    """Delete messages with all that hangs on them. To be called in a transaction that leaves no child behind."""
    ids = json.dumps(list(messages))
    mine = "SELECT value FROM json_each(?)"
    connection.execute("PRAGMA defer_foreign_keys = ON")
    forget_items(connection, items_from(connection, messages))
    connection.execute(
        f"DELETE FROM unit_uses WHERE unit IN (SELECT id FROM units WHERE message IN ({mine}))", (ids,)
    )
    for table in ("units", "judged", "signals", "events"):
        connection.execute(f"DELETE FROM {table} WHERE message IN ({mine})", (ids,))
    connection.execute(f"DELETE FROM messages WHERE id IN ({mine})", (ids,))


def delete_everything(connection: sqlite3.Connection) -> None:
    """Empty every table but the settings, the requests to forget and the list of backups."""
    connection.execute("PRAGMA defer_foreign_keys = ON")
    with _without_triggers(connection, "messages"):
        for table in _EMPTIED:
            connection.execute(f"DELETE FROM {table}")
    # With no content left, the index that is made anew is an empty one.
    textindex.rebuild(connection)


def scrub_quotes(connection: sqlite3.Connection, quotes: Quotes) -> int:
    """Take quotations out of runs, adapters' rows and activations; returns how many rows held one."""
    changed = 0
    for table in sorted({*_JSON_COLUMNS, *_TEXT_COLUMNS}):
        with _without_triggers(connection, table):
            for column in _JSON_COLUMNS.get(table, ()):
                changed += _scrub(connection, table, column, quotes.without_json)
            for column in _TEXT_COLUMNS.get(table, ()):
                changed += _scrub(connection, table, column, quotes.without)
    return changed


def _scrub(connection: sqlite3.Connection, table: str, column: str, without: object) -> int:
    assert callable(without)
    rows = connection.execute(
        f"SELECT rowid AS row, {column} AS text FROM {table} WHERE {column} IS NOT NULL"
    ).fetchall()
    changed = [(cleaned, row["row"]) for row in rows if (cleaned := without(row["text"])) != row["text"]]
    connection.executemany(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", changed)
    return len(changed)


@contextmanager
def unguarded(connection: sqlite3.Connection, table: str) -> Iterator[None]:
    """Let an append-only table be changed within a transaction, for the one reason there is."""
    with _without_triggers(connection, table):
        yield


@contextmanager
def _without_triggers(connection: sqlite3.Connection, table: str) -> Iterator[None]:
    triggers = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
    ).fetchall()
    for trigger in triggers:
        connection.execute(f"DROP TRIGGER {trigger['name']}")
    yield
    for trigger in triggers:
        connection.execute(trigger["sql"])


def clean_index(store: Store, parts: Iterable[int]) -> None:
    """Take deleted texts out of parts of the full-text index: they stay in its segments until these are merged."""
    with store.write() as connection:
        textindex.clean(connection, parts)


def clean_file(store: Store, texts: Sequence[str] | None) -> None:
    """Empty the write-ahead log, and see to it that no byte of ``texts`` is left in the file.

    With None (nobody remembers the texts any more, a process died in between) the file is written anew at once.

    Raises:
        HomeError: another program reads the database and does not end.
    """
    empty_log(store)
    if texts is None or _left(store, texts):
        rewrite(store)


def rewrite(store: Store) -> None:
    """Write the whole database file anew, without what is free in it."""
    store.conn.execute("VACUUM")
    # Row numbers may change, and the index goes by them.
    with store.write() as connection:
        textindex.rebuild(connection)
    empty_log(store)


def empty_log(store: Store) -> None:
    """Write the log back into the database and cut it to nothing; waits for readers. Raises HomeError."""
    deadline = time.monotonic() + _CHECKPOINT_SECONDS
    while store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
        if time.monotonic() > deadline:
            raise HomeError(
                f"{store.home.db} is being read without a pause: close the other programs that use it, "
                "then `mynah forget resume`"
            )
        time.sleep(0.02)


def _left(store: Store, texts: Sequence[str]) -> bool:
    """Whether the beginning of any of the texts, which is where a row's own page holds it, is in the file."""
    needles = {text.encode()[:_NEEDLE] for text in sorted(texts, key=len)[-LOOKED_FOR:]}
    needles = {needle for needle in needles if len(needle) >= _SHORTEST_NEEDLE}
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", _LOOK, str(store.home.db)],
        input="\n".join(needle.hex() for needle in needles),
        capture_output=True,
        text=True,
        check=True,
    )
    return any(not _said_elsewhere(store, bytes.fromhex(found)) for found in done.stdout.split())


def _said_elsewhere(store: Store, needle: bytes) -> bool:
    """Whether a message that stays says the same: then finding it means nothing."""
    text = needle.decode(errors="ignore").replace("\x00", "")
    return textindex.holds(store.conn, textindex.quoted(text))


def clean_logs(store: Store, quotes: Quotes) -> int:
    """Write over every line of our log files that quotes; returns how many did."""
    lines = 0
    for path in sorted(store.home.logs.iterdir()):
        if not path.is_file():
            continue
        with path.open("r+b") as file:
            at = 0
            for line in file.read().splitlines(keepends=True):
                body = line.rstrip(b"\r\n")
                if quotes.in_(body.decode(errors="replace")):
                    file.seek(at)
                    file.write(b"-" * len(body))
                    lines += 1
                at += len(line)
    return lines


def empty_logs(store: Store) -> None:
    """Cut every log file to nothing."""
    for path in store.home.logs.iterdir():
        if path.is_file():
            with path.open("r+b") as file:
                file.truncate(0)
