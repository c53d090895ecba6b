"""The chat as lines: what a screen reader hears and a pipe gets."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from app.cli.plain import PlainChat
from store import conversations
from store.db import Store
from store.errors import HostUnavailable
from store.home import Home
from tests import seed
from tests.scripted import scripted_host
from tests.scripted_service import Script, ScriptedService

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [sys.executable, "-m", "app.cli.main"]


def chat(service: ScriptedService, lines: Sequence[str], *, person: bool = True) -> int:
    rest = iter(lines)
    return PlainChat(service, lambda: next(rest, None), person).run()


def test_a_person_is_prompted_and_hears_whole_lines(
    service: ScriptedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.scripts = [Script(("one ", "two\nth", "ree"))]
    assert chat(service, ["hello \\", "there", "/quit", "never"]) == 0
    said = capsys.readouterr()
    assert said.out == "You: ...  Mynah: one two\nthree\nYou: "
    assert "/help" in said.err
    assert [(request.text, request.typed) for request in service.requests] == [("hello \nthere", True)]


def test_a_pipe_gets_the_replies_alone(service: ScriptedService, capsys: pytest.CaptureFixture[str]) -> None:
    service.scripts = [Script(("one",)), Script(("two",))]
    assert chat(service, ["a", "", "b"], person=False) == 0
    said = capsys.readouterr()
    assert (said.out, said.err) == ("one\ntwo\n", "")
    assert not any(request.typed for request in service.requests), (
        "what it says of anybody is not its owner's word"
    )
    assert service.requests[1].conversation == conversations.list_(service.store)[0].id


def test_a_failure_ends_a_pipe_and_not_a_person(
    service: ScriptedService, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = HostUnavailable("the host is gone")
    service.scripts = [Script(fails_before=gone), Script(("back",))]
    assert chat(service, ["a", "b"]) == 0
    said = capsys.readouterr()
    assert "the host is gone." in said.err
    assert "Mynah: back" in said.out
    service.scripts = [Script(fails_before=gone)]
    with pytest.raises(HostUnavailable):
        chat(service, ["a", "b"], person=False)


def test_teaching_by_words(service: ScriptedService, capsys: pytest.CaptureFixture[str]) -> None:
    chat(service, ["/good", "hello", "/bad too long", "/correct It is so.", "/status", "/nonsense", "/help"])
    said = capsys.readouterr().err
    assert "there is no reply yet" in said
    assert "1 waiting" in said
    assert "no command /nonsense" in said
    assert "/continue" in said
    conversation = conversations.list_(service.store)[0]
    reply = service.message(str(conversation.head))
    assert reply.rating == -1
    assert reply.corrected


def test_again_and_going_on_make_siblings(
    service: ScriptedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.scripts = [Script(("one",)), Script(("two",))]
    chat(service, ["hello", "/again"])
    assert service.requests[1].regenerate
    head = str(conversations.list_(service.store)[0].head)
    assert len(service.message(head).siblings) == 2
    chat(service, ["/open 1", "/continue"])
    assert service.requests[2].extend == head
    assert capsys.readouterr().out.count("two") == 3


def test_control_c_stops_the_reply_and_keeps_it(
    service: ScriptedService, capsys: pytest.CaptureFixture[str]
) -> None:
    service.scripts = [Script(("so far",), may_end=threading.Event())]
    play = service.play

    def interrupted(playing: object) -> Iterator[object]:
        for event in play(playing):  # type: ignore[arg-type]
            yield event
            if type(event).__name__ == "Token":
                raise KeyboardInterrupt

    service.play = interrupted  # type: ignore[method-assign, assignment]
    assert chat(service, ["hello"]) == 0
    said = capsys.readouterr()
    assert "Mynah: so far\n" in said.out
    assert "/continue goes on" in said.err


def test_a_chosen_conversation_goes_on(service: ScriptedService, capsys: pytest.CaptureFixture[str]) -> None:
    old, _ = service.say("an old question", "an old answer")
    chat(service, ["/chats", "/open 2", "/open 1", "and now?"])
    said = capsys.readouterr()
    assert "1. an old question" in said.out
    assert "Mynah: an old answer" in said.out
    assert "which one?" in said.err
    assert service.requests[0].conversation == old


def test_a_conversation_is_named_on_the_command_line(home: Home) -> None:
    with Store.open(home) as store:
        conversation, _, _ = seed.say(store, "an old question", "an old answer")
    with scripted_host(home):
        ran = subprocess.run(
            [*COMMAND, "chat", "-c", conversation[:6]],
            input=b"turns\n",
            capture_output=True,
            cwd=ROOT,
            timeout=240,
            check=True,
        )
    # Only the reply, and it has seen the exchange before.
    assert ran.stdout.decode() == "4\n"
    unknown = subprocess.run(
        [*COMMAND, "chat", "-c", "nothing"], input=b"hi\n", capture_output=True, cwd=ROOT, timeout=240
    )
    assert unknown.returncode == 3
    assert len(unknown.stderr.splitlines()) == 1


@pytest.mark.parametrize("words", [(), ("chat",), ("chat", "--plain")])
def test_a_pipe_chats_without_a_terminal(home: Home, words: tuple[str, ...]) -> None:
    with scripted_host(home):
        ran = subprocess.run(
            [*COMMAND, *words],
            input="echo grüß 世界\nturns\n".encode(),
            capture_output=True,
            env={**os.environ, "LC_ALL": "C"},
            cwd=ROOT,
            timeout=240,
            check=True,
        )
    assert ran.stdout.decode() == "grüß 世界\n4\n"
    assert b"\x1b" not in ran.stdout


def test_a_pipe_that_is_empty_starts_nothing(home: Home) -> None:
    ran = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, cwd=ROOT, timeout=240, check=True
    )
    assert (ran.stdout, ran.stderr) == (b"", b"")
    assert not home.host_json.exists()
