"""The host as a process: started on demand, found, shared, lost and replaced. On the scripted model."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.host import client as client_module
from app.host.client import (
    Endpoint,
    HostClient,
    TurnRequest,
    ensure_host,
    holder,
    running_host,
    stop_host,
    stop_learner,
)
from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent
from store import conversations, settings
from store.conversations import ReplyStart
from store.db import Store
from store.errors import HostUnavailable, ModelFileError, MynahError
from store.home import Home
from store.types import ErrorClass, MessageStatus
from tests.scripted import HOST_COMMAND, SOURCE, scripted_host

WAIT = 120.0


def ask(client: HostClient, text: str, **fields: object) -> list[TurnEvent]:
    return list(client.turn(TurnRequest(text=text, **fields)))  # type: ignore[arg-type]


def last(events: list[TurnEvent]) -> Done:
    assert isinstance(events[-1], Done), events
    return events[-1]


def eventually(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


@pytest.fixture
def on_demand(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Hosts that the client starts are scripted; the list holds further options of theirs."""
    options: list[str] = []
    monkeypatch.setattr(client_module, "host_command", lambda: [*HOST_COMMAND, *options])
    yield options
    stop_host(home)


def test_starts_on_demand_and_is_found_again(home: Home, on_demand: list[str]) -> None:
    assert running_host(home) is None
    first = ensure_host(home)
    assert last(ask(first, "echo hello")).text == "hello"
    assert ensure_host(home).endpoint == first.endpoint
    mode = stat.S_IMODE(home.host_json.stat().st_mode)
    assert mode == 0o600
    assert holder(home.host_lock) == first.endpoint.pid


def test_many_starters_get_one_host(home: Home, on_demand: list[str]) -> None:
    on_demand += ["--load-seconds", "0.5"]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: ensure_host(home), range(4)))
    assert len({client.endpoint.pid for client in found}) == 1


def test_load_error_is_the_hosts_own_words(home: Home, on_demand: list[str]) -> None:
    on_demand += ["--load-error", "the model file is not GGUF: choose another"]
    with pytest.raises(MynahError, match="not GGUF"):
        ensure_host(home)
    assert not home.host_json.exists()
    assert holder(home.host_lock) is None
    assert ModelFileError.exit_code == 1


def test_host_that_dies_at_its_start_is_one_clear_line(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "host_command", lambda: [sys.executable, "-c", "raise SystemExit(3)"])
    with pytest.raises(HostUnavailable, match=r"host\.log"):
        ensure_host(home)


