"""Puts a backup back: checked whole first, then live in one transaction.

Everything is unpacked beside the data directory's live files and checked there (hashes, SQLite's own integrity
check, the schema's version, no name that leads elsewhere). Adapters are moved in first, under names that say what is
in them, so they disturb nothing; then the database is written over the live one by SQLite's backup call, which is
one transaction of the target. Where either of them is encrypted the file is replaced instead, by one rename, and the
home is then encrypted as the backup was. A process killed at any moment leaves the old contents or the new.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import shutil
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from store import cipher, encryption, forgetting, receipts
from store.db import BUSY_SECONDS, SCHEMA_VERSION, Store, explained
from store.encryption import State
from store.errors import ExchangeFileError, HomeError, NotFound, SchemaTooNew, UsageError
from store.exchange.backup import ADAPTERS, DATABASE, FORM, MANIFEST, SCRATCH, file_hash
from store.home import PRIVATE_DIR, Home, locked, taking_turns
from store.ids import now

_NAME = re.compile(rf"{DATABASE}|{ADAPTERS}/[0-9a-f]+/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MANIFEST_BYTES = 16 * 1024 * 1024
_CHUNK = 1024 * 1024
_PAGE = 4096
_HOLDS = ("conversations", "signals", "adapters", "decisions", "settings")


@dataclass(frozen=True)
class Restored:
    """What was put back, and how it lies now. ``kept_aside`` is where a database that could not be read was moved."""

    conversations: int
    messages: int
    adapters: int
    created: str
    kept_aside: Path | None
    state: State


def restore(home: Home, source: Path, *, replace: bool) -> Restored:
    """Put a backup into an opened home; nothing is changed unless all of it is.

    Raises:
        NotFound: there is no such file.
        ExchangeFileError: it is no backup, damaged, or not what its manifest says.
        SchemaTooNew: a newer Mynah wrote it.
        UsageError: the home holds something, and ``replace`` was not asked for.
        HomeLocked: the host or the learner is running.
        EncryptionError: the backup is under another passphrase than the home, and nobody gave it.
    """
    if not source.exists():
        raise NotFound(f"there is no file at {source}")
    with (
        locked(home.host_lock, "host"),
        locked(home.learner_lock, "learner"),
        taking_turns(home.backup_lock),
        explained(home),
        tempfile.TemporaryDirectory(dir=home.scratch, prefix=SCRATCH) as scratch,
    ):
        readable = _refuse_unless_empty(home, replace)
        made = Path(scratch)
        manifest = unpack(source, made)
        cipher.unlock_copy(made / DATABASE, source)
        _check_database(made / DATABASE, source)
        counts = _migrated(made)
        if readable and home.db.exists():
            _carry_over(home, made)
        kept_aside = None if readable else _move_aside(home)
        adapters = _install_adapters(home, made / ADAPTERS)
        _write_over(home, made / DATABASE)
        _clear_adapters(home, adapters)
    return Restored(
        *counts, len(adapters), str(manifest.get("created", "")), kept_aside, encryption.state(home)
    )


def _refuse_unless_empty(home: Home, replace: bool) -> bool:
    """Whether the present database can be read. Raises UsageError where it holds something and may not be replaced."""
    if not home.db.exists() or home.db.stat().st_size == 0:
        return True
    try:
        with Store.open(home) as store:
            holds = [
                table for table in _HOLDS if store.conn.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
            ]
    except HomeError:
        if not replace:
            raise UsageError(
                f"{home.db} cannot be read: with --replace it is moved aside and the backup put in its place"
            ) from None
        return False
    if holds and not replace:
        raise UsageError(
            f"{home.root} holds {' and '.join(holds)} already: back it up, then restore with --replace, "
            "or set MYNAH_HOME to a new place"
        )
    return True


def unpack(source: Path, target: Path) -> dict[str, Any]:
    """Unpack an archive into a directory, checking every file against the manifest; returns the manifest."""
    try:
        with _opened(source) as archive:
            manifest = _manifest(archive, source)
            waiting = dict(manifest["files"])
            while (member := archive.next()) is not None:
                said = waiting.pop(member.name, None)
                held = archive.extractfile(member) if member.isreg() and said is not None else None
                if held is None or said is None:
                    raise ExchangeFileError(
                        f"{source} holds {member.name!r}, which its list of contents does not"
                    )
                _unpack_one(held, target / member.name, said, source)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ExchangeFileError(f"{source} is not a backup of Mynah, or damaged ({error})") from error
    if waiting or DATABASE not in manifest["files"]:
        raise ExchangeFileError(f"{source} is cut short: {', '.join([*waiting][:3]) or DATABASE} is missing")
    return manifest


def first_page(source: Path) -> tuple[bytes, int]:
    """The first 4096 bytes of the database in an archive, and its size. Raises ExchangeFileError."""
    try:
        with _opened(source) as archive:
            while (member := archive.next()) is not None:
                held = archive.extractfile(member) if member.name == DATABASE else None
                if held is not None:
                    return held.read(_PAGE), member.size
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise ExchangeFileError(f"{source} is not a backup of Mynah, or damaged ({error})") from error
    raise ExchangeFileError(f"{source} is not a backup of Mynah")


@contextmanager
def _opened(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, "r:gz") as archive:
            yield archive
    except (IsADirectoryError, PermissionError) as error:
        raise ExchangeFileError(f"cannot read {source} ({error.strerror})") from error


def _manifest(archive: tarfile.TarFile, source: Path) -> dict[str, Any]:
    first = archive.next()
    held = archive.extractfile(first) if first is not None and first.name == MANIFEST else None
    if held is None or first is None or first.size > _MANIFEST_BYTES:
        raise ExchangeFileError(f"{source} is not a backup of Mynah")
    try:
        manifest: dict[str, Any] = json.loads(held.read())
        fits = manifest["form"] == FORM and all(
            _NAME.fullmatch(name) and isinstance(said["sha256"], str) and isinstance(said["bytes"], int)
            for name, said in manifest["files"].items()
        )
        schema = int(manifest["schema"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ExchangeFileError(f"{source} has a damaged list of contents ({error!r})") from error
    if schema > SCHEMA_VERSION:
        raise SchemaTooNew(
            f"{source} was written by a newer Mynah (schema {schema}, this one knows {SCHEMA_VERSION}): update Mynah"
        )
    if not fits:
        raise ExchangeFileError(f"{source} is not a backup that this Mynah can read")
    return manifest


def _unpack_one(held: IO[bytes], target: Path, said: dict[str, Any], source: Path) -> None:
    target.parent.mkdir(mode=PRIVATE_DIR, parents=True, exist_ok=True)
    hasher, written = hashlib.sha256(), 0
    with target.open("xb") as file:
        while written <= said["bytes"] and (chunk := held.read(_CHUNK)):
            hasher.update(chunk)
            written += len(chunk)
            file.write(chunk)
    if written != said["bytes"] or hasher.hexdigest() != said["sha256"]:
        raise ExchangeFileError(f"{source} is damaged: {target.name} is not what was backed up")


def _check_database(copy: Path, source: Path) -> None:
    try:
        with closing(cipher.connect(copy, BUSY_SECONDS)) as connection:
            verdict = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
            broken = connection.execute("PRAGMA foreign_key_check").fetchone()
            version = connection.execute("PRAGMA user_version").fetchone()[0]
    except cipher.database_errors() as error:
        raise ExchangeFileError(f"the database in {source} cannot be read ({error})") from error
    if verdict != "ok" or broken is not None or version < 1:
        raise ExchangeFileError(f"the database in {source} is damaged ({verdict})")
    if version > SCHEMA_VERSION:
        raise SchemaTooNew(f"{source} was written by a newer Mynah (schema {version}): update Mynah")


def _migrated(made: Path) -> tuple[int, int]:
    """Bring an older backup's database up to date where it lies; returns its conversations and messages."""
    with Store.open(Home(made)) as store:
        conversations, messages = (
            store.conn.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
            for table in ("conversations", "messages")
        )
        # One file again: what is copied next is the file, not the log beside it.
        store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        store.conn.execute("PRAGMA journal_mode = DELETE")
    return conversations, messages


