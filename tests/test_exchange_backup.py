"""Backup and restore: the same home again, made while others write, and never a half of anything."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sqlite3
import stat
import tarfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from store import adapters, conversations, settings
from store.db import SCHEMA_VERSION, Store
from store.errors import ExchangeFileError, HomeLocked, MynahError, NotFound, SchemaTooNew, UsageError
from store.exchange import backup, restore
from store.exchange.export import Format
from store.home import Home, locked
from store.types import UnitUse
from tests.exchange_helpers import exported
from tests.seed import adapter, corrected, say


@pytest.fixture
def saved(store: Store, tmp_path: Path) -> Path:
    """A backup of a home with two conversations, an adapter and a setting."""
    say(store, "Hi", "Hello")
    unit = corrected(store, "What is a heron?", "A fish.", "A wading bird.")
    made = adapter(store, b"weights", [(unit, UnitUse.TRAINED)])
    adapters.publish(store, made.id, {"passed": True})
    settings.put(store, settings.MIN_UNITS, 7)
    path = tmp_path / "mynah.tar.gz"
    contents = backup.write(store, path, "1.0")
    assert (contents.conversations, contents.messages, contents.adapters) == (2, 4, 1)
    return path


@pytest.fixture
def elsewhere(tmp_path: Path) -> Home:
    return Home(tmp_path / "elsewhere").open()


def everything(home: Home) -> tuple[list[str], dict[str, bytes]]:
    """All rows, and all adapter files."""
    with Store.open(home) as store:
        rows = list(store.conn.iterdump())
    files = {
        str(path.relative_to(home.adapters)): path.read_bytes()
        for path in sorted(home.adapters.rglob("*"))
        if path.is_file()
    }
    return rows, files


def packed(path: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """A backup with its members changed, and a list of contents that is what `change` leaves it."""
    with tarfile.open(path) as archive:
        members = {info.name: archive.extractfile(info).read() for info in archive}  # type: ignore[union-attr]
    change(members)
    spoilt = path.with_name("spoilt.tar.gz")
    with tarfile.open(spoilt, "w:gz") as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return spoilt


class TestBackup:
    def test_it_is_private_and_names_nobody(self, saved: Path) -> None:
        assert stat.S_IMODE(saved.stat().st_mode) == 0o600
        with tarfile.open(saved) as archive:
            assert {(info.uid, info.uname) for info in archive} == {(0, "")}

    def test_it_overwrites_nothing_and_leaves_nothing(self, store: Store, saved: Path) -> None:
        before = saved.read_bytes()
        with pytest.raises(UsageError, match="exists already"):
            backup.write(store, saved, "1.0")
        assert saved.read_bytes() == before
        assert list(store.home.scratch.iterdir()) == []
        with pytest.raises(MynahError, match="cannot write"):
            backup.write(store, Path("/proc/nowhere/file"), "1.0")

    def test_it_is_consistent_while_others_write(self, store: Store, home: Home, tmp_path: Path) -> None:
        enough = threading.Event()

        def chat() -> None:
            with Store.open(home) as mine:
                while not enough.is_set():
                    say(mine, "question", "answer")

        writer = threading.Thread(target=chat)
        writer.start()
        try:
            for number in range(5):
                backup.write(store, tmp_path / f"{number}.tar.gz", "1.0")
        finally:
            enough.set()
            writer.join()
        for number in range(5):
            target = Home(tmp_path / f"home{number}").open()
            restored = restore.restore(target, tmp_path / f"{number}.tar.gz", replace=False)
            # The last turn may be at any of its three writes: conversation, question, reply.
            assert 0 <= 2 * restored.conversations - restored.messages <= 2


class TestRestore:
    def test_everything_comes_back(self, home: Home, saved: Path, elsewhere: Home) -> None:
        restored = restore.restore(elsewhere, saved, replace=False)
        assert (restored.conversations, restored.messages, restored.adapters) == (2, 4, 1)
        assert everything(elsewhere) == everything(home)
        with Store.open(elsewhere) as store:
            assert store.conn.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
            (found,) = adapters.list_(store)
            assert (adapters.files(store, found.id) / adapters.GGUF_NAME).read_bytes() == b"weights"
        assert {stat.S_IMODE(path.stat().st_mode) for path in elsewhere.root.rglob("*")} == {0o700, 0o600}
        elsewhere.open()

    def test_a_home_that_holds_something_is_kept(self, saved: Path, elsewhere: Home) -> None:
        with Store.open(elsewhere) as store:
            say(store, "mine", "yours")
        before = everything(elsewhere)
        with pytest.raises(UsageError, match="holds conversations already"):
            restore.restore(elsewhere, saved, replace=False)
        assert everything(elsewhere) == before

    def test_replacing_takes_the_old_away(self, home: Home, saved: Path, elsewhere: Home) -> None:
        with Store.open(elsewhere) as store:
            unit = corrected(store, "mine", "yours", "ours")
            adapter(store, b"old weights", [(unit, UnitUse.TRAINED)])
        restore.restore(elsewhere, saved, replace=True)
        assert everything(elsewhere) == everything(home)

    def test_an_open_chat_sees_what_was_restored(self, store: Store, saved: Path) -> None:
        say(store, "said later", "gone after")
        restore.restore(store.home, saved, replace=True)
        assert {each.title for each in conversations.list_(store)} == {"Hi", "What is a heron?"}

    def test_a_damaged_database_is_moved_aside(self, store: Store, home: Home, saved: Path) -> None:
        rows = exported(store, Format.ATIF)
        store.close()
        home.db.write_bytes(b"SQLite format 3\x00" + b"\xff" * 9000)
        with pytest.raises(UsageError, match="--replace"):
            restore.restore(home, saved, replace=False)
        restored = restore.restore(home, saved, replace=True)
        assert restored.kept_aside is not None
        assert restored.kept_aside.read_bytes().endswith(b"\xff" * 9000)
        with Store.open(home) as opened:
            assert exported(opened, Format.ATIF) == rows

    def test_an_adapter_that_was_damaged_is_mended(self, store: Store, home: Home, saved: Path) -> None:
        (found,) = adapters.list_(store)
        path = adapters.files(store, found.id) / adapters.GGUF_NAME
        path.write_bytes(b"weighty")
        restore.restore(home, saved, replace=True)
        assert path.read_bytes() == b"weights"

    @pytest.mark.parametrize("lock", ["host_lock", "learner_lock"])
    def test_not_while_mynah_runs(self, saved: Path, elsewhere: Home, lock: str) -> None:
        with locked(getattr(elsewhere, lock), "host"), pytest.raises(HomeLocked, match="mynah stop"):
            restore.restore(elsewhere, saved, replace=True)

    def test_an_older_backup_is_brought_up_to_date(
        self, saved: Path, elsewhere: Home, tmp_path: Path
    ) -> None:
        def old(members: dict[str, bytes]) -> None:
            path = tmp_path / "old.db"
            path.write_bytes(members["mynah.db"])
            with closing(sqlite3.connect(path)) as connection:
                connection.executescript(
                    "DROP TABLE origins; DROP TABLE events; DROP TABLE consents; DROP TABLE forgettings;"
                    "PRAGMA user_version = 1; DELETE FROM _sqlite_migrations WHERE name NOT LIKE 'm001%'"
                )
            members["mynah.db"] = path.read_bytes()
            relist(members, schema=1)

        assert restore.restore(elsewhere, packed(saved, old), replace=False).messages == 4
        with Store.open(elsewhere) as store:
            assert store.conn.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION
            assert store.conn.execute("SELECT count(*) FROM origins").fetchone()[0] == 0


def relist(members: dict[str, bytes], **changes: object) -> None:
    """Write the list of contents anew, as somebody would who forges a backup."""
    import hashlib

    manifest = json.loads(members["manifest.json"])
    manifest["files"] = {
        name: {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        for name, data in members.items()
        if name != "manifest.json"
    }
    members["manifest.json"] = json.dumps(manifest | changes).encode()


def _flip(members: dict[str, bytes]) -> None:
    data = bytearray(members["mynah.db"])
    data[5000] ^= 0xFF
    members["mynah.db"] = bytes(data)


def _corrupt(members: dict[str, bytes]) -> None:
    members["mynah.db"] = members["mynah.db"][:4096] + b"\xee" * (len(members["mynah.db"]) - 4096)
    relist(members)


def _escape(members: dict[str, bytes]) -> None:
    members["adapters/../../escaped"] = b"x"
    relist(members)


def _smuggle(members: dict[str, bytes]) -> None:
    members["adapters/abc/extra.gguf"] = b"x"


def _lose(members: dict[str, bytes]) -> None:
    del members["mynah.db"]


def _newer(members: dict[str, bytes]) -> None:
    relist(members, schema=SCHEMA_VERSION + 1)


class TestDamagedBackups:
    @pytest.mark.parametrize(
        ("change", "error"),
        [
            (_flip, ExchangeFileError),
            (_corrupt, ExchangeFileError),
            (_escape, ExchangeFileError),
            (_smuggle, ExchangeFileError),
            (_lose, ExchangeFileError),
            (_newer, SchemaTooNew),
        ],
    )
    def test_nothing_is_changed(
        self,
        saved: Path,
        elsewhere: Home,
        change: Callable[[dict[str, bytes]], None],
        error: type[MynahError],
    ) -> None:
        with Store.open(elsewhere) as store:
            say(store, "mine", "yours")
        self.refused(packed(saved, change), elsewhere, error)

    def test_a_file_that_is_cut_short_or_something_else(self, saved: Path, elsewhere: Home) -> None:
        whole = saved.read_bytes()
        for content in (
            whole[: len(whole) // 2],
            whole[: -len(whole) // 9],
            b"",
            b"text",
            gzip.compress(b"text"),
        ):
            path = saved.with_name("other.tar.gz")
            path.write_bytes(content)
            self.refused(path, elsewhere, ExchangeFileError)
        self.refused(saved.with_name("absent"), elsewhere, NotFound)
        self.refused(saved.parent, elsewhere, ExchangeFileError)

    def test_a_link_in_the_archive(self, saved: Path, elsewhere: Home) -> None:
        path = saved.with_name("link.tar.gz")
        with tarfile.open(saved) as archive, tarfile.open(path, "w:gz") as made:
            for info in archive:
                if info.name == "mynah.db":
                    info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
                    made.addfile(info)
                else:
                    made.addfile(info, archive.extractfile(info))
        self.refused(path, elsewhere, ExchangeFileError)

    def refused(self, path: Path, home: Home, error: type[MynahError]) -> None:
        before = everything(home)
        with pytest.raises(error) as caught:
            restore.restore(home, path, replace=True)
        assert "\n" not in str(caught.value)
        assert everything(home) == before
        assert list(home.scratch.iterdir()) == []
        assert not (home.root.parent / "escaped").exists()


def test_a_disk_that_fills_up_leaves_no_half_backup(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    say(store, "Hi", "Hello")
    monkeypatch.setattr(tarfile.TarFile, "add", full)
    with pytest.raises(MynahError, match="full"):
        backup.write(store, tmp_path / "b.tar.gz", "1.0")
    assert not (tmp_path / "b.tar.gz").exists()
    assert shutil.disk_usage(tmp_path).free > 0
