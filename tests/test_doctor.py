"""The doctor finds what is wrong, changes nothing, and works where nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app import doctor
from app.doctor import Check, Status, examine, healthy
from store.db import Store
from store.home import Home
from tests.cli_helpers import Mynah, runner


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def found(home: Home, name: str) -> Check:
    return next(check for check in examine(home) if check.name == name)


def test_healthy_machine(mynah: Mynah) -> None:
    ran = mynah("doctor", "--json")
    report = json.loads(ran.out)
    assert (ran.code, ran.err) == (0, "")
    assert report["ok"] is True
    assert [check["name"] for check in report["checks"]] == [
        *("python", "packages", "model", "embeddings", "data", "database", "disk", "machine", "gpu"),
        *("host", "learner"),
    ]
    assert set(report["checks"][0]) == {"name", "status", "detail", "remedy"}


def test_it_makes_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "absent")
    assert healthy(examine(home))
    assert not home.root.exists()


def test_missing_package(home: Home, mynah: Mynah, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", (*doctor.PACKAGES, "no-such-distribution"))
    ran = mynah("doctor")
    assert ran.code == 1
    assert "MISSING  packages    not installed: no-such-distribution  → run `make chat`" in ran.out


def test_open_directory(home: Home) -> None:
    home.root.chmod(0o750)
    check = found(home, "data")
    home.root.chmod(0o700)
    assert (check.status, check.remedy) == (Status.MISSING, f"chmod 700 {home.root}")


def test_damaged_database(home: Home) -> None:
    with Store.open(home):
        pass
    assert found(home, "database").detail.endswith("sound")
    home.db.write_bytes(b"no database" * 1000)
    assert found(home, "database").status is Status.MISSING


def test_chosen_model_that_is_gone(home: Home, tmp_path: Path) -> None:
    from store import settings

    with Store.open(home) as store:
        settings.put(store, settings.MODEL, str(tmp_path / "gone.gguf"))
    check = found(home, "model")
    assert check.status is Status.MISSING
    assert "gone.gguf" in check.detail


def test_little_space(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "NEEDED_DISK", 2**62)
    assert found(home, "disk").status is Status.MISSING
