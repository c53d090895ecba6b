"""The database file: private, migrated, shared by several writers, and never made worse by a failure."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from app.host.supervisor import gather
from store import conversations, search, settings, signals, units
from store.activity import LEASE_SECONDS, Activity
from store.db import SCHEMA_VERSION, Store
from store.errors import DiskFull, HomeError, HomeLocked, SchemaTooNew
from store.home import Home, locked
from store.types import SignalKind
from tests.seed import START, say

WRITERS, TURNS = 4, 30
ROOT = Path(__file__).resolve().parent.parent


def test_everything_in_the_home_is_private(home: Home) -> None:
    with Store.open(home) as store:
        say(store, "Hi", "Hello")
        for path in [home.root, *home.root.rglob("*")]:
            mode = stat.S_IMODE(path.stat().st_mode)
            assert mode == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
def test_a_home_open_to_others_is_refused(home: Home, mode: int) -> None:
    home.root.chmod(mode)
    with pytest.raises(HomeError, match="run `chmod 700"):
        home.open()
    assert stat.S_IMODE(home.root.stat().st_mode) == mode


def test_a_database_open_to_others_is_refused(home: Home) -> None:
    Store.open(home).close()
    home.db.chmod(0o644)
    with pytest.raises(HomeError, match="run `chmod 600"):
        home.open()


@pytest.mark.parametrize("root", ["/dev/null/home", "/proc/mynah"])
def test_a_place_that_cannot_hold_a_home_is_refused_in_one_line(root: str) -> None:
    with pytest.raises(HomeError) as caught:
        Home(Path(root)).open()
    assert "MYNAH_HOME" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_in_the_way_is_left_alone(tmp_path: Path) -> None:
    root = tmp_path / "file"
    root.write_text("mine")
    with pytest.raises(HomeError, match="not a directory"):
        Home(root).open()
    assert root.read_text() == "mine"


def test_a_newer_database_is_left_untouched(home: Home) -> None:
    with Store.open(home) as store:
        store.conn.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before = home.db.read_bytes()
    with pytest.raises(SchemaTooNew, match="update Mynah"):
        Store.open(home)
    assert home.db.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"not a database, not at all" * 100, b"SQLite format 3\x00" + b"\xff" * 5000]
)
def test_a_file_that_is_no_database_is_left_untouched(home: Home, content: bytes) -> None:
    home.db.write_bytes(content)
    with pytest.raises(HomeError, match="not a readable database"):
        Store.open(home)
    assert home.db.read_bytes() == content


def test_a_failed_migration_leaves_the_old_schema(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    from store import migrations

    def broken(db: object) -> None:
        raise RuntimeError("power cut")

    with monkeypatch.context() as patch:
        patch.setattr(migrations, "_learning", broken)
        with pytest.raises(RuntimeError, match="power cut"):
            Store.open(home)
    tables = (
        sqlite3.connect(home.db).execute("SELECT name FROM sqlite_master WHERE name = 'messages'").fetchall()
    )
    assert tables == []
    with Store.open(home) as store:
        assert conversations.list_(store) == []


def test_a_write_that_fails_changes_nothing(home: Home) -> None:
    with Store.open(home) as store:
        with pytest.raises(ZeroDivisionError), store.write():
            settings.put(store, settings.MIN_UNITS, 9)
            raise ZeroDivisionError
        assert settings.get(store, settings.MIN_UNITS) == 4


def test_a_full_disk_is_one_line_and_loses_nothing(home: Home) -> None:
    with Store.open(home) as store:
        conversation, _, reply = say(store, "Hi", "Hello")
        pages = store.conn.execute("PRAGMA page_count").fetchone()[0]
        store.conn.execute(f"PRAGMA max_page_count = {pages + 1}")
        with pytest.raises(DiskFull, match="free some space"):
            conversations.append_user(store, conversation, "x" * 1_000_000, reply)
        store.conn.execute("PRAGMA max_page_count = 1000000")
        assert len(conversations.path(store, conversations.get(store, conversation).head or "")) == 2
        assert store.conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"


def _write_turns(root: str, name: str) -> None:
    with Store.open(Home(Path(root))) as store:
        for number in range(TURNS):
            say(store, f"{name} {number}", "reply")


def test_four_writers_lose_no_row_and_meet_no_lock(home: Home) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_turns, args=(str(home.root), f"w{n}")) for n in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    with Store.open(home) as store:
        assert store.conn.execute("SELECT count(*) FROM messages").fetchone()[0] == WRITERS * TURNS * 2


def _work_mixed(root: str, number: int) -> None:
    """What host, chat, learner and command line do to one database, by the number of the process."""
    with Store.open(Home(Path(root))) as store:
        for turn in range(15):
            conversation, _, reply = say(store, f"question {number} {turn}", "an answer to find")
            signals.record(store, reply, SignalKind.THUMB, value=1.0 if turn % 2 else -1.0)
            open_ = conversations.begin_reply(
                store, conversation, conversations.append_user(store, conversation, "more", reply).id, START
            )
            for length in (3, 6, 9):
                conversations.checkpoint(store, open_.id, "streaming"[:length])
            assert search.search(store, f"question {number} {turn}", 200)
            assert gather(store, 0.0).fresh > 0
            if turn % 3 == 0:
                conversations.delete(store, conversation)


def test_four_processes_of_mixed_work_lose_nothing_and_meet_no_lock(home: Home) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_work_mixed, args=(str(home.root), n)) for n in range(WRITERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0] * WRITERS
    kept = WRITERS * 10
    with Store.open(home) as store:
        assert store.conn.execute("SELECT count(*) FROM messages").fetchone()[0] == kept * 4
        assert store.conn.execute("SELECT count(*) FROM signals").fetchone()[0] == kept
        assert store.conn.execute("SELECT count(*) FROM units").fetchone()[0] == kept
        assert len(search.search(store, "streaming", 200)) == kept
        assert conversations.recover(store) == kept
        assert len(units.unjudged(store)) == kept
        assert store.conn.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert store.conn.execute("PRAGMA foreign_key_check").fetchall() == []


def test_a_lock_has_one_holder(home: Home) -> None:
    busy = pytest.raises(HomeLocked, match=f"process {os.getpid()}")
    with locked(home.host_lock, "host"), busy, locked(home.host_lock, "host"):
        pass
    with locked(home.host_lock, "host"):
        pass


def test_a_byte_says_without_python_whether_the_lease_is_held(home: Home) -> None:
    with Activity(home) as holder, Activity(home) as waiter:
        address = waiter.signal
        assert ctypes.string_at(address, 1) == b"\x00"
        for _ in range(300):
            holder.hold()
            assert ctypes.string_at(address, 1) != b"\x00"
        holder.release()
        assert ctypes.string_at(address, 1) == b"\x00"


def test_a_lease_ends_by_itself(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: moment)
    with Activity(home) as holder, Activity(home) as watcher:
        assert not watcher.held
        holder.hold()
        assert watcher.held
        moment += LEASE_SECONDS + 0.1
        assert not watcher.held
        holder.hold()
        holder.release()
        assert not watcher.held
        holder.hold()
        moment = 5.0  # the machine was started again
        assert not watcher.held


def test_a_second_connection_keeps_the_locks_of_the_first(home: Home) -> None:
    """Another process that comes and goes must not take the log away from under two open connections."""
    script = (
        "from store.db import Store; from store.home import Home; from store import conversations\n"
        "with Store.open(Home.default()) as store: print(len(conversations.list_(store)))"
    )

    def seen_elsewhere() -> int:
        command = [sys.executable, "-c", script]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=240, check=True)
        return int(ran.stdout)

    with Store.open(home) as first, Store.open(home):
        for number in range(1, 4):
            conversations.create(first, f"conversation {number}", "test")
            assert seen_elsewhere() == number