def test_second_host_on_the_same_data(home: Home) -> None:
    with scripted_host(home) as first:
        second = subprocess.run(
            [*HOST_COMMAND, "--foreground"],
            cwd=SOURCE,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert second.returncode == 1
        assert len(second.stderr.splitlines()) == 1
        assert str(first.endpoint.pid) in second.stderr
        assert last(ask(first, "echo still here")).text == "still here"


def test_killed_host_is_replaced_before_the_first_token(home: Home, on_demand: list[str]) -> None:
    client = ensure_host(home)
    os.kill(client.endpoint.pid, signal.SIGKILL)
    psutil.wait_procs([psutil.Process(client.endpoint.pid)], timeout=WAIT)
    assert last(ask(client, "echo again")).text == "again"
    with Store.open(home) as store:
        assert len(conversations.list_(store)) == 1


def test_question_saved_by_a_host_that_died_is_answered_once(home: Home, on_demand: list[str]) -> None:
    """The first host dies between saving the question and the first token; the second answers that very message."""
    client = ensure_host(home)
    stream = client.turn(TurnRequest(text="hang 1"))
    seen: list[TurnEvent] = []
    for event in stream:
        seen.append(event)
        if isinstance(event, Started) and len([each for each in seen if isinstance(each, Started)]) == 1:
            os.kill(client.endpoint.pid, signal.SIGKILL)
    done = last(seen)
    with Store.open(home) as store:
        [conversation] = conversations.list_(store)
        path = conversations.path(store, str(done.message))
        assert [message.text for message in path] == ["hang 1", "1 "]
        replies = conversations.children(store, path[0].id)
        assert [reply.status for reply in replies] == [MessageStatus.FAILED, MessageStatus.COMPLETE]
        assert replies[0].error_class is ErrorClass.HOST_DOWN
        assert conversation.messages == 3


def test_host_that_dies_in_mid_reply_is_an_error_and_the_text_is_kept(
    home: Home, on_demand: list[str]
) -> None:
    client = ensure_host(home)
    seen: list[TurnEvent] = []

    def follow() -> None:
        for event in client.turn(TurnRequest(text="slow 1000")):
            seen.append(event)
            if sum(isinstance(each, Token) for each in seen) == 30:
                os.kill(client.endpoint.pid, signal.SIGKILL)

    with pytest.raises(HostUnavailable):
        follow()
    started = next(event for event in seen if isinstance(event, Started))
    ensure_host(home)
    with Store.open(home) as store:
        row = conversations.get_message(store, str(started.message))
        assert row.status is MessageStatus.FAILED
        assert row.text.startswith("1 2 3 4 5")


def test_client_that_hangs_up_stops_the_reply(home: Home) -> None:
    with scripted_host(home) as client:
        stream = client.turn(TurnRequest(text="slow 1000"))
        for event in stream:
            if isinstance(event, Token) and event.text.startswith("4"):
                break
        stream.close()
        eventually(lambda: client.status()["generating"] is None)
        with Store.open(home) as store:
            [conversation] = conversations.list_(store)
            row = conversations.get_message(store, str(conversation.head))
            assert row.status is MessageStatus.STOPPED
            assert row.text.startswith("1 2 3 4")


def test_stream_closed_from_another_thread_ends_quietly(home: Home) -> None:
    with scripted_host(home) as client:
        stream = client.turn(TurnRequest(text="hang 1000"))
        threading.Timer(0.3, stream.close).start()
        events = list(stream)
        assert all(isinstance(event, Queued | Started | Token) for event in events)
        eventually(lambda: client.status()["generating"] is None)


def test_hanging_up_during_a_long_prompt_stops_it(home: Home) -> None:
    with scripted_host(home, "--batch-seconds", "0.2", "--context", "32768") as client:
        stream = client.turn(TurnRequest(text="echo " + "x" * 20_000))
        for event in stream:
            if isinstance(event, Started):
                break
        stream.close()
        eventually(lambda: client.status()["generating"] is None)
        assert last(ask(client, "echo next")).text == "next"


def test_killed_client_stops_its_reply(home: Home) -> None:
    program = (
        "import sys; from app.host.client import *; from store.home import Home\n"
        "for event in running_host(Home.default()).turn(TurnRequest(text='slow 1000')): print(event, flush=True)"
    )
    with scripted_host(home) as client:
        process = subprocess.Popen(
            [sys.executable, "-c", program], cwd=SOURCE, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        with process.stdout as output:
            assert any(line.startswith("Token") for line in output)
            process.kill()
        process.wait()
        eventually(lambda: client.status()["generating"] is None)
        assert last(ask(client, "echo alive")).text == "alive"


def test_stop_call_ends_a_reply_with_its_text(home: Home) -> None:
    with scripted_host(home) as client:
        seen: list[TurnEvent] = []
        for event in client.turn(TurnRequest(text="slow 1000")):
            seen.append(event)
            if isinstance(event, Token) and event.text.startswith("3"):
                started = next(each for each in seen if isinstance(each, Started))
                assert client.stop(str(started.message))
        done = last(seen)
        assert done.finish_reason == "cancelled"
        assert done.text.startswith("1 2 3")
        assert not client.stop(str(done.message))


def test_two_streams_at_once_both_complete(home: Home) -> None:
    with scripted_host(home) as client, ThreadPoolExecutor(2) as pool:
        texts = list(pool.map(lambda count: last(ask(client, f"count {count}")).text, [200, 300]))
        assert [text.split()[-1] for text in texts] == ["200", "300"]


def test_conversation_goes_on_branches_and_is_made_anew(home: Home) -> None:
    with scripted_host(home) as client, Store.open(home) as store:
        first = last(ask(client, "echo one"))
        second = last(ask(client, "turns", conversation=first.conversation))
        assert second.text == "4"
        again = last(list(client.turn(TurnRequest(regenerate=second.message))))
        assert again.text == "4"
        pair = conversations.siblings(store, str(second.message))
        assert [message.id for message in pair] == [second.message, again.message]
        branch = last(ask(client, "echo other", continue_from=first.message))
        path = [message.text for message in conversations.path(store, str(branch.message))]
        assert path == ["echo one", "one", "echo other", "other"]
        assert conversations.get(store, str(first.conversation)).title == "echo one"


def test_message_that_does_not_fit_comes_back_and_leaves_nothing(home: Home) -> None:
    with scripted_host(home, "--context", "512") as client, Store.open(home) as store:
        [failure] = ask(client, "x" * 2000)
        assert isinstance(failure, Failed)
        assert failure.error_class is ErrorClass.CONTEXT_OVERFLOW
        assert conversations.list_(store) == []


def test_long_conversation_leaves_out_its_oldest_and_says_so(home: Home) -> None:
    with scripted_host(home, "--context", "512") as client:
        conversation = None
        left_out = []
        for _ in range(12):
            events = ask(client, "echo " + "w" * 60, conversation=conversation)
            conversation = last(events).conversation
            left_out += [event.left_out for event in events if isinstance(event, Started)]
            assert last(events).left_out == left_out[-1]
        assert left_out[0] == 0
        assert left_out[-1] > 0


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": "hi", "conversation": "cnone"}, "no conversation"),
        ({"regenerate": "mnone"}, "no message"),
        ({"text": "   "}, "empty"),
        ({}, "nothing to answer"),
        ({"text": "hi", "sampler": {"temperature": "hot"}}, "temperature"),
        ({"text": "hi", "sampler": {"max_tokens": 0}}, "max_tokens"),
    ],
)
def test_bad_request_is_refused_in_one_line(home: Home, fields: dict[str, object], words: str) -> None:
    with scripted_host(home) as client, Store.open(home) as store:
        [failure] = client.turn(TurnRequest(**fields))  # type: ignore[arg-type]
        assert isinstance(failure, Failed)
        assert words in failure.message
        assert "\n" not in failure.message
        assert failure.exit_code in (2, 3)
        assert conversations.list_(store) == []


