"""The command as a process: encodings, pipes, standard input left open, and failures nobody foresaw."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.cli import main
from app.host.events import Done, Started, Token, TurnEvent
from store.db import Store
from store.home import Home
from tests.cli_helpers import talk, written
from tests.stub_host import stub_host

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "app.cli.main"]
REPLY: list[TurnEvent] = [
    Started("j1", "c1", "m1", "m2", None),
    Token("Grüezi, 世界"),
    Done("c1", "m2", "Grüezi, 世界", None, "stop", {}, {}),
]


def mynah(*words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """Run a command whose standard input is a pipe that stays open and says nothing."""
    idle, held = os.pipe()
    try:
        return subprocess.run(
            [*COMMAND, *words],
            stdin=idle,
            capture_output=True,
            env={**os.environ, **environment},
            cwd=ROOT,
            timeout=240,
            check=False,
        )
    finally:
        os.close(idle)
        os.close(held)


@pytest.mark.parametrize(
    "locale",
    [{"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}],
    ids=["C", "narrow"],
)
def test_text_is_utf8_under_any_locale(home: Home, locale: dict[str, str]) -> None:
    with stub_host(home, REPLY) as host:
        ran = mynah("ask", "Grüß die 世界", **locale)
    assert ran.stdout == "Grüezi, 世界\n".encode()
    assert host.turns[0]["text"] == "Grüß die 世界"


def test_idle_standard_input_is_left_alone(home: Home) -> None:
    assert mynah("conversations", "list").returncode == 0


def test_reader_that_leaves_early_is_no_failure(home: Home) -> None:
    with Store.open(home) as store:
        conversation = talk(store, "hi", "long answer\n" * 20000).conversation
    with subprocess.Popen(
        [*COMMAND, "conversations", "show", conversation],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize(
    ("closed", "words", "code"),
    [
        ("<&-", "ask -", 2),
        (">&-", "conversations list", 0),
        ("2>&-", "rate m1 up", 3),
        ("<&- >&- 2>&-", "conversations list", 0),
        (">/dev/full", "conversations list --json", 1),
    ],
)
def test_streams_that_are_closed_or_full(home: Home, closed: str, words: str, code: int) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f'"{sys.executable}" -m app.cli.main {words} {closed}'],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=ROOT,
        timeout=240,
        check=False,
    )
    assert ran.returncode == code
    assert b"unexpected" not in ran.stderr


def test_interrupted_while_reading(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted(io.StringIO):
        def read(self, size: int | None = -1) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr(sys, "stdin", Interrupted())
    assert main.run(["ask", "-"]) == 130
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", "mynah: interrupted\n")


def test_private_directory_is_asked_for(home: Home) -> None:
    home.root.chmod(0o755)
    ran = mynah("conversations", "list")
    home.root.chmod(0o700)
    assert ran.returncode == 1
    assert ran.stderr.decode() == (
        f"mynah: {home.root} can be read by other users (mode 0755): "
        f"run `chmod 700 {home.root}` and start again\n"
    )


def test_unforeseen_failure_is_one_line_and_a_log(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("by\nzero")

    monkeypatch.setattr("store.ids.resolve", broken)
    assert main.run(["rate", "m1", "up"]) == 1
    written_out = capsys.readouterr()
    log = home.logs / "cli.log"
    assert written_out.out == ""
    assert (
        written_out.err == f"mynah: unexpected error (ZeroDivisionError: by zero): the details are in {log}\n"
    )
    assert "Traceback" in written(log)


def test_misspelt_command_gets_a_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["adaptors"]) == 2
    assert capsys.readouterr().err == (
        "mynah: there is no command 'adaptors': did you mean adapters? (see `mynah --help`)\n"
    )


def test_group_without_a_command_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["adapters"]) == 2
    written_out = capsys.readouterr()
    assert written_out.out == ""
    assert written_out.err.startswith("Usage: mynah adapters")
    assert "\n  rollback " in written_out.err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["--version"]) == 0
    assert capsys.readouterr().out == "mynah 0.1.0\n"