def _carry_over(home: Home, made: Path) -> None:
    """What was forgotten since the backup was made must not come back with it; nor are receipts and backups lost."""
    with Store.open(home) as live, Store.open(Home(made)) as copy:
        forgetting.carry_over(live, copy)
        receipts.carry_over(live, copy)
        copy.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        copy.conn.execute("PRAGMA journal_mode = DELETE")


def _move_aside(home: Home) -> Path:
    """Keep a database that cannot be read: something may yet be saved from it."""
    kept = home.db.with_name(f"{home.db.name}.damaged-{now().replace(':', '').replace('+0000', '')}")
    home.db.rename(kept)
    for suffix in ("-wal", "-shm"):
        beside = home.db.with_name(home.db.name + suffix)
        if beside.exists():
            beside.rename(kept.with_name(kept.name + suffix))
    return kept


def _install_adapters(home: Home, made: Path) -> set[str]:
    """Move adapters in. One of the same name has the same content and stays, unless its files were damaged."""
    names = {path.name for path in made.iterdir()} if made.is_dir() else set()
    for name in names:
        target = home.adapters / name
        if target.exists():
            if _hashes(target) == _hashes(made / name):
                continue
            target.rename(made / f"{name}.old")
        (made / name).rename(target)
    return names


def _hashes(directory: Path) -> dict[str, str]:
    return {path.name: file_hash(path) for path in directory.iterdir()}


def _write_over(home: Home, copy: Path) -> None:
    Store.open(home).close()
    if encryption.state(home) is State.ENCRYPTED or cipher.is_encrypted(copy):
        with encryption.exclusive(home, cipher.key_of(home.db)):
            encryption.put_in_place(home, copy)
        return
    with Store.open(home) as live, closing(cipher.connect(copy, BUSY_SECONDS)) as restored:
        restored.backup(live.conn)


def _clear_adapters(home: Home, kept: set[str]) -> None:
    """Adapters that the restored database does not know would stay for ever."""
    for path in home.adapters.iterdir():
        if path.name not in kept:
            shutil.rmtree(path, ignore_errors=True)