def test_incognito_conversation_is_written_nowhere(home: Home) -> None:
    with scripted_host(home) as client:
        turns = [{"role": "user", "content": "echo zebra"}, {"role": "assistant", "content": "zebra"}]
        done = last(ask(client, "echo giraffe", incognito=True, incognito_turns=turns))
        assert (done.text, done.message, done.conversation) == ("giraffe", None, None)
    for file in home.root.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            assert b"giraffe" not in content, file
            assert b"zebra" not in content, file


def test_what_is_asked_aside_waits_for_everybody_else(home: Home) -> None:
    begun: list[str] = []

    def follow(client: HostClient, text: str, **fields: Any) -> None:
        begins = (
            event for event in client.turn(TurnRequest(text=text, **fields)) if isinstance(event, Token)
        )
        next(begins)
        begun.append(text)
        for _ in begins:
            pass

    with scripted_host(home) as client, ThreadPoolExecutor(3) as pool:
        held = client.turn(TurnRequest(text="hang 1000"))
        events = iter(held)
        while not isinstance(next(events), Token):
            pass
        asked = [pool.submit(follow, client, "echo aside", aside=True, incognito=True)]
        eventually(lambda: client.status()["queue"] == 1)
        # A second long, so that which began first does not depend on whose thread was woken first.
        asked.append(pool.submit(follow, client, "slow 20"))
        eventually(lambda: client.status()["queue"] == 2)
        held.close()
        for each in asked:
            each.result(WAIT)
    assert begun == ["slow 20", "echo aside"]


