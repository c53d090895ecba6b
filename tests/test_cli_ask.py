"""`mynah ask` against a host that says what it is told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent
from store.db import Store
from store.home import Home
from store.types import ErrorClass
from tests.cli_helpers import Mynah, runner, talk
from tests.stub_host import stub_host

START = Started("j1", "c1", "m1", "m2", None)
DONE = Done(
    "c1", "m2", "Grüezi, 世界 👋", None, "stop", {"prompt_tokens": 9, "completion_tokens": 4}, {"total": 0.5}
)
REPLY: list[TurnEvent] = [START, Token("Grüezi, "), Token("世界 👋"), DONE]


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def sent(home: Home, mynah: Mynah, *words: str, stdin: str | None = None) -> dict[str, Any]:
    """The request that a command line makes of the host."""
    with stub_host(home, REPLY) as host:
        ran = mynah(*words, stdin=stdin)
    assert ran.code == 0, ran.err
    return host.turns[0]


def test_reply_is_data_and_the_rest_is_narration(home: Home, mynah: Mynah) -> None:
    with stub_host(home, REPLY):
        ran = mynah("ask", "hello")
    assert ran.code == 0
    assert ran.out == "Grüezi, 世界 👋\n"
    assert ran.err == "(go on: mynah ask -c c1 …   teach: mynah correct m2 …)\n"


def test_json_is_the_contract(home: Home, mynah: Mynah) -> None:
    with stub_host(home, REPLY):
        ran = mynah("ask", "hello", "--json")
    assert ran.err == ""
    assert ran.out.count("\n") == 1
    assert json.loads(ran.out) == {
        "conversation": "c1",
        "message": "m2",
        "text": "Grüezi, 世界 👋",
        "adapter": None,
        "finish_reason": "stop",
        "usage": {"prompt_tokens": 9, "completion_tokens": 4},
        "timings": {"total": 0.5},
    }


def test_words_become_one_question(home: Home, mynah: Mynah) -> None:
    turn = sent(home, mynah, "ask", "what", "is", "a", "mynah?")
    assert turn["text"] == "what is a mynah?"
    assert turn["conversation"] is None
    assert turn["sampler"] is None


def test_dash_reads_standard_input(home: Home, mynah: Mynah) -> None:
    assert sent(home, mynah, "ask", "-", stdin="two\nlines\n")["text"] == "two\nlines"


def test_text_after_two_dashes_may_look_like_an_option(home: Home, mynah: Mynah) -> None:
    assert sent(home, mynah, "ask", "--", "-5 + 3?")["text"] == "-5 + 3?"


def test_the_version_can_be_chosen_for_one_question(home: Home, mynah: Mynah) -> None:
    assert sent(home, mynah, "ask", "x", "--base")["base"] is True
    turn = sent(home, mynah, "ask", "x", "--strength", "0.4")
    assert (turn["base"], turn["strength"]) == (False, 0.4)
    assert mynah("ask", "x", "--base", "--strength", "1").code == 2
    assert mynah("ask", "x", "--strength", "nan").code == 2


def test_options_reach_the_sampler(home: Home, mynah: Mynah) -> None:
    turn = sent(
        home, mynah, "ask", "x", "--temperature", "0", "--seed", "7", "--max-tokens", "5", "--incognito"
    )
    assert turn["sampler"] == {"temperature": 0.0, "seed": 7, "max_tokens": 5}
    assert turn["incognito"] is True


def test_conversation_by_prefix(home: Home, mynah: Mynah) -> None:
    with Store.open(home) as store:
        conversation = talk(store, "hi", "hello").conversation
    assert sent(home, mynah, "ask", "-c", conversation[:6], "more")["conversation"] == conversation


def test_unknown_and_ambiguous_conversations_start_no_host(home: Home, mynah: Mynah) -> None:
    unknown = mynah("ask", "--conversation", "cnone", "hi")
    assert (unknown.code, unknown.out, unknown.err) == (3, "", "mynah: no conversation has the id 'cnone'\n")
    with Store.open(home) as store:
        talk(store, "one", "1")
        talk(store, "two", "2")
    ambiguous = mynah("ask", "-c", "c", "hi")
    assert ambiguous.code == 2
    assert ambiguous.err == "mynah: 'c' fits more than one conversation: type more of its id\n"


@pytest.mark.parametrize(
    "words",
    [
        ("ask",),
        ("ask", "   "),
        ("ask", "x", "--temperature", "nan"),
        ("ask", "x", "--temperature", "-1"),
        ("ask", "x", "--max-tokens", "0"),
        ("ask", "x", "--seed", "-3"),
        ("ask", "x", "--incognito", "-c", "c1"),
        ("ask", "-5 + 3?"),
    ],
)
def test_wrong_words_are_one_line_and_code_2(mynah: Mynah, words: tuple[str, ...]) -> None:
    ran = mynah(*words)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith("mynah: ")
    assert ran.err.count("\n") == 1


def test_failure_keeps_what_was_said_and_tells_why(home: Home, mynah: Mynah) -> None:
    failure = Failed(ErrorClass.OUT_OF_MEMORY, "the machine ran out of memory: choose a smaller model")
    with stub_host(home, [START, Token("Gr"), failure]):
        ran = mynah("ask", "hello")
    assert (ran.code, ran.out) == (1, "Gr\n")
    assert ran.err == "mynah: the machine ran out of memory: choose a smaller model\n"


def test_a_host_that_dies_leaves_the_reason_on_a_line_of_its_own(home: Home, mynah: Mynah) -> None:
    with stub_host(home, [START, Token("Gr")]):
        ran = mynah("ask", "hello")
    assert (ran.code, ran.out) == (1, "Gr\n")
    assert ran.err.startswith("mynah: the model host went away")


def test_a_reply_that_was_stopped_says_so(home: Home, mynah: Mynah) -> None:
    with stub_host(home, [START, Token("Gr"), Done("c1", "m2", "Gr", None, "cancelled", {}, {})]):
        ran = mynah("ask", "hello")
    assert (ran.code, ran.out) == (0, "Gr\n")
    assert ran.err.startswith("(the reply was stopped before its end)\n")


def test_what_is_not_text_is_refused(mynah: Mynah) -> None:
    ran = mynah("ask", "-", stdin="a\0b")
    assert (ran.code, ran.out) == (2, "")
    assert "is not text" in ran.err


def test_failure_in_json_mode_prints_no_data(home: Home, mynah: Mynah) -> None:
    with stub_host(home, [Failed(ErrorClass.UNKNOWN, "no such message", 3)]):
        ran = mynah("ask", "hello", "--json")
    assert (ran.code, ran.out, ran.err) == (3, "", "mynah: no such message\n")


def test_what_the_host_calls_a_wrong_request_is_code_2(home: Home, mynah: Mynah) -> None:
    with stub_host(home, [Failed(ErrorClass.UNKNOWN, "max_tokens is too large", 2)]):
        assert mynah("ask", "hello").code == 2


def test_waiting_and_leaving_out_are_said(home: Home, mynah: Mynah) -> None:
    start = Started("j1", "c1", "m1", "m2", None, left_out=4)
    done = Done("c1", "m2", "Yes", None, "length", {}, {})
    with stub_host(home, [Queued(2), start, Token("Yes"), done]):
        ran = mynah("ask", "hello")
    assert ran.out == "Yes\n"
    assert ran.err.splitlines()[:3] == [
        "waiting behind 2 other replies …",
        "(longer than the model's window: 4 earlier messages were left out)",
        "(the reply reached its longest length)",
    ]


@pytest.mark.parametrize(("told", "said"), [(4, ", all told in short"), (2, ", 2 of them told in short")])
def test_what_is_told_in_short_is_said(home: Home, mynah: Mynah, told: int, said: str) -> None:
    start = Started("j1", "c1", "m1", "m2", None, left_out=4, summarised=told)
    with stub_host(home, [start, *REPLY[1:]]):
        ran = mynah("ask", "hello")
    assert f"4 earlier messages were left out{said})" in ran.err


def test_what_was_left_out_is_in_the_data(home: Home, mynah: Mynah) -> None:
    with stub_host(home, [*REPLY[:-1], replace(DONE, left_out=4, summarised=2)]):
        printed = json.loads(mynah("ask", "hello", "--json").out)
    assert (printed["left_out"], printed["summarised"]) == (4, 2)


def test_incognito_reply_offers_nothing_to_go_on_with(home: Home, mynah: Mynah) -> None:
    with stub_host(
        home,
        [Started("j1", None, None, None, None), Token("Hi"), Done(None, None, "Hi", None, "stop", {}, {})],
    ):
        ran = mynah("ask", "hello", "--incognito")
    assert (ran.out, ran.err) == ("Hi\n", "")
