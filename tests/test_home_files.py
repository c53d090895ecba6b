"""Every file of a used home is the owner's alone, and a home that is not is refused before anything is written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.cli.main import run
from app.host.client import TurnRequest
from app.service import Service
from learner import loop
from store import adapters, encryption, runs
from store.db import Store
from store.errors import HomeError
from store.exchange import backup
from store.home import Home
from store.types import Trigger, UnitUse
from tests.cli_helpers import Untouchable
from tests.scripted import scripted_host
from tests.seed import adapter, corrected


def exposed(root: Path) -> dict[str, str]:
    """Everything in a directory that is not private to its owner, with its mode."""
    found = {}
    for path in [root, *root.rglob("*")]:
        mode = path.lstat().st_mode
        wanted = 0o700 if stat.S_ISDIR(mode) else 0o600
        if stat.S_ISLNK(mode) or stat.S_IMODE(mode) != wanted:
            found[str(path)] = stat.filemode(mode)
    return found


@pytest.fixture
def loose() -> None:
    """A process whose mask lets everybody read what it makes: the home must not depend on it."""
    os.umask(0o000)


@pytest.mark.usefixtures("loose")
def test_every_file_of_a_used_home_is_private(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scripted_host(home) as client:
        assert exposed(home.root) == {}
        list(client.turn(TurnRequest(text="echo hello")))
        list(client.turn(TurnRequest(text="fail 2")))
        assert exposed(home.root) == {}
    with Store.open(home) as store:
        made = adapter(store, b"weights", [(corrected(store, "Q", "A", "B"), UnitUse.TRAINED)])
        adapters.publish(store, made.id, {"passed": True})
        runs.request(store, Trigger.MANUAL)
        saved = tmp_path / "saved.tar.gz"
        backup.write(store, saved, "1")
        assert exposed(home.root) == {}
    loop.work(home, linger=0.0)
    monkeypatch.setattr("app.cli.conversations.service", lambda: 1 / 0)
    monkeypatch.setattr("sys.stdin", Untouchable())
    assert run(["conversations", "list"]) == 1
    assert (home.logs / "cli.log").exists()
    encryption.encrypt(home, "correct horse battery", lambda _share: None)
    encryption.decrypt(home, lambda _share: None)
    names = {path.name for path in home.root.rglob("*") if path.is_file()}
    assert {"mynah.db", "adapter.gguf", "host.log", "cli.log", "activity"} <= names
    assert exposed(home.root) == {}
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


class TestRefusals:
    @pytest.mark.parametrize("name", ["mynah.db", "mynah.db-wal", "host.json", "activity", "host.lock"])
    def test_a_file_that_others_can_read(self, home: Home, name: str) -> None:
        path = home.root / name
        path.touch()
        path.chmod(0o640)
        with pytest.raises(HomeError, match=f"run `chmod 600 {path}`"):
            home.open()

    @pytest.mark.parametrize("name", ["adapters", "logs", "scratch"])
    def test_a_directory_that_others_can_read(self, home: Home, name: str) -> None:
        path = home.root / name
        path.chmod(0o750)
        with pytest.raises(HomeError, match=f"run `chmod 700 {path}`"):
            home.open()

    def test_a_data_directory_that_is_a_link(self, home: Home, tmp_path: Path) -> None:
        """Whoever can turn the link can put another directory in its place."""
        link = tmp_path / "link"
        link.symlink_to(home.root)
        with pytest.raises(HomeError, match=f"is a symbolic link: set MYNAH_HOME to {home.root}"):
            Home(link).open()
        with pytest.raises(HomeError):
            Service(Home(link))

    @pytest.mark.parametrize("name", ["adapters", "logs", "mynah.db"])
    def test_a_link_inside_it(self, home: Home, tmp_path: Path, name: str) -> None:
        elsewhere, path = tmp_path / "elsewhere", home.root / name
        elsewhere.mkdir(mode=0o700)
        if path.exists():
            path.rmdir() if path.is_dir() else path.unlink()
        path.symlink_to(elsewhere)
        with pytest.raises(HomeError, match="is a symbolic link"):
            home.open()

    def test_somebody_elses_directory(self, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        with pytest.raises(HomeError, match="belongs to another user"):
            home.open()

    def test_links_above_it_are_the_owners_business(self, home: Home, tmp_path: Path) -> None:
        above = tmp_path / "above"
        above.symlink_to(tmp_path)
        Home(above / home.root.name).open()
