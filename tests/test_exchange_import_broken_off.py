"""An import that is broken off, by a key, a full disk or a kill, leaves whole conversations and lets others write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from store import conversations
from store.db import Store
from store.errors import DiskFull
from store.exchange import intake
from store.exchange.intake import import_file
from store.home import Home
from tests.conftest import ROOT
from tests.exchange_helpers import chat, node, written
from tests.seed import say


def test_a_failure_in_the_middle_leaves_whole_conversations(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_HOLD_SECONDS", 0.0)
    path = written(tmp_path / "in.jsonl", [chat(str(number)) for number in range(4)])
    stored = store_messages(monkeypatch, fail_at=5)
    with pytest.raises(KeyboardInterrupt):
        import_file(store, path)
    each = len(chat("x")["mapping"]) - 1
    assert 1 <= len(conversations.list_(store)) < 4
    assert {kept.messages for kept in conversations.list_(store)} == {each}
    kept = len(conversations.list_(store))
    stored.clear()
    report = import_file(store, path)
    assert (report.added, report.unchanged) == (4 - kept, kept)
    again = import_file(store, path)
    assert (again.added, again.extended, again.unchanged) == (0, 0, 4)


def test_a_full_disk_says_how_much_is_in(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "_HOLD_SECONDS", 0.0)
    big = [chat(str(number), {"a1": node("user", "x" * 200_000, None)}) for number in range(5)]
    path = written(tmp_path / "in.jsonl", big)
    pages = store.conn.execute("PRAGMA page_count").fetchone()[0]
    store.conn.execute(f"PRAGMA max_page_count = {pages + 200}")
    with pytest.raises(DiskFull, match=r"[1-4] of 5 conversations of the file are in"):
        import_file(store, path)
    store.conn.execute("PRAGMA max_page_count = 1000000")
    kept = len(conversations.list_(store))
    assert import_file(store, path).added == 5 - kept


def test_a_kill_in_the_middle_leaves_whole_conversations(home: Home, tmp_path: Path) -> None:
    path = written(tmp_path / "in.jsonl", [chat(str(number)) for number in range(30)])
    script = (
        "import os, signal, sys\nfrom pathlib import Path\nfrom store.db import Store\n"
        "from store.exchange import intake\nfrom store.home import Home\n"
        "intake._HOLD_SECONDS, store_message, seen = 0.0, intake._Writer._store_message, []\n"
        "def dying(*words):\n"
        "    seen.append(words)\n"
        "    if len(seen) == 20: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    store_message(*words)\n"
        "intake._Writer._store_message = dying\n"
        "intake.import_file(Store.open(Home.default().open()), Path(sys.argv[1]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(path)], cwd=ROOT, env=dict(os.environ), timeout=120
    )
    assert ran.returncode == -signal.SIGKILL
    with Store.open(home) as store:
        kept = conversations.list_(store)
        assert 1 <= len(kept) < 30
        assert {each.messages for each in kept} == {len(chat("x")["mapping"]) - 1}
        assert import_file(store, path).added == 30 - len(kept)
        assert len(conversations.list_(store)) == 30


def test_a_chat_goes_on_beside_a_long_import(home: Home, tmp_path: Path) -> None:
    """Others get the lock between two conversations, not only after the last."""
    path = written(tmp_path / "in.jsonl", [chat(str(number)) for number in range(400)])
    seen: list[int] = []
    ended = threading.Event()

    def talk_on() -> None:
        with Store.open(home) as mine:
            while not ended.is_set():
                say(mine, "still there?", "yes")
                seen.append(len(conversations.list_(mine, 1000)))

    talker = threading.Thread(target=talk_on)
    with Store.open(home) as store, pytest.MonkeyPatch.context() as patch:
        patch.setattr(intake, "_HOLD_SECONDS", 0.02)
        talker.start()
        report = import_file(store, path)
        ended.set()
        talker.join()
        assert report.added == 400
        spoken = [count for number, count in enumerate(seen) if 20 < count - number < 380]
        assert len(spoken) >= 3, "no turn got in while the import went on"
        assert store.conn.execute("SELECT count(*) FROM conversations").fetchone()[0] == 400 + len(seen)


def store_messages(monkeypatch: pytest.MonkeyPatch, fail_at: int) -> list[object]:
    """Ctrl-C while one of the messages is being stored; the list of those before it, to be emptied to go on."""
    real, seen = intake._Writer._store_message, [object()]

    def stored(self: Any, *words: Any) -> None:
        if seen:
            seen.append(words)
            if len(seen) > fail_at:
                raise KeyboardInterrupt
        real(self, *words)

    monkeypatch.setattr(intake._Writer, "_store_message", stored)
    return seen