def test_shutdown_ends_it_and_saves_the_reply_under_way(home: Home) -> None:
    with scripted_host(home) as client:
        seen: list[TurnEvent] = []
        for event in client.turn(TurnRequest(text="slow 1000")):
            seen.append(event)
            if isinstance(event, Token) and event.text.startswith("3"):
                client.shutdown()
        assert last(seen).finish_reason == "cancelled"
        eventually(lambda: holder(home.host_lock) is None)
    assert not home.host_json.exists()
    with Store.open(home) as store:
        [conversation] = conversations.list_(store)
        assert conversations.get_message(store, str(conversation.head)).status is MessageStatus.STOPPED


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_it_cleanly(home: Home, how: signal.Signals) -> None:
    with scripted_host(home) as client:
        os.kill(client.endpoint.pid, how)
        eventually(lambda: holder(home.host_lock) is None)
        assert not home.host_json.exists()
        assert running_host(home) is None


def test_host_nobody_needs_ends(home: Home, on_demand: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MYNAH_HOST_IDLE", "2.0")
    client = ensure_host(home)
    for _ in range(12):
        time.sleep(0.2)
        client.status()
    assert running_host(home) is not None
    eventually(lambda: not home.host_json.exists())
    eventually(lambda: holder(home.host_lock) is None)


def test_stop_host_says_whether_there_was_one(home: Home, on_demand: list[str]) -> None:
    assert not stop_host(home)
    ensure_host(home)
    assert stop_host(home)
    assert running_host(home) is None
    assert not stop_learner(home)


def test_next_host_closes_what_a_killed_one_left_open(home: Home) -> None:
    with Store.open(home) as store:
        conversation = conversations.create(store, "t", "test")
        asked = conversations.append_user(store, conversation, "hi", None)
        start = ReplyStart("b" * 64, None, 0.0, {}, "t", [1])
        reply = conversations.begin_reply(store, conversation, asked.id, start)
        conversations.checkpoint(store, reply.id, "half a")
        with scripted_host(home):
            row = conversations.get_message(store, reply.id)
        assert (row.status, row.text) == (MessageStatus.FAILED, "half a")
        assert row.error_class is ErrorClass.HOST_DOWN


def test_address_of_somebody_else_is_not_believed(home: Home) -> None:
    with scripted_host(home) as client:
        fields = json.loads(home.host_json.read_text())
        home.host_json.write_text(json.dumps({**fields, "token": "wrong"}))
        assert running_host(home) is None
        home.host_json.write_text(json.dumps({**fields, "pid": 1}))
        assert running_host(home) is None
        home.host_json.write_text("{not json")
        assert Endpoint.read(home) is None
        home.host_json.write_text(json.dumps(fields))
        assert client.alive()


def test_nothing_of_the_host_reaches_the_starters_terminal(
    home: Home, on_demand: list[str], capfd: object
) -> None:
    client = ensure_host(home)
    ask(client, "fail 1")
    assert isinstance(capfd, pytest.CaptureFixture)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
    log = (home.logs / "host.log").read_text()
    assert "the script says so" in log
    assert "fail 1" not in log


def test_paused_learning_and_settings_do_not_stop_a_host(home: Home) -> None:
    with Store.open(home) as store:
        settings.put(store, settings.LEARNING_PAUSED, True)
    with scripted_host(home) as client:
        assert client.status()["learner"]["pid"] is None


def test_client_imports_are_light() -> None:
    program = (
        "import sys, app.host.client\n"
        "heavy = {'httpx', 'numpy', 'starlette', 'uvicorn', 'llama_cpp', 'sqlite_utils', 'jinja2', 'asyncio'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=Path(SOURCE),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    assert found.stdout.strip() == "[]"
