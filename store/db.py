"""Opening the database, and the one way to write to it.

WAL lets the chat read while the host writes; `BEGIN IMMEDIATE` with a busy timeout is what makes several
writers safe: with deferred transactions 450 of 600 read-then-write transactions of four processes failed with
"database is locked" even with a 5 s timeout, with immediate ones none did. sqlite-utils runs the migrations
and is imported only when one is pending: where pandas is installed it takes 0.5 s to import, more than a whole
`mynah rate` needs. A `Store` is one connection, for one thread.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from store import cipher
from store.errors import DiskFull, HomeError, SchemaTooNew
from store.home import PRIVATE_FILE, Home

SCHEMA_VERSION = 6
"""Equals the number of the last migration; kept in ``PRAGMA user_version`` for a cheap check at each start."""

BUSY_SECONDS = 10.0


class Store:
    """One connection to one home's database."""

    def __init__(self, home: Home, connection: sqlite3.Connection) -> None:
        self.home = home
        self.conn = connection

    @classmethod
    def open(cls, home: Home) -> Store:
        """Open the database of an opened home, migrating it first where needed.

        Raises:
            HomeError: the file is not a database, or damaged.
            EncryptionError: it is encrypted, and cannot be opened without the passphrase or the extra.
            SchemaTooNew: a newer Mynah wrote it; it is left untouched.
            DiskFull: there is no room for a migration.
        """
        with explained(home):
            _create_private(home.db)
            connection = _connect(home)
            try:
                version = connection.execute("PRAGMA user_version").fetchone()[0]
                if version > SCHEMA_VERSION:
                    raise SchemaTooNew(
                        f"{home.db} was written by a newer Mynah (schema {version}, this one knows "
                        f"{SCHEMA_VERSION}): update Mynah; nothing was changed"
                    )
                # Only now: turning this on writes into the file.
                connection.execute("PRAGMA journal_mode = WAL")
                if version < SCHEMA_VERSION:
                    from store.migrations import migrate

                    migrate(connection)
            except BaseException:
                connection.close()
                raise
        return cls(home, connection)

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One immediate transaction; nested use joins the outer one.

        Raises:
            DiskFull: the disk is full; everything in the block was rolled back.
        """
        if self.conn.in_transaction:
            yield self.conn
            return
        with explained(self.home):
            self.conn.execute("BEGIN IMMEDIATE")
            try:
                yield self.conn
            except BaseException:
                _rollback(self.conn)
                raise
            try:
                self.conn.execute("COMMIT")
            except BaseException:
                _rollback(self.conn)
                raise

    @property
    def data_version(self) -> int:
        """Changes whenever another connection has written; a cheap reason to look again."""
        return int(self.conn.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close the connection."""
        self.conn.close()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _connect(home: Home) -> sqlite3.Connection:
    connection = cipher.connect(home.db, BUSY_SECONDS)
    connection.row_factory = cipher.row_factory(connection)
    # NORMAL loses at most the last transactions on a power cut, never on a killed process, and never integrity.
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    # What is deleted is overwritten, not only unlinked: the owner's word is that it is gone.
    connection.execute("PRAGMA secure_delete = ON")
    return connection


def _rollback(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:
        connection.execute("ROLLBACK")


def _create_private(path: Path) -> None:
    """SQLite makes its -wal and -shm files with the mode of the main file, so that one must be right.

    A file that exists is never opened here: closing any descriptor of it drops all POSIX locks that this process
    holds on it. The next process to close its connection then takes itself for the last one and deletes the write-
    ahead log from under ours, and everything written afterwards is lost (sqlite.org/howtocorrupt.html, 2.2).
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))


@contextmanager
def explained(home: Home) -> Iterator[None]:
    """Turn SQLite's errors that an owner can mend into one line each."""
    try:
        yield
    except cipher.operational_errors() as error:
        code = getattr(error, "sqlite_errorcode", 0)
        if code == sqlite3.SQLITE_FULL:
            raise DiskFull(_full(home)) from error
        if code & 0xFF in (
            sqlite3.SQLITE_IOERR,
            sqlite3.SQLITE_CANTOPEN,
            sqlite3.SQLITE_READONLY,
        ):
            if _no_space(home):
                raise DiskFull(_full(home)) from error
            raise HomeError(
                f"cannot read or write {home.db} ({error}): check the disk and the file's owner"
            ) from error
        if code & 0xFF == sqlite3.SQLITE_BUSY:
            raise HomeError(f"{home.db} is busy for more than {BUSY_SECONDS:.0f} s: try again") from error
        raise
    except cipher.database_errors() as error:
        # Errors of the binding itself, such as a closed connection, carry no code.
        if getattr(error, "sqlite_errorcode", None) in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            raise HomeError(
                f"{home.db} is not a readable database ({error}): restore it from a backup, "
                "or move it away to start afresh; it was left as it is"
            ) from error
        raise
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(_full(home)) from error
        raise


def _full(home: Home) -> str:
    return f"the disk that holds {home.root} is full: free some space and try again; nothing was changed"


def _no_space(home: Home) -> bool:
    usage = os.statvfs(home.root)
    return usage.f_bavail * usage.f_frsize < 64 * 1024
