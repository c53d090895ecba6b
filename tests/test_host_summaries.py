"""What was left out of a long conversation, told in short: when, of what, and that it leaves no trace of its own."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from app.host.capture import Incognito
from app.host.client import HostClient, TurnRequest
from app.host.events import Done, Failed, Started, TurnEvent
from app.host.jobs import Job, Priority, Serve
from app.host.summaries import LONGEST, Summaries
from app.model.renderer import Turn
from store import conversations, forgetting, settings
from store.db import Store
from store.home import Home
from store.types import ErrorClass, Role
from tests.scripted import ScriptedRuntime, scripted_host

SHORT = "They talked about boats."


def done(text: str) -> Done:
    return Done(None, None, text, None, "stop", {}, {})


def exchange(number: int, size: int = 40) -> list[Turn]:
    return [
        Turn(Role.USER, f"question {number} ".ljust(size, "q")),
        Turn(Role.ASSISTANT, f"answer {number} ".ljust(size, "a")),
    ]


class Desk:
    """Summaries whose model is this test."""

    def __init__(self, store: Store, context: int = 2000) -> None:
        self.store = store
        self.runtime = ScriptedRuntime(context)
        self.jobs: list[Job] = []
        self.heard: list[TurnEvent] = []
        self.summaries = Summaries(self.runtime, self.jobs.append, lambda work: work(store))

    def after_a_reply(self, dropped: list[Turn], event: TurnEvent | None = None) -> None:
        self.summaries.afterwards(dropped, self.heard.append)(event or done("fine"))

    def all_are_made(self) -> int:
        """Let each job end, and those that follow from it; how many there were."""
        ended = 0
        while ended < len(self.jobs):
            assert len(self.jobs[ended].prompt) <= self.runtime.info.context - LONGEST
            self.jobs[ended].sink(done(SHORT))
            ended += 1
        return ended

    def asked(self, place: int = -1) -> str:
        return self.runtime.vocab.text([token for token in self.jobs[place].prompt if token < 256])

    def told(self, turns: list[Turn], reserve: int = 100) -> tuple[str, int]:
        """The system prompt of a question, and how many turns it tells of in short."""
        prompt = self.summaries.told(self.store, turns, reserve, self.runtime.fit(turns, reserve))
        return prompt.fitted.turns[0].content, prompt.summarised


def test_it_is_asked_of_the_base_behind_everything_and_kept_nowhere(store: Store) -> None:
    at = Desk(store)
    at.after_a_reply([*exchange(1), *exchange(2)])
    assert len(at.heard) == 1, "the reply's own listener hears everything"
    [job] = at.jobs
    assert (job.priority, job.serve, job.sampling.temperature) == (Priority.BACKGROUND, Serve.BASE, 0.0)
    assert isinstance(job.recorder, Incognito)
    assert "User: question 1" in at.asked()
    assert "Assistant: answer 2" in at.asked()


def test_it_takes_the_place_of_exactly_what_it_stands_for(store: Store) -> None:
    at = Desk(store, context=1000)
    turns = [turn for number in range(20) for turn in exchange(number)]
    question = [*turns, Turn(Role.USER, "and now?")]
    dropped = at.runtime.fit(question, 100).dropped
    assert at.told(question)[1] == 0, "nothing was made yet, and nobody waits for it"
    at.after_a_reply(dropped)
    at.all_are_made()
    system, summarised = at.told(question)
    assert summarised == len(dropped)
    assert system.endswith(f"in short (it may be inexact):\n{SHORT}")
    edited = [Turn(Role.USER, "another beginning"), *question[1:]]
    assert at.told(edited)[1] == 0
    beyond = [*turns, *exchange(99), Turn(Role.USER, "and now?")]
    assert at.told(beyond)[1] == len(dropped), "an older one is better than none"


def test_the_next_is_made_of_the_one_before(store: Store) -> None:
    at = Desk(store)
    first = [*exchange(1), *exchange(2)]
    at.after_a_reply(first)
    at.jobs[-1].sink(done(SHORT))
    assert len(at.jobs) == 1
    at.after_a_reply(first)
    assert len(at.jobs) == 1, "there is nothing new to tell"
    at.after_a_reply([*first, *exchange(3)])
    assert f"in short:\n{SHORT}\n\n" in at.asked()
    assert "question 3" in at.asked()
    assert "question 1" not in at.asked()


def test_what_is_too_much_for_one_goes_into_several(store: Store) -> None:
    at = Desk(store)
    dropped = [turn for number in range(20) for turn in exchange(number, 300)]
    dropped[10] = Turn(Role.USER, "x" * 50_000)
    at.after_a_reply(dropped)
    assert at.all_are_made() > 5
    [summary] = at.summaries._of(dropped)[:1]
    assert summary.turns == len(dropped)


@pytest.mark.parametrize("end", [done("  "), Failed(ErrorClass.HOST_DOWN, "ending")])
def test_one_that_came_to_nothing_is_tried_again_after_the_next_reply(store: Store, end: TurnEvent) -> None:
    at = Desk(store)
    dropped = exchange(1)
    at.after_a_reply(dropped)
    at.after_a_reply(dropped)
    assert len(at.jobs) == 1, "one at a time"
    at.jobs[0].sink(end)
    assert len(at.jobs) == 1
    at.after_a_reply(dropped)
    assert len(at.jobs) == 2


def test_a_reply_that_failed_asks_for_none(store: Store) -> None:
    at = Desk(store)
    at.after_a_reply(exchange(1), Failed(ErrorClass.UNKNOWN, "no"))
    assert at.jobs == []


def test_a_sentence_that_was_cut_is_left_away(store: Store) -> None:
    at = Desk(store)
    at.after_a_reply(exchange(1))
    at.jobs[0].sink(done(f"{SHORT} Then they"))
    assert [summary.text for summary in at.summaries._of(exchange(1))] == [SHORT]


def test_forgetting_drops_them_also_the_one_being_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Desk(store)
    at.after_a_reply(exchange(1))
    at.jobs[0].sink(done(SHORT))
    at.after_a_reply(exchange(2))
    monkeypatch.setattr(forgetting, "latest", lambda _: "2026-01-01")
    at.jobs[1].sink(done(SHORT))
    assert at.summaries._of(exchange(1)) == at.summaries._of(exchange(2)) == []


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def started(client: HostClient, text: str, conversation: str | None) -> tuple[Started, Done]:
    events = list(client.turn(TurnRequest(text=text, conversation=conversation)))
    [begun] = [event for event in events if isinstance(event, Started)]
    assert isinstance(events[-1], Done)
    return begun, events[-1]


def idle(client: HostClient) -> bool:
    status = client.status()
    return (status["queue"], status["generating"]) == (0, None)


@pytest.mark.parametrize("wanted", [True, False])
def test_a_long_conversation_in_the_real_host(home: Home, store: Store, wanted: bool) -> None:
    settings.put(store, settings.SUMMARY, wanted)
    with scripted_host(home) as client:
        conversation, begun = None, None
        for number in range(6):
            begun, said = started(client, f"echo {number} " + "word " * 100, conversation)
            conversation = said.conversation
            if begun.left_out:
                break
        assert begun is not None
        assert begun.left_out
        assert begun.summarised == 0, "none was made before there was something to tell"
        eventually(lambda: idle(client))
        begun, said = started(client, "system", conversation)
        for _ in range(100):
            # A summary is asked for after the reply's end is told, so that nobody waits for it: the host may look idle.
            if bool(begun.summarised) is wanted:
                break
            eventually(lambda: idle(client))
            begun, said = started(client, "system", conversation)
        assert bool(begun.summarised) is wanted
        assert ("in short (it may be inexact):\nYou said: It goes on" in said.text) is wanted
        row = conversations.get_message(store, str(said.message))
        assert row.sampler.get("summarised", 0) == begun.summarised
        kept = store.conn.execute(
            "SELECT count(*) FROM messages WHERE text LIKE 'You said: It goes%'"
        ).fetchone()
        assert (kept[0], len(conversations.list_(store, 10))) == (0, 1)
