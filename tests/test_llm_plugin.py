"""Mynah inside `llm`: a model that needs no setting up, feedback on its last reply, and a light start."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from app.host.client import HostClient
from store import conversations, signals, units
from store.db import Store
from store.types import Consent, SignalKind
from tests.conftest import ROOT
from tests.endpoint_helpers import module_host
from tests.scripted import MODEL


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostClient]:
    with module_host(tmp_path_factory.mktemp("llm"), "--context", "1024") as client:
        yield client


@pytest.fixture(autouse=True)
def _here(host: HostClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MYNAH_HOME", str(host.home.root))
    monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
    monkeypatch.setenv("LLM_LOAD_PLUGINS", "")


@pytest.fixture
def model() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from app.llm_plugin import Chat

        return Chat("mynah")


@pytest.fixture
def store(host: HostClient) -> Iterator[Store]:
    with Store.open(host.home) as opened:
        yield opened


def command(*words: str) -> Any:
    from app.llm_plugin import register_commands

    group = click.Group()
    register_commands(group)
    return CliRunner().invoke(group, ["mynah", *words])


@pytest.mark.parametrize("stream", [True, False])
def test_a_conversation_is_one_conversation(model: Any, store: Store, stream: bool) -> None:
    conversation = model.conversation()
    first = conversation.prompt(f"echo first {stream}", system="be kind", stream=stream)
    assert first.text() == f"first {stream}"
    assert (first.input_tokens > 0, first.output_tokens) == (True, 3)
    second = conversation.prompt("count 5", stream=stream)
    assert second.text() == "1 2 3 4 5 "
    found = second.response_json
    assert found["model"] == MODEL
    path = conversations.path(store, found["mynah"]["message"])
    assert [row.text for row in path] == [
        *("be kind", f"echo first {stream}", f"first {stream}", "count 5", "1 2 3 4 5 ")
    ]


def test_options_reach_the_host(model: Any, store: Store) -> None:
    reply = model.prompt("count 9", max_tokens=2, temperature=0.0, seed=4)
    assert reply.text() == "1 2 "
    row = conversations.get_message(store, reply.response_json["mynah"]["message"])
    assert (row.sampler["temperature"], row.sampler["seed"]) == (0.0, 4)


def test_learn_off_keeps_it_apart(model: Any, store: Store) -> None:
    reply = model.prompt("echo secret", learn=False)
    assert reply.text() == "secret"
    row = conversations.get(store, reply.response_json["mynah"]["conversation"])
    assert (row.source, row.train) == (conversations.ASIDE, Consent.DENY)


def test_a_refusal_is_an_error_in_words(model: Any) -> None:
    import llm

    with pytest.raises(llm.ModelError, match="too long"):
        model.prompt("x" * 5000).text()
    with pytest.raises(llm.ModelError, match="the script says so"):
        model.prompt("fail 2").text()


def test_feedback_goes_to_the_last_reply(model: Any, store: Store) -> None:
    model.prompt("echo other").text()
    reply = model.prompt("echo rate me")
    reply.text()
    message = reply.response_json["mynah"]["message"]
    done = command("rate", "down", "--note", "shorter")
    assert done.exit_code == 0, done.output
    assert done.output == f"rate me\n{message}: queued\n"
    assert command("correct", "rated", "--message", message[:8]).exit_code == 0
    kinds = {signal.kind for signal in signals.all_of(store, message)}
    assert {SignalKind.THUMB, SignalKind.CORRECTION} <= kinds
    unit = units.of_message(store, message)
    assert unit is not None
    assert unit.target == "rated"


def test_feedback_that_cannot_be_used() -> None:
    assert command("rate", "up", "--note", "x").exit_code == 2
    assert command("rate", "sideways").exit_code == 2
    done = command("correct", "x", "--message", "mnone")
    assert (done.exit_code, done.output.count("\n")) == (1, 1)
    assert done.output.startswith("Error: ")


def test_llm_finds_the_plugin_and_starts_light() -> None:
    """As installed: the entry point names the module, which imports nothing of ours before it is used."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["llm"] == {"mynah": "app.llm_plugin"}
    code = (
        "import sys, llm\nbefore = set(sys.modules)\nimport app.llm_plugin as plugin\n"
        "models = []\nplugin.register_models(models.append)\n"
        "ours = {name for name in set(sys.modules) - before if name.split('.')[0] in ('app', 'store', 'learner')}\n"
        "assert ours == {'app', 'app.llm_plugin'}, ours\n"
        "assert [model.model_id for model in models] == ['mynah', 'mynah@base']\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_the_program_itself_never_imports_llm() -> None:
    code = "import sys, app.cli.main, app.tui.app, app.host.server\nassert 'llm' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
