"""The trace of batches, against a plain list that says for every position in which evaluation it was computed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.host.jobs import Exactly, Priority, Serve
from app.host.prefix import PrefixCache
from app.host.runtime import BrokenOff
from app.host.trace import Batch, Traced, cut, evaluate_as_recorded, positions
from store import settings, trajectory
from store.errors import MynahError
from store.home import Home
from store.types import EventKind, ReplayClass
from tests.host_helpers import Answer, Desk, desk, live_adapter
from tests.scripted import ScriptedRuntime

STEP = st.one_of(
    st.tuples(st.just("evaluate"), st.integers(1, 64), st.integers(0, 1)),
    st.tuples(st.just("truncate"), st.integers(0, 200), st.integers(0, 1)),
    st.tuples(st.just("copy"), st.integers(0, 200), st.integers(0, 1)),
)


def sizes(batches: tuple[Batch, ...]) -> list[tuple[int, int]]:
    """For each position: how large its evaluation was, and which place it had in it."""
    return [(size, place) for kept, size, times in batches for _ in range(times) for place in range(kept)]


@given(st.lists(STEP, max_size=30))
def test_every_position_knows_its_batch(steps):
    lane = Traced(ScriptedRuntime(10_000).lane)
    plain: list[list[tuple[int, int]]] = [[], []]
    for what, number, sequence in steps:
        held = plain[sequence]
        if what == "evaluate":
            lane.evaluate([7] * number, len(held), sequence)
            held += [(number, place) for place in range(number)]
        elif what == "truncate":
            lane.truncate(sequence, number)
            del held[number:]
        else:
            number = min(number, len(held))
            lane.copy_prefix(sequence, 1 - sequence, number)
            plain[1 - sequence] = held[:number]
    for sequence in (0, 1):
        assert sizes(lane.batches(sequence)) == plain[sequence]
        assert positions(lane.batches(sequence)) == len(plain[sequence])


def test_equal_batches_are_one_entry():
    lane = Traced(ScriptedRuntime().lane)
    for position in range(500):
        lane.evaluate([1], position, 0)
    assert lane.batches(0) == (Batch(1, 1, 500),)
    lane.clear()
    assert lane.batches(0) == ()


def test_a_cut_batch_keeps_the_size_it_was_computed_with():
    assert cut([Batch(64, 64, 2), Batch(5, 5, 1)], 100) == [Batch(64, 64, 1), Batch(36, 64, 1)]
    assert cut([Batch(36, 64, 1)], 10) == [Batch(10, 64, 1)]


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 63), st.integers(1, 4)), min_size=1, max_size=8))
def test_a_replay_computes_the_recorded_batches(drawn):
    batches = [Batch(max(size - dropped, 1), size, times) for size, dropped, times in drawn]
    inner = ScriptedRuntime(10_000).lane
    lane, cache = Traced(inner), PrefixCache(3, ScriptedRuntime.chunk)
    prompt = [number % 200 for number in range(positions(batches))]
    slot = cache.plan(object(), prompt, exact=True).slot
    lane.interrupt()
    for border, _ in enumerate(evaluate_as_recorded(lane, cache, slot, prompt, batches)):
        # Every other evaluation is broken off once, as when somebody else is let through.
        (lane.interrupt if border % 2 else lane.proceed)()
    assert inner.held[slot.sequence] == slot.tokens == prompt
    assert sizes(lane.batches(slot.sequence)) == sizes(tuple(batches))
    # What was filled up with tokens nobody said is never lent to another reply.
    assert cache.plan("base", prompt, exact=False).keep == 0


def test_what_was_broken_off_is_not_noted():
    lane = Traced(ScriptedRuntime().lane)
    lane.evaluate([1, 2], 0, 0)
    lane.interrupt()
    with pytest.raises(BrokenOff):
        lane.evaluate([3], 2, 0)
    lane.proceed()
    lane.evaluate([3], 2, 0)
    assert lane.batches(0) == (Batch(2, 2, 1), Batch(1, 1, 1))


def test_a_saved_sequence_says_how_it_was_computed():
    lane, other = Traced(ScriptedRuntime().lane), Traced(ScriptedRuntime().lane)
    lane.evaluate([1] * 64, 0, 0)
    lane.evaluate([2] * 5, 64, 0)
    lane.truncate(0, 66)
    other.evaluate([9], 0, 1)
    other.restore(1, lane.save(0))
    assert other.batches(1) == lane.batches(0) == (Batch(64, 64, 1), Batch(2, 5, 1))


@pytest.mark.parametrize("line", [b"", b"null", b"[[1, 1]]", b"[[1, 1, 1, 1]]", b'[["a", 1, 1]]'])
def test_a_saved_sequence_that_does_not_say_so_is_not_taken(line):
    inner = ScriptedRuntime().lane
    lane = Traced(inner)
    with pytest.raises(MynahError, match="how it was computed"):
        lane.restore(0, line + b"\n" + inner.save(0))
    assert lane.batches(0) == ()


def noted(at: Desk, answer: Answer) -> tuple[list[int], list[tuple[int, int]]]:
    """The prompt of a reply, and what its record says of each position: its place in an evaluation, and the size."""
    steps = trajectory.read(at.store, str(answer.job.recorder.conversation))
    (step,) = [
        each for each in steps if each.message == answer.job.message and each.kind is EventKind.MODEL_CALL
    ]
    assert step.replay is ReplayClass.DETERMINISTIC
    batches = [Batch(*each) for each in step.metadata["evaluated"]]
    return list(answer.job.prompt), [(place, size) for size, place in sizes(tuple(batches))]


def test_every_reply_says_how_its_prompt_was_computed(home: Home):
    """Given way to, on a cache of another's tokens, on a version that was warmed, and read back from the disk."""
    long = "echo " + "word " * 60
    with desk(home, batch_seconds=0.05, token_seconds=0.01) as at:
        settings.put(at.store, settings.WARM_ON_DISK, True)
        low = at.ask("count 30", client="a", priority=Priority.BACKGROUND)
        low.tokens(2)
        middle = at.ask(long + "and " * 100, client="b", priority=Priority.PROGRAM)
        high = at.ask(long)
        for answer in (high, middle, low):
            answer.done()
        adapter = live_adapter(at.store, b"v1")
        answers = [low, middle, high]
        for serve in (Serve.ACTIVE, Serve.BASE, Exactly(adapter, 0.5), Serve.ACTIVE):
            conversation = high.job.recorder.conversation
            answers.append(at.ask("echo more", conversation=conversation, serve=serve))
            answers.append(at.ask(long, serve=serve, temperature=0.0))
            for answer in answers[-2:]:
                answer.done()
        for answer in answers:
            assert noted(at, answer) in at.runtime.drawn_from
    with desk(home) as at:
        answer = at.ask(long)
        assert answer.done().usage["cached_tokens"] > 0
        assert noted(at, answer) in at.runtime.drawn_from


def test_a_grammar_is_part_of_what_a_reply_was_drawn_with(home: Home):
    with desk(home) as at:
        done = at.ask("grammar", grammar='root ::= "a"', stops=("z",)).done()
        sampler = at.row(done.message).sampler
        assert (sampler["grammar"], sampler["stops"]) == ('root ::= "a"', ["z"])
        assert "grammar" not in at.row(at.ask("echo hello").done().message).sampler
