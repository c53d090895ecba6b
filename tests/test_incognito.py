"""Incognito is written nowhere: a random word goes in through every door, and every byte on the disk is searched.

Searched are the whole data directory and the caches, for the word as text and as token ids. Each search is shown to
find a word that was kept, so it can fail.
"""

from __future__ import annotations

import base64
import json
import mmap
import os
import secrets
import signal
import subprocess
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import app.cli.ask
from app.cli.main import run
from app.host.client import HostClient, TurnRequest, ensure_host
from app.host.events import Done, Failed, Started, Token, TurnEvent
from learner import loop
from store import consent, conversations, runs
from store.db import Store
from store.discreet import described
from store.errors import MynahError
from store.home import Home
from store.types import Trigger
from tests.cli_helpers import Untouchable
from tests.conftest import ROOT
from tests.scripted import MODEL, scripted_host


@pytest.fixture
def canary() -> str:
    """A word that nobody has ever written."""
    return f"canary{secrets.token_hex(12)}"


@pytest.fixture
def places(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Where a trace could be: the data directory, a cache of this test's own, and the learner's temporary files."""
    cache, temporary = tmp_path / "cache", tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("MYNAH_CACHE", str(cache))
    monkeypatch.setenv("TMPDIR", str(temporary))
    return [home.root, cache, temporary]


def forms(word: str) -> list[bytes]:
    """A word as it might lie on a disk: text, wide text, base64 at each offset, one token id per byte."""
    plain = word.encode()
    encoded = [base64.b64encode(b"x" * shift + plain)[4:-4] for shift in range(3)]
    return [plain, word.encode("utf-16-le"), *encoded, array("i", list(plain)).tobytes()]


def found(places: list[Path], wanted: list[bytes]) -> list[Path]:
    """The files that hold any of these bytes."""
    return [path for place in places for path in sorted(place.rglob("*")) if _holds(path, wanted)]


def _holds(path: Path, wanted: list[bytes]) -> bool:
    if not path.is_file() or not path.stat().st_size:
        return any(form in os.fsencode(path.name) for form in wanted)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return any(content.find(form) >= 0 for form in wanted)


def ask(client: HostClient, text: str, **fields: object) -> TurnEvent:
    """The last event of a turn."""
    *_, last = client.turn(TurnRequest(text=text, **fields))  # type: ignore[arg-type]
    return last


def before(word: str) -> list[dict[str, str]]:
    """Earlier turns with the word in them, as an incognito chat brings them along."""
    return [{"role": "user", "content": word}, {"role": "assistant", "content": f"{word}."}]


def command(*words: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "app.cli.main", *words], input=text, capture_output=True, text=True, cwd=ROOT
    )


def test_a_kept_chat_is_found_in_every_form(home: Home, places: list[Path], canary: str) -> None:
    with scripted_host(home) as client:
        assert isinstance(ask(client, f"echo {canary}"), Done)
        text, tokens = [canary.encode()], [array("i", list(canary.encode())).tobytes()]
        assert any(home.db.name in path.name for path in found(places, text))
        assert any(home.db.name in path.name for path in found(places, tokens))


class TestDoors:
    @pytest.fixture
    def host(self, home: Home, places: list[Path], canary: str) -> Iterator[HostClient]:
        """A host; when it has ended, the word must be nowhere, nor may there be any conversation."""
        with scripted_host(home) as client:
            yield client
            assert found(places, forms(canary)) == []
        assert found(places, forms(canary)) == []
        with Store.open(home) as store:
            assert store.conn.execute("SELECT count(*) FROM messages").fetchone()[0] == 0
            assert store.conn.execute("SELECT count(*) FROM conversations").fetchone()[0] == 0

    def test_the_command_with_words(self, host: HostClient, canary: str) -> None:
        ran = command("ask", "--incognito", "echo", canary)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{canary}\n", "")

    def test_the_command_with_standard_input(self, host: HostClient, canary: str) -> None:
        ran = command("ask", "--incognito", "--json", "-", text=f"echo {canary}")
        assert json.loads(ran.stdout)["text"] == canary

    def test_the_command_that_is_wrong(self, host: HostClient, canary: str) -> None:
        assert command("ask", "--incognito", "-c", "c1", canary).returncode == 2
        assert command("ask", "--incognito", "--max-tokens", canary, canary).returncode == 2

    def test_our_own_interface_with_earlier_turns(self, host: HostClient, canary: str) -> None:
        assert isinstance(ask(host, f"echo {canary}", incognito=True, incognito_turns=before(canary)), Done)

    def test_a_stopped_reply(self, host: HostClient, canary: str) -> None:
        request = TurnRequest(text="slow 1000", incognito=True, incognito_turns=before(canary))
        with host.turn(request) as stream:
            for event in stream:
                if isinstance(event, Started):
                    assert event.message is None
                    assert host.stop(event.job)
            assert isinstance(event, Done | Failed)
        with host.turn(request) as stream:
            for event in stream:
                if isinstance(event, Token):
                    break

    @pytest.mark.parametrize("fault", ["quote", "unfit", "fail 3", "memory 3"])
    def test_a_fault_that_quotes_the_question(self, host: HostClient, canary: str, fault: str) -> None:
        words = f"{fault} {canary}" if fault in ("quote", "unfit") else fault
        try:
            last = ask(host, words, incognito=True, incognito_turns=before(canary))
        except MynahError:
            assert fault == "unfit"
        else:
            assert isinstance(last, Failed)
        log = (host.home.logs / "host.log").read_text()
        assert "Error" in log
        assert "scripted.py" in log

    def test_a_question_too_long_for_the_model(self, host: HostClient, canary: str) -> None:
        assert isinstance(ask(host, f"{canary} " * 400, incognito=True), Failed)

    @pytest.mark.parametrize("stream", [False, True])
    def test_the_endpoint_told_not_to_store(self, host: HostClient, canary: str, stream: bool) -> None:
        address = f"http://{host.endpoint.host}:{host.endpoint.port}/v1"
        messages = [{"role": "system", "content": canary}, {"role": "user", "content": f"echo {canary}"}]
        with openai.OpenAI(base_url=address, api_key="x", max_retries=0) as client:
            create: Any = client.chat.completions.create
            made = create(model=MODEL, messages=messages, store=False, stream=stream)
            chunks = list(made) if stream else [made]
        text = "".join(
            (each.choices[0].delta.content or "") if stream else each.choices[0].message.content
            for each in chunks
        )
        assert text == canary
        told = chunks[0].model_dump()
        assert told["mynah"]["message"] is None
        assert told["mynah"]["conversation"] is None
        assert told["id"].startswith("chatcmpl-j")

    def test_the_endpoint_with_a_fault(self, host: HostClient, canary: str) -> None:
        address = f"http://{host.endpoint.host}:{host.endpoint.port}/v1/chat/completions"
        for words in (f"quote {canary}", f"unfit {canary}"):
            body = {"messages": [{"role": "user", "content": words}], "store": False}
            assert httpx.post(address, json=body, timeout=120).status_code == 500
        assert httpx.post(address, json={"messages": [], "store": canary}, timeout=120).status_code == 400
        assert httpx.post(address, content=f'{{"{canary}'.encode(), timeout=120).status_code == 400

    def test_the_learner_gets_nothing(self, host: HostClient, home: Home, canary: str) -> None:
        assert isinstance(ask(host, f"echo {canary}", incognito=True), Done)
        assert isinstance(ask(host, f"No, I meant {canary}", incognito=True), Done)
        with Store.open(home) as store:
            run_id = runs.request(store, Trigger.MANUAL).id
        loop.work(home, linger=0.0)
        with Store.open(home) as store:
            assert runs.get(store, run_id).state.finished


def test_a_host_killed_in_the_middle_leaves_nothing(home: Home, places: list[Path], canary: str) -> None:
    with scripted_host(home) as client:
        request = TurnRequest(text="slow 1000", incognito=True, incognito_turns=before(canary))
        with client.turn(request) as stream:
            for event in stream:
                if isinstance(event, Token):
                    break
            os.kill(client.endpoint.pid, signal.SIGKILL)
        assert found(places, forms(canary)) == []


def test_a_default_of_keeping_history_is_no_way_around_it(
    home: Home, canary: str, places: list[Path]
) -> None:
    """Not kept in history is another thing than incognito: it is on the disk while it is used."""
    with scripted_host(home) as client, Store.open(home) as store:
        assert run(["consent", "--history", "deny"]) == 0
        assert isinstance(ask(client, f"echo {canary}"), Done)
        assert conversations.list_(store) == []
        assert len(consent.unkept(store)) == 1
        assert found(places, [canary.encode()]) != []
    assert found(places, [canary.encode()]) == []


class TestCrashes:
    def test_a_crash_of_the_command_is_logged_without_its_words(
        self, home: Home, canary: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def broken(_home: Home) -> HostClient:
            try:
                raise KeyError(canary)
            except KeyError as error:
                raise RuntimeError(f"while asking {canary}") from error

        monkeypatch.setattr(app.cli.ask, "running_host", broken)
        monkeypatch.setattr(sys, "stdin", Untouchable())
        assert run(["ask", "--incognito", canary]) == 1
        said = capsys.readouterr().err
        assert said.startswith("mynah: unexpected error (RuntimeError")
        log = (home.logs / "cli.log").read_text()
        assert log.count("Traceback") == 2
        assert "KeyError" in log
        assert 'raise RuntimeError(f"while asking {canary}") from error' in log
        assert found([home.root], forms(canary)) == []

    def test_our_own_errors_keep_their_words(self) -> None:
        assert described(MynahError("the model is gone")).endswith("MynahError: the model is gone\n")
        assert "No such file" in described(FileNotFoundError(2, "No such file", "x"))
        assert described(ValueError("said")).endswith("ValueError\n")

    def test_an_exception_in_a_loop_does_not_run_on(self) -> None:
        error = ValueError("one")
        error.__context__ = other = ValueError("two")
        other.__context__ = error
        assert described(error).count("ValueError\n") == 2

    def test_a_host_that_cannot_start(self, home: Home, canary: str, monkeypatch: pytest.MonkeyPatch) -> None:
        script = "import sys; sys.exit('a fault at the start')"
        monkeypatch.setattr("app.host.client.host_command", lambda: [sys.executable, "-c", script])
        monkeypatch.setattr(sys, "stdin", Untouchable())
        assert run(["ask", "--incognito", canary]) == 1
        assert "a fault at the start" in (home.logs / "host.log").read_text()
        assert found([home.root], forms(canary)) == []


@pytest.mark.model
def test_the_real_model_writes_nothing(home: Home, canary: str) -> None:
    """The same with real tokens: the word as text and as the model's own ids, in the weights' cache too."""
    client = ensure_host(home)
    question = f"Please say the word {canary} once."
    done = ask(client, question, incognito=True, sampler={"max_tokens": 24, "temperature": 0.0})
    assert isinstance(done, Done)
    assert done.usage["prompt_tokens"] > 10
    kept = ask(client, "Say hello.", sampler={"max_tokens": 4, "temperature": 0.0})
    assert isinstance(kept, Done)
    client.shutdown()
    with Store.open(home) as store:
        tokens = conversations.tokens(store, str(kept.message))
    assert found([home.root], [array("i", tokens.completion).tobytes()]) != []
    assert found([home.root, home.cache], forms(canary)) == []
