"""Who is served when, and on what: on a clock that a test turns, so that tenths of a second can be asserted."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from app.host import machine
from app.host.benches import IDLE_SECONDS
from app.host.events import Done, Failed, Queued, Started
from app.host.jobs import Priority, Serve
from app.model.renderer import Turn
from store import conversations, forgetting, settings, warm
from store.db import Store
from store.home import Home
from store.types import ErrorClass, MessageStatus, Role, Scope
from tests.host_helpers import Answer, Clock, Desk, desk, live_adapter
from tests.seed import say

LONG = "echo " + "word " * 400
"""A prompt of 2000 tokens, which is 32 batches."""


class Moments:
    """When a reply started and ended, on the test's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.asked = clock.now
        self.started = self.ended = 0.0

    def __call__(self, event: object) -> None:
        if isinstance(event, Started):
            self.started = self._clock.now
        elif isinstance(event, Done | Failed):
            self.ended = self._clock.now


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120.0
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("prompt", [LONG, "count 1000"])
def test_a_stop_takes_less_than_a_tenth_of_a_second(home: Home, prompt: str) -> None:
    """Also in the middle of a batch of 0.8 s, which is what a model of 1.5 billion parameters takes here."""
    clock = Clock()
    reply = Moments(clock)
    with desk(home, clock, batch_seconds=0.8, token_seconds=0.05) as at:
        answers: list[Answer] = []
        clock.after(1.33, lambda: answers[0].job.cancelled.set())
        recorder = at.saved(prompt)

        def pause(seconds: float) -> None:
            wait_until(lambda: bool(answers))
            clock.pause(seconds)

        at.runtime.pause = pause
        answers.append(at.ask(prompt, recorder=recorder, note=reply))
        assert answers[0].done().finish_reason == "cancelled"
    assert reply.asked + 1.33 <= reply.ended < reply.asked + 1.33 + 0.1


class Later:
    """A question that comes at a moment of the test's clock, whatever is being computed then: a person's, mostly."""

    def __init__(self, at: Desk, clock: Clock, seconds: float, text: str, **how: Any) -> None:
        self._at, self._clock, self._text, self._how = at, clock, text, how
        # Saved now: the moment comes in the engine's thread, which has a database connection of its own.
        self._recorder = at.saved(text)
        self.answer: Answer | None = None
        self.moments = Moments(clock)
        clock.after(seconds, self._ask)

    def _ask(self) -> None:
        self.moments = Moments(self._clock)
        how = {"note": self.moments, **self._how}
        self.answer = self._at.ask(self._text, recorder=self._recorder, **how)

    def done(self) -> Done:
        wait_until(lambda: self.answer is not None)
        assert self.answer is not None
        return self.answer.done()


def test_a_person_does_not_wait_for_what_nobody_waits_for(home: Home) -> None:
    clock = Clock()
    with desk(home, clock, batch_seconds=0.8, token_seconds=0.05) as at:
        person = Later(at, clock, 3.0, "echo hello")
        practising = Moments(clock)
        practice = at.ask("count 200", client="learner", priority=Priority.BACKGROUND, note=practising)
        assert practice.done().text.split() == [str(number) for number in range(1, 201)]
        assert person.done().text == "hello"
    assert person.answer is not None
    assert isinstance(person.answer.seen[0], Queued)
    assert person.answer.seen[0].ahead == 0
    assert person.moments.ended < practising.ended
    assert person.moments.started - person.moments.asked < 0.1


def test_a_batch_of_a_program_is_broken_off_for_a_person(home: Home) -> None:
    clock = Clock()
    with desk(home, clock, batch_seconds=5.0) as at:
        person = Later(at, clock, 7.0, "echo hello")
        program = at.ask(LONG, client="p", priority=Priority.PROGRAM)
        assert program.done().text == LONG.removeprefix("echo ")
        done = person.done()
        assert done.text == "hello"
        computed = sum(size for _, _, size in at.runtime.evaluated if size > 1)
    assert person.moments.started - person.moments.asked < 0.1
    # What was broken off was computed once more, and nothing twice.
    both = len(program.job.prompt) + done.usage["prompt_tokens"]
    assert computed == both - done.usage["cached_tokens"]


