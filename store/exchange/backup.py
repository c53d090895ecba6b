"""One file with everything that cannot be made again: the database and the adapters, made while Mynah runs.

SQLite's backup call copies the database page by page within one read transaction, which in WAL mode blocks no
writer; `VACUUM INTO` would be smaller, but may renumber the rows that the full-text index points at. Adapters are
immutable and named by content, so after the database it is enough to copy the ones it names. If one is deleted in
between, the copy is begun again. A manifest with the hash of every file comes first in the archive.

A backup holds what the owner said, so it has mode 0600 and is whole or not there. The copy of an encrypted database is
encrypted with the same passphrase, and adapters are not, as in the data directory. What is not to be kept in history
is not kept in a backup either.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from store import cipher, consent
from store.db import BUSY_SECONDS, SCHEMA_VERSION, Store, explained
from store.errors import HomeError, UsageError
from store.files import whole_file
from store.home import Home, taking_turns
from store.ids import now
from store.types import AdapterState

MANIFEST = "manifest.json"
DATABASE = "mynah.db"
ADAPTERS = "adapters"
FORM = "mynah-backup-1"
SCRATCH = "backup-"
"""How the directories begin in which a backup is made or unpacked."""

_TRIES = 3
# Adapters hardly shrink and the database does at once: more effort costs twice the time for a few per cent.
_COMPRESSION = 3


@dataclass(frozen=True)
class Contents:
    """What a backup holds."""

    conversations: int
    messages: int
    adapters: int
    bytes: int


def write(store: Store, target: Path, version: str) -> Contents:
    """Back a home up into a new file. ``version`` is the program's.

    Raises:
        UsageError: the file exists.
        DiskFull, HomeError: it could not be written; nothing is left behind.
    """
    if target.exists():
        raise UsageError(f"{target} exists already: choose a new file")
    # Noted before it is there, so that none is ever forgotten by who forgets; it names a file that may not exist.
    with (
        explained(store.home),
        taking_turns(store.home.backup_lock),
        _noted(store, target.absolute()),
        tempfile.TemporaryDirectory(dir=store.home.scratch, prefix=SCRATCH) as scratch,
    ):
        made = _snapshot(store, Path(scratch))
        with whole_file(target) as temporary:
            pack(made, temporary, version, now())
        return _contents(made, target)


def _contents(made: Path, target: Path) -> Contents:
    conversations, messages = _counts(made / DATABASE)
    adapters = sum(path.is_dir() for path in (made / ADAPTERS).iterdir())
    return Contents(conversations, messages, adapters, target.stat().st_size)


@contextmanager
def _noted(store: Store, path: Path) -> Iterator[None]:
    """Keep a list of the backups that were made: the owner may ask to forget something that is in them."""
    with store.write() as connection:
        connection.execute("INSERT OR REPLACE INTO backups (path, created) VALUES (?, ?)", (str(path), now()))
    try:
        yield
    except BaseException:
        with store.write() as connection:
            connection.execute("DELETE FROM backups WHERE path = ?", (str(path),))
        raise


def _snapshot(store: Store, scratch: Path) -> Path:
    """A directory with a copy of the database and the adapters it counts on."""
    key = cipher.key_of(store.home.db)
    for number in range(_TRIES):
        made = scratch / str(number)
        (made / ADAPTERS).mkdir(parents=True)
        with closing(cipher.open_with(made / DATABASE, key, BUSY_SECONDS)) as copy:
            store.conn.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            rows = copy.execute(
                "SELECT id FROM adapters WHERE state != ?", (AdapterState.DELETED,)
            ).fetchall()
        with Store.open(Home(made)) as copied:
            consent.sweep(copied, idle_seconds=0.0)
            copied.conn.execute("PRAGMA journal_mode = DELETE")
        try:
            for (adapter,) in rows:
                # The files of one that was rejected may have been cleared away long before.
                if (store.home.adapters / adapter).is_dir():
                    _link(store.home.adapters / adapter, made / ADAPTERS / adapter)
        except FileNotFoundError:
            continue
        return made
    raise HomeError(f"adapters in {store.home.adapters} are being deleted all the time: try again")


def _link(directory: Path, target: Path) -> None:
    """The same files under another name, which keeps them whatever happens to the first."""
    target.mkdir()
    for path in sorted(directory.iterdir()):
        try:
            (target / path.name).hardlink_to(path)
        except FileNotFoundError:
            raise
        except OSError:
            shutil.copy2(path, target / path.name)


def _counts(database: Path) -> tuple[int, int]:
    with closing(cipher.connect(database, BUSY_SECONDS)) as connection:
        conversations, messages = (
            connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("conversations", "messages")
        )
    return conversations, messages


def pack(made: Path, target: Path, version: str, created: str) -> None:
    """Write a directory with a database and adapters as one archive, with the hash of every file in front."""
    files = {path.relative_to(made).as_posix(): path for path in sorted(made.rglob("*")) if path.is_file()}
    manifest = {
        "form": FORM,
        "version": version,
        "schema": SCHEMA_VERSION,
        "created": created,
        "files": {
            name: {"sha256": file_hash(path), "bytes": path.stat().st_size} for name, path in files.items()
        },
    }
    with tarfile.open(target, "w:gz", compresslevel=_COMPRESSION) as archive:
        _add(archive, MANIFEST, json.dumps(manifest, indent=1).encode())
        for name, path in files.items():
            archive.add(path, name, recursive=False, filter=_anonymous)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    info = _anonymous(tarfile.TarInfo(name))
    info.size = len(data)
    archive.addfile(info, io.BytesIO(data))


def _anonymous(info: tarfile.TarInfo) -> tarfile.TarInfo:
    """The owner's name on this machine is nobody's business who is handed the file."""
    info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o600
    return info


def file_hash(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
