"""Lessons follow from content: without a unit they are what they would be had it never been there."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner import ledger
from learner.ledger import Again
from learner.round import Round
from learner.yielding import Yielding
from store import adapters, forgetting, purging, runs, units
from store.db import Store
from store.types import ForgetState, RunOutcome, Scope, Trigger, UnitKind, UnitState, UnitUse
from store.units import Unit
from tests import seed
from tests.leases import Free


def unit(number: int, state: UnitState = UnitState.QUEUED) -> Unit:
    """A unit whose content follows from its number and whose id does not."""
    content = f"{number * 2654435761 % 2**32:08x}"
    return Unit(
        f"u{os.urandom(4).hex()}",
        "m",
        "c",
        UnitKind.CORRECTION,
        -1.0,
        "better",
        None,
        1.0,
        state,
        None,
        content,
        "2026-01-01",
    )


def lived(rounds: list[list[int]]) -> tuple[list[Unit], list[Unit]]:
    """What the last round finds when so many come in one after the other: its new units, and what it knows."""
    settled: list[tuple[int, UnitState]] = []
    pool: list[int] = []
    last: tuple[list[Unit], list[Unit]] = ([], [])
    for new in rounds:
        pool = sorted([*pool, *new])
        waiting = [unit(number) for number in pool]
        tests = ledger.tested(waiting)
        if not tests:
            continue
        last = (waiting, [unit(number, state) for number, state in sorted(settled)])
        settled += [
            (number, UnitState.HELD_OUT if made.id in tests else UnitState.USED)
            for number, made in zip(pool, waiting, strict=True)
        ]
        pool = []
    return last


def history(rounds: list[list[int]]) -> list[tuple[Unit, int]]:
    flat = [(number, index) for index, new in enumerate(rounds) for number in new]
    return [(unit(number, UnitState.QUEUED), index + 1) for number, index in sorted(flat)]


def content(waiting: list[Unit], learned: list[Unit]) -> str:
    return ledger.digest(waiting, learned)


@given(
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=4),
    data=st.data(),
)
def test_a_history_without_a_unit_ends_as_if_it_had_never_been(sizes: list[int], data: st.DataObject) -> None:
    numbers = data.draw(st.permutations(range(sum(sizes))))
    rounds, start = [], 0
    for size in sizes:
        rounds.append(sorted(numbers[start : start + size]))
        start += size
    victim = data.draw(st.sampled_from(numbers))
    without = [[number for number in new if number != victim] for new in rounds]
    again = ledger.play_over(
        [each for each in history(rounds) if each[0].content_hash != unit(victim).content_hash]
    )
    waiting, learned = lived(without)
    if again is None:
        assert waiting == []
        return
    assert content(again.waiting, again.learned) == content(waiting, learned)
    chosen = ledger.seed(content(waiting, learned), 0)
    one = ledger.split(again.waiting, again.learned, chosen)
    other = ledger.split(waiting, learned, chosen)
    for mine, theirs in (
        (one.train, other.train),
        (one.held_out, other.held_out),
        (one.replay, other.replay),
    ):
        assert [each.content_hash for each in mine] == [each.content_hash for each in theirs]


def test_the_digest_knows_content_and_nothing_else() -> None:
    new, old = [unit(1), unit(2)], [unit(3, UnitState.USED)]
    assert ledger.digest(new, old) == ledger.digest([unit(1), unit(2)], [unit(3, UnitState.USED)])
    assert ledger.digest(new, old) != ledger.digest(new, [replace(old[0], state=UnitState.HELD_OUT)])
    assert ledger.digest(new, old) != ledger.digest([*new, *old], [])
    assert ledger.seed("a", 0) == ledger.seed("a", 0) != ledger.seed("a", 1)


def test_with_nothing_left_there_is_no_lesson() -> None:
    assert ledger.play_over([]) is None
    assert ledger.play_over([(unit(1), 1)]) is None
    assert isinstance(ledger.play_over([(unit(1), 1), (unit(2), 2)]), Again)


def test_what_serves_and_has_learned_the_rest_is_not_made_anew(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two rounds; what only the second taught is forgotten: the first adapter is what would be there."""
    early = [
        seed.corrected(store, f"question {number}", "a reply", f"better {number}") for number in range(2)
    ]
    first = seed.adapter(store, b"1", [(early[0], UnitUse.TRAINED), (early[1], UnitUse.HELD_OUT)])
    adapters.publish(store, first.id, {"passed": True})
    late = [seed.corrected(store, f"later {number}", "a reply", f"better {number}") for number in range(2)]
    uses = [(late[0], UnitUse.TRAINED), (late[1], UnitUse.HELD_OUT), (early[0], UnitUse.REPLAYED)]
    second = seed.adapter(store, b"2", uses)
    adapters.publish(store, second.id, {"passed": True})

    class Base:
        base_hash = seed.BASE

    monkeypatch.setattr("learner.round.catalogue.resolve", lambda *_: Base())
    asked = purging.proceed(store, forgetting.request(store, Scope.CONVERSATION, late[0].conversation).id)
    run = runs.claim(store, 1)
    assert run is not None
    assert (run.id, run.trigger) == (asked.run, Trigger.FORGETTING)
    assert Round(store, run, Yielding(Free())).carry_out() is RunOutcome.NOTHING_TO_LEARN
    done = purging.proceed(store, asked.id)
    assert done.state is ForgetState.PURGED
    serving = adapters.active(store, seed.BASE).adapter
    assert serving is not None
    assert serving.id == first.id
    assert [each.id for each in units.waiting(store)] == [late[1].id]


def test_history_keeps_the_round_a_unit_came_in_with(store: Store) -> None:
    one, two, three = (
        seed.corrected(store, f"question {number}", "a reply", f"better {number}") for number in range(3)
    )
    for content_, uses in (
        (b"1", [(one, UnitUse.TRAINED)]),
        (b"2", [(two, UnitUse.TRAINED), (one, UnitUse.REPLAYED)]),
    ):
        adapters.publish(store, seed.adapter(store, content_, uses).id, {"passed": True})
    refused = seed.adapter(store, b"3", [(three, UnitUse.TRAINED)])
    adapters.reject(store, refused.id, {}, "refused")
    found = [(each.id, when) for each, when in units.lessons(store, seed.BASE, 9)]
    assert found == [(one.id, 1), (two.id, 2)]
    assert [when for _, when in units.lessons(store, seed.BASE, 1)] == [1]
