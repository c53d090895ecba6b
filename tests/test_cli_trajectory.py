"""`conversations events` and `replay` on a real host process whose model is a script."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.host.client import HostClient, TurnRequest
from app.host.events import Done
from app.replays import first_difference
from store import adapters, conversations, events, signals
from store.db import Store
from store.events import Content
from store.home import Home
from store.types import EventKind, Role, SignalKind
from tests.cli_helpers import Mynah, runner, talk
from tests.host_helpers import live_adapter
from tests.scripted import BASE_HASH, scripted_host


@pytest.fixture
def mynah(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def data(mynah: Mynah, *words: str) -> Any:
    ran = mynah(*words, "--json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def turn(client: HostClient, text: str | None, **more: Any) -> Done:
    *_, last = client.turn(TurnRequest(text=text, **more))
    assert isinstance(last, Done), last
    return last


def test_events_are_printed_as_lines_and_as_json(store: Store, mynah: Mynah):
    reply = talk(store, "What is a mynah?", "A bird.")
    signals.record(store, reply.id, SignalKind.THUMB, value=1.0)
    steps = data(mynah, "conversations", "events", reply.conversation)
    assert [step["kind"] for step in steps] == ["owner_message", "model_call", "reaction"]
    assert steps[1]["rewards"][0]["value"] == 1.0
    shown = mynah("conversations", "events", reply.conversation)
    assert "model call" in shown.out
    assert "thumb +1" in shown.out
    assert shown.err == ""
    assert mynah("conversations", "events", "c000").code == 3


def test_a_conversation_comes_out_as_it_was_recorded(home: Home, store: Store, mynah: Mynah):
    with scripted_host(home) as client:
        first = turn(client, "echo one two three")
        second = turn(client, "turns", conversation=first.conversation)
        adapter = live_adapter(store, b"first")
        turn(client, "version", conversation=first.conversation)
        rows = store.conn.execute("SELECT count(*) FROM messages").fetchone()[0]
        found = data(mynah, "conversations", "replay", str(first.conversation))
        assert [each["identical"] for each in found] == [True, True, True]
        assert [each["replay"] for each in found] == ["deterministic"] * 3
        assert [each["recorded"]["adapter"] for each in found] == [None, None, adapter]
        assert second.usage["cached_tokens"] > 0
        # Nothing of it is kept, and the active version still serves.
        assert store.conn.execute("SELECT count(*) FROM messages").fetchone()[0] == rows
        assert turn(client, "version").adapter == adapter


def test_another_version_shows_what_it_changed(home: Home, store: Store, mynah: Mynah):
    with scripted_host(home) as client:
        adapter = live_adapter(store, b"first")
        said = turn(client, "version")
        one = data(mynah, "conversations", "replay", str(said.message), "--adapter", "base")
        assert (one["identical"], one["first_difference"]) == (False, 0)
        assert one["now"]["text"] == "base"
        assert one["recorded"]["text"] == f"{adapter}*1"
        shown = mynah("conversations", "replay", str(said.message), "--adapter", "base").out
        assert f"{adapter} then, base now" in shown
        assert "now:  base" in shown
        other = live_adapter(store, b"second")
        again = data(mynah, "conversations", "replay", str(said.message), "--adapter", other[:8])
        assert again["now"]["text"] == f"{other}*1"
        (adapters.files(store, adapter) / adapters.GGUF_NAME).unlink()
        gone = mynah("conversations", "replay", str(said.message))
        assert gone.code == 2
        assert "is gone" in gone.err


def test_a_stopped_reply_is_replayed_as_far_as_it_came(home: Home, store: Store, mynah: Mynah):
    with scripted_host(home) as client, client.turn(TurnRequest(text="count 500000")) as stream:
        message = None
        for event in stream:
            message = getattr(event, "message", None) or message
            if getattr(event, "text", "").startswith("20"):
                client.stop(str(message))
        found = data(mynah, "conversations", "replay", str(message))
        assert found["identical"]
        assert len(found["now"]["tokens"]) == len(conversations.tokens(store, str(message)).completion)


def test_what_went_on_with_a_cut_reply_is_replayed_from_there(home: Home, store: Store, mynah: Mynah):
    with scripted_host(home) as client:
        cut = turn(client, "count 9", sampler={"max_tokens": 5})
        whole = turn(client, None, extend=cut.message)
        found = data(mynah, "conversations", "replay", str(whole.message))
        assert (found["replay"], found["identical"]) == ("deterministic", True)
        assert found["now"]["text"] == "1 2 3 4 5 6 7 8 9 "


def test_stop_strings_of_a_program_are_recorded(home: Home, store: Store, mynah: Mynah):
    import http.client

    with scripted_host(home) as client:
        connection = http.client.HTTPConnection(client.endpoint.host, client.endpoint.port, timeout=120)
        body = {"messages": [{"role": "user", "content": "echo a b c d"}], "stop": ["c"], "temperature": 0}
        connection.request(
            "POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"}
        )
        answer = json.loads(connection.getresponse().read())
        connection.close()
        found = data(mynah, "conversations", "replay", answer["mynah"]["message"])
        assert found["identical"]
        assert found["now"]["text"] == answer["choices"][0]["message"]["content"] == "a b "


def test_what_cannot_be_replayed_says_why(home: Home, store: Store, mynah: Mynah):
    reply = talk(store, "What is a mynah?", "A bird.")
    asked = str(reply.parent)
    for wanted, reason in (
        (asked, "only its replies"),
        (reply.id, "were not recorded"),
        (reply.conversation, "no reply whose tokens"),
    ):
        ran = mynah("conversations", "replay", wanted)
        assert (ran.code, reason in ran.err) == (2, True), ran
    assert mynah("conversations", "replay", "m000").code == 3
    assert mynah("conversations", "replay", "c000").code == 3


def test_the_hosts_door_refuses_what_makes_no_sense(home: Home, store: Store):
    good = {"base_hash": BASE_HASH, "prompt": [65, 66], "sampler": {"temperature": 0}, "adapter": None}
    with scripted_host(home, "--context", "256") as client:
        changes: list[dict[str, Any]] = [
            {"prompt": []},
            {"prompt": ["a"]},
            {"prompt": [1] * 400},
            {"base_hash": "other"},
            {"evaluated": [[1, 1, 1]]},
            {"evaluated": [[2, 99, 1]]},
            {"evaluated": "all"},
            {"sampler": {"temperature": 99}},
        ]
        for change in changes:
            with pytest.raises(Exception, match=r"prompt|window|model|batches|temperature"):
                client.replay({**good, **change})
        assert client.status()["queue"] == 0


def test_first_difference():
    assert first_difference([1, 2], [1, 2]) is None
    assert first_difference([1, 2], [1, 3]) == 1
    assert first_difference([1, 2], [1]) == 1
    assert first_difference([], [1]) == 0


def test_steps_of_tools_and_guards_are_shown(store: Store, mynah: Mynah):
    conversation = conversations.create(store, "tools", "chat")
    conversations.append(store, conversation, Role.USER, "hi", None)
    events.record(store, conversation, EventKind.TOOL_CALL, Content(action={"tool": "clock"}), message=None)
    shown = mynah("conversations", "events", conversation).out
    assert "tool call" in shown
    assert "clock" in shown
