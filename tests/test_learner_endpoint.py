"""A teacher elsewhere: where it may be, what leaves for it, what it must answer, and what is made of that."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.model.renderer import Renderer
from learner import endpoint, examples, hints
from learner.endpoint import EndpointTeacher, endpoint_of
from learner.examples import Example
from store import conversations, settings, signals, story
from store.db import Store
from store.errors import LearnerError, UsageError
from store.options import change
from store.redaction.training import redactor_of
from store.types import SignalKind
from tests import seed
from tests.scripted import ByteVocab

DRIP = object()
LIST = "Here is what helps:\n- water\n- light\n- patience, and that for more than a few weeks or so"


class Script(ThreadingHTTPServer):
    """An endpoint that says its lines in turn and keeps what it was asked."""

    def __init__(self, *lines: Any) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.lines = list(lines)
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []


class _Handler(BaseHTTPRequestHandler):
    server: Script

    def do_POST(self) -> None:
        size = int(self.headers["Content-Length"])
        self.server.asked.append({"path": self.path, **json.loads(self.rfile.read(size))})
        self.server.keys.append(self.headers.get("Authorization"))
        line = self.server.lines.pop(0)
        if line is DRIP:
            self._drip()
            return
        status, body = line if isinstance(line, tuple) else (200, said(line))
        data = body.encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:9/")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _drip(self) -> None:
        """One byte after the other, of an answer as long as the client waits for it."""
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            for _ in range(600):
                self.wfile.write(b" ")
                time.sleep(0.05)

    def log_message(self, *_: object) -> None:
        """Nothing."""


def said(text: Any, why: str = "stop") -> str:
    return json.dumps({"choices": [{"message": {"content": text}, "finish_reason": why}]})


@contextmanager
def scripted(*lines: Any) -> Iterator[tuple[Script, EndpointTeacher]]:
    server = Script(*lines)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        place = endpoint_of(f"http://127.0.0.1:{server.server_address[1]}/v1", "big", [])
        yield server, EndpointTeacher(place, renderer(), lambda: None)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def renderer() -> Renderer:
    return Renderer(ByteVocab(), None)


def hinted(store: Store, question: str, hint: str) -> Example:
    _, _, reply = seed.say(store, question, LIST)
    signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=hint)
    made = examples.build(store, renderer(), seed.unit_of(store, reply), redactor_of(store))
    assert isinstance(made, Example)
    return made


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080/v1", "https://localhost/v1", "http://[::1]:1/v1"])
def test_this_machine_needs_no_leave(url: str):
    assert endpoint_of(url, "m", []).path == "/v1"


@pytest.mark.parametrize(
    ("url", "allowed", "says"),
    [
        ("https://teacher.example/v1", [], "not on this machine"),
        ("https://teacher.example/v1", ["other.example"], "not on this machine"),
        ("https://127.0.0.1.teacher.example/v1", [], "not on this machine"),
        ("http://teacher.example/v1", ["teacher.example"], "not encrypted"),
        ("https://owner:secret@127.0.0.1/v1", [], "no address"),
        ("file:///etc/passwd", [], "no address"),
        ("http://127.0.0.1:99999/v1", [], "no address"),
        ("teacher", [], "no address"),
    ],
)
def test_what_the_owner_did_not_allow_is_refused(url: str, allowed: list[str], says: str):
    with pytest.raises(UsageError, match=says):
        endpoint_of(url, "m", allowed)


def test_a_host_that_the_owner_named_is_allowed():
    assert endpoint_of("https://Teacher.example/v1", "m", ["teacher.EXAMPLE"]).host == "teacher.example"


def test_without_an_address_there_is_no_endpoint_and_a_refused_one_is_no_silence(home):
    with Store.open(home) as store:
        assert endpoint.chosen(store) is None
        change(store, settings.TEACHER, "https://teacher.example/v1")
        with pytest.raises(UsageError, match="leaves the machine"):
            endpoint.chosen(store)
        change(store, settings.TEACHER_HOSTS, "teacher.example")
        assert endpoint.chosen(store) == endpoint_of(
            "https://teacher.example/v1", "default", ["teacher.example"]
        )


def test_only_the_redacted_turns_and_the_hint_leave(home, monkeypatch):
    monkeypatch.setenv(endpoint.KEY_VARIABLE, "k-1")
    with Store.open(home) as store, scripted("Give it water, light and time.") as (server, teacher):
        example = hinted(store, "Write to ann@example.org how plants live", "No list, please.")
        taught = teacher.teach([example], 3)[0]
    asked = server.asked[0]
    assert asked["path"] == "/v1/chat/completions"
    assert asked["model"] == "big"
    assert asked["messages"] == endpoint.messages(example)
    text = json.dumps(asked["messages"])
    assert "ann@example.org" not in text
    assert "No list, please." in text
    assert LIST.splitlines()[1] not in text
    assert [each["role"] for each in asked["messages"]] == ["user"]
    assert server.keys == ["Bearer k-1"]
    assert taught.refused == ()


def test_a_long_conversation_is_cut_to_its_end(home):
    with Store.open(home) as store:
        conversation, parent = None, None
        for number in range(6):
            conversation, _, parent = seed.say(store, f"question {number}", LIST, conversation, parent)
        assert parent is not None
        signals.record(store, parent, SignalKind.THUMB, value=-1.0, text="No list, please.")
        made = examples.build(store, renderer(), seed.unit_of(store, parent), redactor_of(store))
        assert isinstance(made, Example)
        sent = endpoint.messages(made)
    assert len(sent) == endpoint.MAX_TURNS
    assert sent[-1]["content"] == "question 5\n\nNo list, please."


def test_a_reply_is_learned_as_a_text_once_it_passes_the_checks_of_the_hint(home):
    lines = ["- water\n- light", "", (200, said("Give it water", "length")), "Give it water and light."]
    with Store.open(home) as store, scripted(*lines) as (server, teacher):
        taught = teacher.teach([hinted(store, "How do plants live?", "No list, please.")], 1)[0]
    assert taught.refused == ("it has a list", "it is empty", "it did not end")
    assert taught.example.chosen is not None
    assert taught.example.chosen.tokens == renderer().completion("Give it water and light.")
    assert (taught.example.hinted, taught.example.chosen_text) == (None, None)
    assert [each["temperature"] for each in server.asked] == [0.0, 0.7, 0.7, 0.7]


def test_where_nothing_passes_the_hint_stays_and_no_reply_is_learned(home):
    with Store.open(home) as store, scripted(*["- a\n- b"] * 4) as (_, teacher):
        taught = teacher.teach([hinted(store, "How do plants live?", "No list, please.")], 1)[0]
    assert taught.example.chosen is None
    assert len(taught.refused) == endpoint.TRIES


def test_a_hint_without_words_asks_nobody(home):
    with Store.open(home) as store, scripted() as (server, teacher):
        taught = teacher.teach([hinted(store, "How do plants live?", "...")], 1)[0]
    assert taught.dropped == hints.NO_WORDS
    assert server.asked == []


@pytest.mark.parametrize(
    "line",
    [
        (500, "{}"),
        (302, ""),
        (401, "{}"),
        (200, "no"),
        (200, "[]"),
        (200, '{"choices": []}'),
        (200, said(None)),
        (200, said(["x"])),
    ],
)
def test_an_answer_that_is_none_is_an_error_with_the_way_out(home, line):
    with Store.open(home) as store, scripted(line) as (_, teacher):
        example = hinted(store, "How do plants live?", "No list, please.")
        with pytest.raises(LearnerError, match=r"mynah config unset learning\.teacher"):
            teacher.teach([example], 1)


def test_a_teacher_that_is_not_there_is_an_error(home):
    with scripted() as (_, teacher):
        pass
    with Store.open(home) as store, pytest.raises(LearnerError, match="does not answer"):
        teacher.teach([hinted(store, "How do plants live?", "No list, please.")], 1)


def test_what_goes_where_is_on_the_replys_story_without_its_text(home):
    with Store.open(home) as store:
        example = hinted(store, "How do plants live?", "No list, please.")
        unit = seed.unit_of(store, conversations.list_(store)[0].head or "")
        place = endpoint_of("https://teacher.example/v1", "m", ["teacher.example"])
        endpoint.record(store, unit, place, endpoint.messages(example))
        kept = story.of(store, unit.message).decisions[-1]
    assert kept.kind == "teacher"
    assert kept.choice == {
        "action": "ask the teacher at teacher.example",
        "reason": "1 messages with 37 characters, personal data replaced",
    }


def test_an_answer_that_drips_in_is_waited_for_no_longer_than_one_that_does_not_come(home, monkeypatch):
    monkeypatch.setattr(endpoint, "_SECONDS", 0.3)
    with Store.open(home) as store, scripted(DRIP) as (_, teacher):
        example = hinted(store, "How do I grow tomatoes?", "no list please")
        with pytest.raises(LearnerError, match="it takes longer than"):
            teacher.teach([example], 1)