def test_what_gives_way_goes_on_where_it_was(home: Home) -> None:
    """Three levels deep, each interrupted by the next, all on one lane."""
    ended: list[str] = []

    def note(event: object) -> None:
        if isinstance(event, Done):
            ended.append(event.text.split()[-1])

    clock = Clock()
    with desk(home, clock, token_seconds=0.01, most_lanes=1) as at:
        middle = Later(at, clock, 0.035, "count 20", client="b", priority=Priority.PROGRAM, note=note)
        high = Later(at, clock, 0.075, "count 10", client="c", note=note)
        low = at.ask("count 30", client="a", priority=Priority.BACKGROUND, note=note)
        texts = [answer.done().text for answer in (low, middle, high)]
    assert ended == ["10", "20", "30"]
    assert [len(text.split()) for text in texts] == [30, 20, 10]


def test_many_questions_do_not_take_the_place_of_what_lies_half_written(home: Home) -> None:
    """More conversations than there are sequences, while one reply waits in one of them."""
    clock = Clock()
    with desk(home, clock, token_seconds=0.01) as at:
        people = [
            Later(at, clock, 0.05 + 0.5 * number, f"echo {number} " + "word " * 30) for number in range(6)
        ]
        low = at.ask("count 150", client="a", priority=Priority.BACKGROUND)
        for number, person in enumerate(people):
            assert person.done().text.startswith(f"{number} word")
        assert len(low.done().text.split()) == 150
        prompt = list(low.job.prompt)
        assert any(
            held[: len(prompt)] == prompt and len(held) > len(prompt) + 140 for held in at.runtime.lane.held
        )


def test_time_spent_lying_does_not_count_as_slowness(home: Home) -> None:
    clock = Clock()
    with desk(home, clock, token_seconds=0.1) as at:
        person = Later(at, clock, 1.0, "count 400")
        low = at.ask("count 50", client="a", priority=Priority.BACKGROUND)
        done = low.done()
        person.done()
    assert done.timings["tokens_per_second"] == pytest.approx(10.0, rel=0.05)
    assert done.timings["total"] > 40.0


def test_a_reply_that_lies_half_written_can_be_stopped(home: Home) -> None:
    with desk(home, token_seconds=0.02) as at:
        low = at.ask("count 1000", client="a", priority=Priority.PROGRAM)
        low.tokens(2)
        person = at.ask("forever")
        person.tokens(1)
        low.job.cancelled.set()
        done = low.done()
        assert done.finish_reason == "cancelled"
        assert at.row(done.message).status is MessageStatus.STOPPED
        assert at.engine.busy
        person.job.cancelled.set()
        assert person.done().text.startswith("1 ")


def test_who_hangs_up_in_the_queue_is_let_go_at_once(home: Home) -> None:
    with desk(home, token_seconds=0.02) as at:
        first = at.ask("forever", client="a")
        first.tokens(1)
        waiting = at.ask("echo late", client="b")
        waiting.job.cancelled.set()
        assert waiting.failed().error_class is ErrorClass.CANCELLED
        assert not any(isinstance(event, Done) for event in first.seen)
        first.job.cancelled.set()
        first.done()


def warmed(at: Desk, adapter: str) -> bool:
    return any((lane.attached or "").startswith(adapter) and any(lane.held) for lane in at.runtime.lanes)


