"""What commands write and read, without a command around it."""

from __future__ import annotations

import io
import sys

import click
import pytest

from app.cli.bench import measurements
from app.cli.main import COMMANDS, cli, run
from app.cli.output import shown, table, text_argument
from store.errors import UsageError
from tests.write_commands_page import PAGE, page


def test_terminal_gets_no_control_characters() -> None:
    hostile = "\x1b]0;owned\x07a\x1b[2Jb\x9bc\u202ed\te\n"
    assert shown(hostile, to_terminal=True) == "]0;owneda[2Jbcd\te\n"
    assert shown(hostile, to_terminal=False) == hostile


def test_table_counts_wide_characters_twice() -> None:
    lines = table(("name", "n"), [("世界", 1), ("ab", None)])
    assert lines == ["NAME    N", "世界    1", "ab      -"]
    assert table(("name", "n"), []) == []


def test_cells_stay_on_their_line() -> None:
    assert table(("text",), [("a\nb\tc",), ("0010",), ("1e5",)]) == ["TEXT", "a b c", "0010", "1e5"]


@pytest.mark.parametrize(("typed", "read"), [("a\n", "a"), ("a\n\n", "a\n"), ("a", "a"), ("世\r\n", "世\r")])
def test_standard_input_loses_its_last_newline_only(
    monkeypatch: pytest.MonkeyPatch, typed: str, read: str
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(typed, newline=""))
    assert text_argument(("-",), "text") == read


@pytest.mark.parametrize("words", [(), ("",), (" ", "\n")])
def test_no_text_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="there is no question"):
        text_argument(words, "question")


def test_commands_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


def test_every_command_is_there() -> None:
    for name in COMMANDS:
        command = cli.get_command(click.Context(cli), name)
        assert command is not None
        assert command.help


def test_measurements_are_listed_and_unknown_ones_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench"]) == 0
    assert capsys.readouterr().out.split() == measurements()
    assert run(["bench", "nothing"]) == 3
    assert capsys.readouterr().err.startswith("mynah: no measurement is called nothing here: there are ")
