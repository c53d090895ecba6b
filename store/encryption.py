"""Encrypts a home's database, or takes the encryption away, so that a crash leaves the old file or the new one.

The whole database is copied into a new file beside it, checked there, and put in place by one rename. Until then
nothing else may have it open: leaving the write-ahead log succeeds only for the last connection, and from there on
an exclusive lock is held. SQLCipher's export keeps row numbers, which the full-text index points at; that they are
the same is checked, since nothing promises it.

What the old file held is overwritten. For that it keeps a second name until it is done, and every start looks for
that name and finishes the work. It is as much as a program can do: file systems that copy on write, the spare blocks
of an SSD, and backups may keep old bytes (said by the command, and in the README).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from store import cipher
from store.cipher import Key
from store.db import Store, explained
from store.errors import EncryptionError, HomeError, HomeLocked, UsageError
from store.files import force_to_disk
from store.home import PRIVATE_FILE, Home, locked, wipe

SHORTEST = 8
_WAIT_SECONDS = 3.0
_NEW = "encryption.db"


class State(StrEnum):
    """How a database lies on the disk."""

    PLAIN = "plain"
    ENCRYPTED = "encrypted"


@dataclass(frozen=True)
class Converted:
    """What a conversion came to: the new state, and the rows that were copied."""

    state: State
    rows: int
    bytes: int


def state(home: Home) -> State:
    """Whether a home's database is encrypted."""
    return State.ENCRYPTED if cipher.is_encrypted(home.db) else State.PLAIN


def encrypt(home: Home, passphrase: str, told: Callable[[float], None]) -> Converted:
    """Encrypt the database of an opened home, or give an encrypted one another passphrase.

    Raises:
        UsageError: the passphrase is too short.
        EncryptionError: the extra is not installed, or the present passphrase is wrong.
        HomeLocked: something else has the database open.
        DiskFull: there is no room for the copy; nothing was changed.
    """
    cipher.module()
    if len(passphrase) < SHORTEST:
        raise UsageError(
            f"a passphrase of fewer than {SHORTEST} characters protects nothing: choose a longer one"
        )
    return _convert(home, Key.derive(passphrase), told)


def decrypt(home: Home, told: Callable[[float], None]) -> Converted:
    """Take the encryption of an opened home's database away. Raises as `encrypt`, and UsageError if there is none."""
    if state(home) is State.PLAIN:
        raise UsageError(f"{home.db} is not encrypted")
    return _convert(home, None, told)


def _convert(home: Home, key: Key | None, told: Callable[[float], None]) -> Converted:
    new = home.scratch / _NEW
    with locked(home.host_lock, "host"), locked(home.learner_lock, "learner"), explained(home):
        # Up to date first: what is copied is of one schema.
        Store.open(home).close()
        present = cipher.key_of(home.db)
        try:
            with exclusive(home, present) as old:
                told(0.05)
                rows = _copy(old, new, key, told)
                told(0.9)
                put_in_place(home, new)
        finally:
            new.unlink(missing_ok=True)
        told(1.0)
    if key is not None:
        cipher.remember(key)
    return Converted(state(home), rows, home.db.stat().st_size)


@contextmanager
def exclusive(home: Home, key: Key | None) -> Iterator[sqlite3.Connection]:
    """A connection that nobody has beside us, with everything in the one file and no log.

    Raises:
        HomeLocked: somebody else has the database open.
    """
    log = home.db.with_name(f"{home.db.name}-wal")
    aside = log.with_name(f"{log.name}.old")
    with closing(_driver(home.db, key)) as connection:
        if log.exists() and not aside.exists():
            os.link(log, aside)
        try:
            connection.execute("PRAGMA journal_mode = DELETE").fetchone()
            connection.execute("PRAGMA locking_mode = EXCLUSIVE").fetchone()
            connection.execute("BEGIN EXCLUSIVE")
            connection.execute("COMMIT")
        except cipher.operational_errors() as error:
            home.finish_wiping()
            if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
                raise HomeLocked(
                    f"another program has {home.db} open: close every chat and command of Mynah, and try again"
                ) from error
            raise
        yield connection
    home.finish_wiping()


def put_in_place(home: Home, new: Path) -> None:
    """Make a whole database file the home's, and overwrite the one before. Only within `exclusive`."""
    force_to_disk(new)
    old = home.db.with_name(f"{home.db.name}.old")
    old.unlink(missing_ok=True)
    os.link(home.db, old)
    # Open from before the rename, so that it is overwritten even where another start took its name away.
    descriptor = os.open(old, os.O_RDWR | os.O_CLOEXEC)
    try:
        new.replace(home.db)
        force_to_disk(home.root)
        cipher.forget(home.db)
        # A program that opened the old file a moment ago must fail on it, and not write into nowhere.
        wipe(descriptor)
    finally:
        os.close(descriptor)
    old.unlink(missing_ok=True)
    force_to_disk(home.root)


def _driver(path: Path, key: Key | None) -> sqlite3.Connection:
    """SQLCipher's driver also for a plain file: only it can copy from one kind to the other."""
    if key is not None:
        return cipher.open_with(path, key, _WAIT_SECONDS)
    driver = cipher.module() if _extra() else sqlite3
    connection: sqlite3.Connection = driver.connect(path, timeout=_WAIT_SECONDS, isolation_level=None)
    connection.row_factory = cipher.row_factory(connection)
    return connection


def _extra() -> bool:
    try:
        cipher.module()
    except EncryptionError:
        return False
    return True


def _copy(old: sqlite3.Connection, new: Path, key: Key | None, told: Callable[[float], None]) -> int:
    """Copy a database into a new file, and check that all of it came; returns the number of rows."""
    new.unlink(missing_ok=True)
    os.close(os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))
    version = old.execute("PRAGMA user_version").fetchone()[0]
    old.execute(f"ATTACH DATABASE ? AS new KEY {key.literal if key else chr(39) * 2}", (str(new),))
    old.execute("PRAGMA new.secure_delete = ON")
    old.execute("SELECT sqlcipher_export('new')").fetchone()
    old.execute(f"PRAGMA new.user_version = {version}")
    old.execute("DETACH DATABASE new")
    told(0.6)
    with closing(_driver(new, key)) as copy:
        return _checked(old, copy)


def _checked(old: sqlite3.Connection, copy: sqlite3.Connection) -> int:
    verdict = copy.execute("PRAGMA quick_check(1)").fetchone()[0]
    held, came = _held(old), _held(copy)
    if verdict != "ok" or held != came:
        raise HomeError(
            "the copy is not what was copied, so nothing was changed: check the disk and try again"
        )
    return sum(rows for rows, _ in held.values())


def _held(connection: sqlite3.Connection) -> dict[str, tuple[int, float]]:
    """The rows of every table, and the sum of their numbers where they have any."""
    tables = connection.execute("PRAGMA main.table_list").fetchall()
    return {
        row["name"]: tuple(
            connection.execute(
                f"SELECT count(*), {'0' if row['wr'] else 'total(rowid)'} FROM main.[{row['name']}]"
            ).fetchone()
        )
        for row in tables
        if row["type"] == "table" and not row["name"].startswith("sqlite_")
    }
