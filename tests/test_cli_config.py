"""Settings by command: documented, checked, one line when something is wrong. And completion in a real shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from store import options, settings
from store.db import Store
from store.home import Home
from tests.cli_helpers import Mynah, runner
from tests.write_settings_page import PAGE, page

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def test_every_setting_is_documented() -> None:
    assert {option.key for option in options.OPTIONS} == set(settings.DEFAULTS)


def test_the_page_of_settings_is_what_the_table_says() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run `make docs`"


@pytest.mark.parametrize(
    ("key", "typed", "value"),
    [
        ("learning.min_units", "8", 8),
        ("learning.idle_seconds", "2.5", 2.5),
        ("host.idle_seconds", "60", 60.0),
        ("host.context", "8192", 8192),
        ("chat.titles", "off", False),
        ("chat.titles", "YES", True),
        ("chat.system_prompt", "You are a parrot [/].", "You are a parrot [/]."),
        ("privacy.words", "Ada, Mynah Street 5 ,", ["Ada", "Mynah Street 5"]),
    ],
)
def test_a_setting_is_changed_read_and_reset(
    mynah: Mynah, store: Store, key: str, typed: str, value: object
) -> None:
    changed = mynah("config", "set", key, *typed.split(" "), "--json")
    assert changed.code == 0
    assert json.loads(changed.out)["value"] == value
    assert settings.get(store, key) == value
    assert mynah("config", "get", key).out.strip() == options.shown(value)
    assert mynah("config", "unset", key).code == 0
    assert settings.get(store, key) == settings.DEFAULTS[key]


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("learning.min_units", "0", "takes a whole number from 1 to 1000, not '0'"),
        ("learning.min_units", "many", "takes a whole number"),
        ("learning.idle_seconds", "nan", "takes seconds from 0"),
        ("host.context", "1e4", "takes a whole number from 512"),
        ("chat.titles", "perhaps", "takes on or off"),
        ("chat.system_prompt", "  ", "takes a text"),
        ("learning.teacher", "http://example.org/v1", "beyond this machine https"),
        ("learning.teacher", "http://me:secret@127.0.0.1/v1", "or an address such as"),
        ("model", "other", "is changed with `mynah models use`"),
        ("adapter.pinned", "v3", "is changed with `mynah adapters pin`"),
    ],
)
def test_what_does_not_fit_is_refused_in_one_line_and_changes_nothing(
    mynah: Mynah, store: Store, key: str, typed: str, said: str
) -> None:
    ran = mynah("config", "set", key, typed)
    assert ran.code == 2
    assert ran.out == ""
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert settings.get(store, key) == settings.DEFAULTS[key]


def test_an_unknown_setting_names_near_ones(mynah: Mynah) -> None:
    ran = mynah("config", "get", "learning.minunits")
    assert ran.code == 3
    assert "did you mean learning.min_units" in ran.err


def test_the_list_shows_everything_and_what_was_changed(mynah: Mynah, home: Home) -> None:
    mynah("config", "set", "learning.min_units", "9")
    listed = mynah("config", "list").out
    assert all(option.key in listed for option in options.OPTIONS)
    line = next(line for line in listed.splitlines() if line.startswith("learning.min_units"))
    assert line.split()[1:3] == ["9", "changed"]
    data = json.loads(mynah("config", "list", "--json").out)
    assert {each["key"] for each in data} == set(settings.DEFAULTS)
    assert mynah("config", "path").out.strip() == str(home.db)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_its_script(mynah: Mynah, shell: str) -> None:
    ran = mynah("completion", shell)
    assert ran.code == 0
    assert f"_MYNAH_COMPLETE={shell}_complete" in ran.out
    assert ran.err == ""


def test_an_unknown_shell_is_a_usage_error(mynah: Mynah) -> None:
    assert mynah("completion", "cmd").code == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_commands_and_settings(home: Home, tmp_path: Path) -> None:
    program = tmp_path / "mynah"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m app.cli.main "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(mynah completion bash)"\n'
        'completed() { COMPREPLY=(); _mynah_completion mynah; echo "${COMPREPLY[@]}"; }\n'
        "COMP_WORDS=(mynah conver); COMP_CWORD=1; completed\n"
        "COMP_WORDS=(mynah config set learning.m); COMP_CWORD=3; completed\n"
    )
    environment = {
        **os.environ,
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "MYNAH_HOME": str(home.root),
    }
    ran = subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        timeout=120,
        check=False,
    )
    assert ran.stdout.splitlines() == ["conversations", "learning.min_units"], ran.stderr
