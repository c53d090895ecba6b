"""The prefix cache as bookkeeping: what it promises about reuse, checked against a model of the cache itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from app.host.prefix import WORTH_COPYING, Plan, PrefixCache, common_prefix

CHUNK = 8


def carry_out(cache: PrefixCache, plan: Plan, prompt: list[int]) -> list[int]:
    """Do what a plan says; returns the sizes of the evaluations."""
    for start, end in plan.chunks:
        assert start == len(plan.slot.tokens)
        cache.extend(plan.slot, prompt[start:end])
    return [end - start for start, end in plan.chunks]


def run(cache: PrefixCache, key: object, prompt: list[int], *, exact: bool = False, reply: int = 0) -> Plan:
    plan = cache.plan(str(key), prompt, exact=exact)
    carry_out(cache, plan, prompt)
    for token in range(reply):
        cache.extend(plan.slot, [10_000 + token])
    return plan


def test_cold_prompt_is_computed_in_aligned_chunks() -> None:
    cache = PrefixCache(2, CHUNK)
    plan = cache.plan("base", list(range(20)), exact=False)
    assert plan.keep == 0
    assert plan.chunks == ((0, 8), (8, 16), (16, 20))


def test_next_turn_computes_only_what_is_new() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(20)), reply=4)
    longer = [*range(20), *(10_000 + token for token in range(4)), 7, 8, 9]
    plan = cache.plan("base", longer, exact=False)
    assert plan.keep == 24
    assert plan.chunks == ((24, 27),)


def test_a_short_turn_after_an_odd_number_of_tokens_is_one_evaluation() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(20)), reply=2)
    longer = [*range(20), 10_000, 10_001, *range(10)]
    assert cache.plan("base", longer, exact=False).chunks == ((22, 30), (30, 32))
    exact = cache.plan("base", longer, exact=True)
    assert exact.chunks == ((16, 24), (24, 32)), "what may be reused at temperature 0 stays aligned"


def test_the_last_token_is_always_computed() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(20)))
    assert cache.plan("base", list(range(20)), exact=False).chunks == ((19, 20),)


def test_exact_job_reuses_whole_aligned_chunks_of_the_start_only() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(20)), exact=True, reply=10)
    longer = [*range(20), *(10_000 + token for token in range(10)), 5]
    plan = cache.plan("base", longer, exact=True)
    assert plan.keep == 16
    assert plan.chunks == ((16, 24), (24, 31))


def test_exact_job_does_not_trust_what_was_computed_unaligned() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(5)))
    run(cache, "base", list(range(32)))
    assert cache.slots[0].tokens == list(range(32))
    assert cache.plan("base", list(range(33)), exact=True).keep == 0


def test_another_version_shares_nothing() -> None:
    cache = PrefixCache(3, CHUNK)
    run(cache, "base", list(range(20)))
    assert cache.plan("v1", list(range(20)), exact=False).keep == 0
    assert cache.plan("base", list(range(20)), exact=False).keep == 19


def test_two_chats_keep_a_slot_each() -> None:
    cache = PrefixCache(2, CHUNK)
    system = [900 + index for index in range(6)]
    one, two = [*system, *range(20)], [*system, *range(100, 120)]
    run(cache, "base", one)
    assert run(cache, "base", two).keep == 0
    assert run(cache, "base", one).keep == len(one) - 1
    assert run(cache, "base", two).keep == len(two) - 1


def test_long_shared_start_is_copied() -> None:
    cache = PrefixCache(2, CHUNK)
    shared = list(range(WORTH_COPYING + 10))
    run(cache, "base", [*shared, *range(5000, 5000 + 400)])
    plan = cache.plan("base", [*shared, 1, 2, 3], exact=False)
    assert plan.source is cache.slots[0]
    assert plan.slot is cache.slots[1]
    assert plan.keep == len(shared)
    assert cache.slots[0].tokens[-1] == 5399


def test_forgetting_leaves_nothing() -> None:
    cache = PrefixCache(2, CHUNK)
    run(cache, "base", list(range(20)))
    cache.forget()
    assert cache.plan("base", list(range(20)), exact=False).keep == 0


def test_common_prefix() -> None:
    assert common_prefix([1, 2, 3], [1, 2, 4]) == 2
    assert common_prefix([], [1]) == 0
    assert common_prefix([1, 2], [1, 2, 3]) == 2


jobs = st.lists(
    st.tuples(
        st.sampled_from(["base", "v1"]),
        st.booleans(),
        st.lists(st.integers(0, 1), min_size=1, max_size=40),
        st.integers(0, 12),
    ),
    max_size=12,
)


@settings(max_examples=300)
@given(jobs)
def test_whatever_came_before(history: list[tuple[str, bool, list[int], int]]) -> None:
    """A slot ends up holding the prompt; and an exact job computes each of its positions as a cold start would.

    How each position was computed (by which evaluation) is tracked beside the cache and compared with a cold one.
    """
    cache = PrefixCache(3, CHUNK)
    batches: dict[int, list[tuple[int, int]]] = {slot.sequence: [] for slot in cache.slots}
    for key, exact, prompt, reply in history:
        plan = cache.plan(key, prompt, exact=exact)
        source = plan.slot if plan.source is None else plan.source
        kept = batches[source.sequence][: plan.keep]
        for start, end in plan.chunks:
            kept += [(start, end)] * (end - start)
        carry_out(cache, plan, prompt)
        assert plan.slot.tokens == prompt
        assert plan.slot.key == key
        if exact:
            assert kept == _cold(len(prompt))
        for _ in range(reply):
            at = len(plan.slot.tokens)
            cache.extend(plan.slot, [2])
            kept.append((at, at + 1))
        batches[plan.slot.sequence] = kept
        assert kept[: plan.slot.exact] == _cold(len(kept))[: plan.slot.exact]


def _cold(length: int) -> list[tuple[int, int]]:
    spans = [(start, min(start + CHUNK, length)) for start in range(0, length, CHUNK)]
    return [span for span in spans for _ in range(span[1] - span[0])]