def test_a_new_version_is_warmed_while_the_old_one_still_writes(home: Home) -> None:
    with desk(home, token_seconds=0.01) as at:
        answer = at.ask("echo " + "word " * 60 + "\n", temperature=0.0)
        conversation = answer.done().conversation
        history = [Turn(Role.USER, "echo " + "word " * 60 + "\n"), Turn(Role.ASSISTANT, answer.text)]
        streaming = at.ask("forever", before=history, conversation=conversation)
        streaming.tokens(2)
        adapter = live_adapter(at.store, b"v1")
        wait_until(lambda: warmed(at, adapter) and at.engine.status().contexts == 2)
        assert at.engine.busy
        streaming.job.cancelled.set()
        during = streaming.done()
        assert during.adapter is None
        again = at.ask("version", before=history, conversation=None, temperature=0.0).done()
    assert again.text == f"{adapter}*1"
    assert again.usage["cached_tokens"] >= (len(answer.job.prompt) // 64) * 64 > 0


def test_a_question_takes_a_half_done_warming_over(home: Home) -> None:
    with desk(home, batch_seconds=0.1) as at:
        text = "echo " + "word " * 200
        at.ask(text, temperature=0.0).done()
        adapter = live_adapter(at.store, b"v1")
        wait_until(lambda: warmed(at, adapter))
        done = at.ask(text, temperature=0.0).done()
    assert done.adapter == adapter
    assert done.text == "word " * 200
    assert done.usage["cached_tokens"] > 0


def test_a_reply_keeps_its_version_even_on_a_lane_that_changes_over(home: Home) -> None:
    """With memory for one lane only, the adapter is changed and changed back around a more urgent reply."""
    with desk(home, token_seconds=0.01, most_lanes=1) as at:
        low = at.ask("count 60", client="a", priority=Priority.PROGRAM)
        low.tokens(2)
        adapter = live_adapter(at.store, b"v1")
        assert at.ask("version").done().text == f"{adapter}*1"
        done = low.done()
        assert done.adapter is None
        assert len(done.text.split()) == 60
        # The script refuses to compute on a sequence that another version began.
        assert at.ask("version").done().text == f"{adapter}*1"


def test_the_base_has_a_lane_of_its_own_and_idle_lanes_are_freed(home: Home) -> None:
    clock = Clock()
    with desk(home, clock) as at:
        at.ask("echo a").done()
        adapter = live_adapter(at.store, b"v1")
        assert at.ask("version").done().text == f"{adapter}*1"
        assert at.ask("version", serve=Serve.BASE).done().text == "base"
        assert at.engine.status().contexts == 2
        clock.now += IDLE_SECONDS + 1.0
        at.ask("version").done()
        wait_until(lambda: at.engine.status().contexts == 1)
        assert [lane.attached for lane in at.runtime.lanes] == [f"{adapter}*1"]
        assert at.ask("version", serve=Serve.BASE).done().text == "base"


def test_strength_is_a_setting_and_a_version_of_its_own(home: Home) -> None:
    with desk(home) as at:
        adapter = live_adapter(at.store, b"v1")
        assert at.ask("version").done().text == f"{adapter}*1"
        settings.put(at.store, settings.ADAPTER_STRENGTH, 0.25)
        done = at.ask("version").done()
        assert done.text == f"{adapter}*0.25"
        assert at.row(done.message).scale == 0.25
        settings.put(at.store, settings.ADAPTER_STRENGTH, 0.0)
        done = at.ask("version").done()
        assert (done.text, done.adapter) == ("base", None)


def yesterday(home: Home) -> None:
    """A conversation that is kept warm on the disk."""
    with desk(home) as at:
        settings.put(at.store, settings.WARM_ON_DISK, True)
        assert at.ask(LONG, temperature=0.0).done().usage["cached_tokens"] == 0


def test_the_last_conversation_opens_warm_the_next_day(home: Home) -> None:
    yesterday(home)
    files = list(warm.directory(home).iterdir())
    assert [file.stat().st_mode & 0o777 for file in files] == [0o600]
    assert warm.directory(home).stat().st_mode & 0o777 == 0o700
    with desk(home) as at:
        wait_until(lambda: not warm.directory(home).exists())
        answer = at.ask(LONG, temperature=0.0)
        done = answer.done()
        assert done.text == LONG.removeprefix("echo ")
        # At temperature 0, all that a cold start would compute in the same way.
        assert done.usage["cached_tokens"] == (len(answer.job.prompt) - 1) // 64 * 64


@pytest.mark.parametrize("why", ["incognito", "setting", "deleted", "forgotten", "no history"])
def test_what_may_not_be_kept_is_not_written(home: Home, why: str) -> None:
    with desk(home) as at:
        settings.put(at.store, settings.WARM_ON_DISK, why != "setting")
        done = at.ask("echo secret", incognito=why == "incognito").done()
        if why == "deleted":
            conversations.delete(at.store, str(done.conversation))
        elif why == "forgotten":
            _forget_something(at.store)
        elif why == "no history":
            with at.store.write() as connection:
                connection.execute("UPDATE conversations SET keep_history = 'deny'")
    assert not warm.directory(home).exists()


def _forget_something(store: Store, moment: str = "2999-01-01T00:00:00.000000+00:00") -> None:
    with store.write() as connection:
        connection.execute(
            "INSERT INTO forgettings (id, scope, state, created, updated, [plan]) "
            "VALUES ('f', 'message', 'done', ?, ?, '{}')",
            (moment, moment),
        )


@pytest.mark.parametrize(
    "what", ["cut", "changed", "other version", "other window", "other processor", "forgotten"]
)
def test_what_does_not_fit_any_more_is_only_deleted(
    home: Home, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    yesterday(home)
    (file,) = warm.directory(home).iterdir()
    data = file.read_bytes()
    if what == "cut":
        file.write_bytes(data[:-10])
    elif what == "changed":
        file.write_bytes(data[:-10] + b"0123456789")
    with Store.open(home) as store:
        if what == "other version":
            live_adapter(store, b"v1")
        elif what == "forgotten":
            _forget_something(store)
    if what == "other processor":
        monkeypatch.setattr(machine, "fingerprint", lambda: "another")
    with desk(home, context=3072 if what == "other window" else 4096) as at:
        done = at.ask(LONG, temperature=0.0).done()
        assert done.text == LONG.removeprefix("echo ")
        assert done.usage["cached_tokens"] == 0


def test_what_was_computed_before_a_request_to_forget_is_not_used_again(home: Home) -> None:
    clock = Clock()
    with desk(home, clock) as at:
        other, _, _ = say(at.store, "something else", "yes")
        first = at.ask("turns").done()
        again = [Turn(Role.USER, "turns"), Turn(Role.ASSISTANT, first.text)]
        assert at.ask("turns", before=again).done().usage["cached_tokens"] > 0
        forgetting.request(at.store, Scope.CONVERSATION, other)
        clock.now += 10.0
        wait_until(
            lambda: not any(slot.tokens for bench in at.engine.benches.all for slot in bench.cache.slots)
        )
        assert at.ask("turns", before=again).done().usage["cached_tokens"] == 0


def test_a_warming_ends_before_what_it_computes_on_is_forgotten(home: Home) -> None:
    with desk(home, batch_seconds=0.1) as at:
        other, _, _ = say(at.store, "something else", "yes")
        text = "echo " + "word " * 200
        at.ask(text, temperature=0.0).done()
        adapter = live_adapter(at.store, b"v1")
        wait_until(lambda: warmed(at, adapter))
        forgetting.request(at.store, Scope.CONVERSATION, other)
        wait_until(
            lambda: not any(slot.tokens for bench in at.engine.benches.all for slot in bench.cache.slots)
        )
        done = at.ask(text, temperature=0.0).done()
    assert (done.adapter, done.text) == (adapter, "word " * 200)
    assert done.usage["cached_tokens"] == 0


def test_what_was_forgotten_before_costs_no_later_conversation_its_warmth(home: Home) -> None:
    with Store.open(home) as store:
        _forget_something(store, "2001-01-01T00:00:00.000000+00:00")
    yesterday(home)
    with desk(home) as at:
        wait_until(lambda: not warm.directory(home).exists())
        time.sleep(1.2)  # longer than the engine goes without a look
        assert at.ask(LONG, temperature=0.0).done().usage["cached_tokens"] > 0
