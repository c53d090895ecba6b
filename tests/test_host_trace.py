"""The trace of batches, against a plain list that says for every position in which evaluation it was computed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from app.host.prefix import PrefixCache
from app.host.trace import Batch, Traced, cut, evaluate_as_recorded, positions
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
    runtime = Traced(ScriptedRuntime(10_000))
    plain: list[list[tuple[int, int]]] = [[], []]
    for what, number, sequence in steps:
        held = plain[sequence]
        if what == "evaluate":
            runtime.evaluate([7] * number, len(held), sequence)
            held += [(number, place) for place in range(number)]
        elif what == "truncate":
            runtime.truncate(sequence, number)
            del held[number:]
        else:
            number = min(number, len(held))
            runtime.copy_prefix(sequence, 1 - sequence, number)
            plain[1 - sequence] = held[:number]
    for sequence in (0, 1):
        assert sizes(runtime.batches(sequence)) == plain[sequence]
        assert positions(runtime.batches(sequence)) == len(plain[sequence])


def test_equal_batches_are_one_entry():
    runtime = Traced(ScriptedRuntime())
    for position in range(500):
        runtime.evaluate([1], position, 0)
    assert runtime.batches(0) == (Batch(1, 1, 500),)
    runtime.clear()
    assert runtime.batches(0) == ()


def test_a_cut_batch_keeps_the_size_it_was_computed_with():
    assert cut([Batch(64, 64, 2), Batch(5, 5, 1)], 100) == [Batch(64, 64, 1), Batch(36, 64, 1)]
    assert cut([Batch(36, 64, 1)], 10) == [Batch(10, 64, 1)]


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(0, 63), st.integers(1, 4)), min_size=1, max_size=8))
def test_a_replay_computes_the_recorded_batches(drawn):
    batches = [Batch(max(size - dropped, 1), size, times) for size, dropped, times in drawn]
    inner = ScriptedRuntime(10_000)
    runtime, cache = Traced(inner), PrefixCache(3, inner.chunk)
    prompt = [number % 200 for number in range(positions(batches))]
    slot = evaluate_as_recorded(runtime, cache, prompt, batches, lambda: None)
    assert inner.held[slot.sequence] == slot.tokens == prompt
    assert sizes(runtime.batches(slot.sequence)) == sizes(tuple(batches))
    # What was filled up with tokens nobody said is never lent to another reply.
    assert cache.plan("base", prompt, exact=False).keep == 0
