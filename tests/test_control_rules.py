"""The rules of the controller, as what they are: functions of a few numbers. No store, no model."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.causes import Cause, Signature, Violated
from store.control import (
    CONTROL,
    EVERYTHING,
    NEW,
    ROUND,
    Action,
    Approval,
    Attempt,
    Breaker,
    Flight,
    Group,
    Inputs,
    Knob,
    RoundInputs,
    Verdict,
    World,
)
from store.deciding import BUSY, FAULT, LOCKED, STALE, decide, decide_round, remake, verdict
from store.evidence import Count, wilson

RULE = Signature(Cause.RULE, Violated.TOO_LONG, "prose")
STYLE = Signature(Cause.STYLE, Violated.WORDING, "prose")
OFTEN = Count(5, 4, 10)
ALL = {Knob.INSTRUCTION: NEW, Knob.GUARD: NEW}


def inputs(signature: Signature = RULE, **changes: Any) -> Inputs:
    return replace(Inputs(signature, OFTEN, offers=ALL, samples=3, said=signature == RULE), **changes)


def failed(knob: Knob, times: int = 1) -> tuple[Attempt, ...]:
    return tuple(Attempt(knob, Verdict.NOT_HELPED, f"{knob}{number}") for number in range(times))


def test_interval_is_wilsons() -> None:
    low, high = wilson(3, 5)
    assert (round(low, 4), round(high, 4)) == (0.2307, 0.8824)
    assert wilson(0, 0) == (0.0, 1.0)
    assert wilson(0, 7)[0] == 0.0
    assert wilson(7, 7)[1] == 1.0


@given(st.integers(0, 500), st.integers(0, 500))
def test_interval_holds_its_share(one: int, other: int) -> None:
    successes, n = min(one, other), max(one, other)
    low, high = wilson(successes, n)
    assert 0.0 <= low <= (successes / n if n else 0.5) <= high <= 1.0


@pytest.mark.parametrize(
    ("now", "enough"),
    [
        (Count(2, 2, 4), False),
        (Count(3, 1, 4), False),
        (Count(3, 2, 4), True),
        (Count(3, 2, 200), False),
    ],
)
def test_support_is_three_failures_in_two_conversations_and_not_too_rare(now: Count, enough: bool) -> None:
    assert (decide(inputs(now=now)).action is not Action.NOTHING) == enough


def test_one_request_in_so_many_words_is_enough() -> None:
    choice = decide(inputs(now=Count(0, 0, 0), asked=True))
    assert (choice.action, choice.knob) == (Action.PROPOSE, Knob.INSTRUCTION)


def test_the_ladder_goes_up_only_after_a_failure_and_ends_in_words() -> None:
    tried: tuple[Attempt, ...] = ()
    order = []
    choice = decide(inputs())
    for _ in range(7):
        choice = decide(inputs(attempts=tried))
        if choice.action is Action.GIVE_UP:
            break
        assert choice.knob is not None
        order.append(choice.knob)
        tried = (*tried, *failed(choice.knob))
    assert order == [Knob.INSTRUCTION, Knob.GUARD, Knob.WEIGHTS] * 2
    assert choice.why.startswith("I cannot fix this")
    assert all(each.why_not for each in choice.candidates)


def test_a_change_that_helped_does_not_lock_its_knob() -> None:
    helped = (Attempt(Knob.INSTRUCTION, Verdict.HELPED, "i1"),) * 3
    assert decide(inputs(attempts=helped)).knob is Knob.INSTRUCTION


def test_what_was_made_before_is_not_made_again() -> None:
    tried = failed(Knob.INSTRUCTION)
    choice = decide(
        inputs(
            attempts=(*tried, *failed(Knob.GUARD), *failed(Knob.WEIGHTS)),
            offers={Knob.INSTRUCTION: tried[0].item, Knob.GUARD: NEW},
        )
    )
    assert choice.knob is Knob.GUARD
    instruction = next(each for each in choice.candidates if each.knob is Knob.INSTRUCTION)
    assert instruction.why_not == "the same change was made here before"


def test_what_the_owner_took_back_is_locked_at_once() -> None:
    undone = (Attempt(Knob.INSTRUCTION, Verdict.NOT_HELPED, "i1", by_owner=True),)
    assert decide(inputs(attempts=undone)).knob is Knob.GUARD


def test_a_taste_that_was_only_shown_goes_to_the_weights() -> None:
    assert decide(inputs(STYLE)).action is Action.TRAIN
    shown = inputs(said=False)
    assert decide(shown).knob is Knob.WEIGHTS
    assert decide(replace(shown, attempts=failed(Knob.WEIGHTS))).knob is Knob.INSTRUCTION


def test_a_taste_that_was_put_into_words_is_tried_as_an_instruction_first() -> None:
    assert decide(inputs(STYLE, said=True)).knob is Knob.INSTRUCTION


def test_what_the_owner_wrote_down_about_the_owner_needs_no_second_time() -> None:
    fact = Signature(Cause.OWN_FACT, Violated.FACT, "home")
    once = inputs(fact, now=Count(1, 1, 1), offers={Knob.MEMORY: NEW})
    assert decide(once).action is Action.NOTHING
    told = decide(replace(once, stated=True))
    assert (told.knob, told.why) == (Knob.MEMORY, "the owner wrote down what is right")


@pytest.mark.parametrize(
    ("rehearsed", "knob"),
    [
        ({Knob.INSTRUCTION: Count(0, 0, 3)}, Knob.INSTRUCTION),
        ({Knob.INSTRUCTION: Count(1, 1, 3)}, Knob.GUARD),
        ({Knob.INSTRUCTION: Count(1, 1, 3), Knob.GUARD: Count(1, 1, 3)}, Knob.INSTRUCTION),
        ({Knob.INSTRUCTION: Count(1, 1, 3), Knob.GUARD: Count(2, 2, 3)}, Knob.INSTRUCTION),
        ({Knob.INSTRUCTION: Count(2, 2, 3), Knob.GUARD: Count(2, 2, 3)}, Knob.WEIGHTS),
        ({Knob.INSTRUCTION: Count(0, 0, 0)}, Knob.INSTRUCTION),
        ({Knob.INSTRUCTION: Count(2, 2, 3)}, Knob.GUARD),
        ({Knob.INSTRUCTION: Count(3, 3, 3)}, Knob.GUARD),
        ({Knob.INSTRUCTION: Count(3, 3, 3), Knob.GUARD: Count(3, 3, 3)}, Knob.WEIGHTS),
    ],
)
def test_what_a_rehearsal_showed_not_to_help_is_not_tried_on_a_person(
    rehearsed: dict[Knob, Count], knob: Knob
) -> None:
    assert decide(inputs(rehearsed=rehearsed)).knob is knob


def test_what_helped_in_no_rehearsal_is_no_last_resort_and_what_helped_in_some_is() -> None:
    for failures, action in ((3, Action.GIVE_UP), (2, Action.PROPOSE)):
        rehearsed = {Knob.INSTRUCTION: Count(failures, failures, 3)}
        alone = inputs(rehearsed=rehearsed, offers={Knob.INSTRUCTION: NEW}, samples=0)
        assert decide(alone).action is action


@pytest.mark.parametrize("cause", [Cause.UNCLEAR, Cause.UNKNOWN_FACT])
def test_what_nobody_named_is_said_to_be_beyond_repair(cause: Cause) -> None:
    choice = decide(inputs(Signature(cause, Violated.UNSAID, "prose")))
    assert choice.action is Action.GIVE_UP
    assert choice.why.startswith("I cannot fix this: ")


def flight(after: Count, *, knob: Knob = Knob.INSTRUCTION, applied: bool = True) -> Flight:
    return Flight("d1", knob, applied, OFTEN, after)


@pytest.mark.parametrize(
    ("after", "found"),
    [
        (Count(2, 2, 2), Verdict.TOO_EARLY),
        (Count(3, 1, 3), Verdict.TOO_EARLY),
        (Count(3, 3, 3), Verdict.NOT_HELPED),
        (Count(3, 3, 5), Verdict.NOT_HELPED),
        (Count(0, 0, 5), Verdict.TOO_EARLY),
        (Count(0, 0, 6), Verdict.HELPED),
        (Count(6, 6, 6), Verdict.NOT_HELPED),
        (Count(20, 20, 20), Verdict.WORSE),
        (Count(1, 1, 6), Verdict.TOO_EARLY),
        (Count(2, 2, 12), Verdict.HELPED),
    ],
)
def test_verdict_is_as_early_as_the_evidence_and_looks_at_the_interval(after: Count, found: Verdict) -> None:
    assert verdict(OFTEN, after) is found


@pytest.mark.parametrize(("failures", "found"), [(3, Verdict.NOT_HELPED), (2, Verdict.TOO_EARLY)])
def test_where_all_failed_before_it_takes_three_of_three(failures: int, found: Verdict) -> None:
    before = Count(3, 3, 3)
    assert verdict(before, Count(failures, failures, failures)) is found
    assert verdict(before, Count(3, 3, 4)) is Verdict.TOO_EARLY, (
        "5 of 16 such changes that help look like this"
    )


def test_one_change_at_a_time_for_a_signature() -> None:
    choice = decide(inputs(flight=flight(Count(2, 2, 3))))
    assert (choice.action, choice.knob) == (Action.NOTHING, None)


def test_what_does_not_help_is_taken_back() -> None:
    choice = decide(inputs(flight=flight(Count(6, 6, 6))))
    assert (choice.action, choice.target) == (Action.ROLLBACK, "d1")
    weights = decide(inputs(flight=flight(Count(6, 6, 6), knob=Knob.WEIGHTS)))
    assert weights.action is Action.NOTHING, "a version that does not help here may help elsewhere"
    assert decide(inputs(flight=flight(Count(20, 9, 20), knob=Knob.WEIGHTS))).action is Action.ROLLBACK


def test_what_waits_for_the_owner_is_not_decided_again() -> None:
    choice = decide(inputs(flight=flight(Count(0, 0, 0), applied=False)))
    assert "waits for the owner's word" in choice.why


@pytest.mark.parametrize(
    ("world", "word"),
    [
        (World(frozen=True), "frozen"),
        (World(breakers={EVERYTHING: Breaker.OPEN}), "all wait"),
        (World(breakers={Knob.INSTRUCTION: Breaker.OPEN}), "went wrong lately"),
        (World(breakers={Knob.INSTRUCTION: Breaker.HALF_OPEN}, trying=(Knob.INSTRUCTION,)), "one is tried"),
        (World(spent={"changes": 40.0}, caps={"changes": 40.0}), "limit of changes"),
        (World(run_open=True), "learning run is under way"),
    ],
)
def test_what_holds_changes_back(world: World, word: str) -> None:
    choice = decide(inputs(world=world))
    assert choice.action is Action.NOTHING
    assert word in choice.why


def test_the_owners_word_about_a_knob() -> None:
    asks = World(approvals={Knob.INSTRUCTION: Approval.ASK})
    assert decide(inputs(world=asks)).ask
    never = World(approvals={Knob.INSTRUCTION: Approval.NEVER})
    assert decide(inputs(world=never)).knob is Knob.GUARD


def test_confidence_follows_what_became_of_earlier_changes() -> None:
    world = World(record={Knob.INSTRUCTION: (8, 8)})
    chosen = decide(inputs(world=world)).candidates[0]
    assert chosen.confidence == 0.9


@given(st.dictionaries(st.sampled_from(["timeout", "out_of_memory", "unknown"]), st.integers(0, 10_000)))
def test_no_rule_looks_at_faults(excluded: dict[str, int]) -> None:
    assert decide(inputs(excluded=excluded)) == decide(inputs())


def round_of(*groups: Group, **world: Any) -> RoundInputs:
    return RoundInputs("enough-units", groups, 0, World(**world))


def test_a_run_learns_what_nothing_else_has_taken_over() -> None:
    choice = decide_round(
        round_of(
            Group(STYLE.key, ("u1", "u2")),
            Group(RULE.key, ("u3", "u4"), stale=("u3",), busy=True),
            Group("rule/list/prose", ("u5",), failed=2),
            Group(None, ("u6", "u7"), faults=("u7",)),
        )
    )
    assert choice.action is Action.TRAIN
    assert choice.learns == (STYLE.key,)
    assert choice.held == {"u3": STALE, "u4": BUSY, "u5": LOCKED, "u7": FAULT}


@pytest.mark.parametrize(
    "world",
    [
        {"frozen": True},
        {"approvals": {Knob.WEIGHTS: Approval.NEVER}},
        {"breakers": {Knob.WEIGHTS: Breaker.OPEN}},
        {"spent": {"minutes": 9.0}, "caps": {"minutes": 9.0}},
    ],
)
def test_a_run_that_may_not_be_leaves_nothing_out(world: dict[str, Any]) -> None:
    choice = decide_round(round_of(Group(STYLE.key, ("u1",), stale=("u1",)), **world))
    assert (choice.action, choice.held) == (Action.NOTHING, {})


def test_a_run_with_nothing_left_to_learn_is_none() -> None:
    group = Group(RULE.key, ("u1",), faults=("u1",))
    assert decide_round(round_of(group)).action is Action.NOTHING
    assert decide_round(replace(round_of(group), unjudged=1)).action is Action.TRAIN


@pytest.mark.parametrize(
    "made",
    [
        inputs(),
        inputs(STYLE, samples=0),
        inputs(stated=True, rehearsed={Knob.INSTRUCTION: Count(2, 2, 3), Knob.GUARD: Count(0, 0, 3)}),
        inputs(attempts=failed(Knob.INSTRUCTION, 2), asked=True),
        inputs(flight=flight(Count(6, 6, 6))),
        inputs(world=World(True, True, {Knob.GUARD: Approval.ASK}, {EVERYTHING: Breaker.OPEN}, {"a": 1.0})),
    ],
)
def test_a_decision_can_be_made_again_from_its_record(made: Inputs) -> None:
    record = made.as_dict()
    assert Inputs.of(record) == made
    assert remake(CONTROL, record) == decide(made).as_dict()


def test_a_record_of_other_rules_is_known_as_such_and_not_made_again() -> None:
    record = inputs().as_dict()
    for name in ("said", "stated", "rehearsed"):
        del record[name]
    assert remake(CONTROL, {**record, "rules": "control-1"}) is None


def test_a_decision_on_a_run_can_be_made_again_from_its_record() -> None:
    made = round_of(Group(RULE.key, ("u3",), stale=("u3",)), Group(None, ("u4",)))
    assert remake(ROUND, made.as_dict()) == decide_round(made).as_dict()


def test_minutes_of_learning_keep_only_the_weights_back() -> None:
    """A day that learned enough still takes an order to heart."""
    used = World(spent={"changes": 1.0, "cpu_minutes": 240.0}, caps={"changes": 40.0, "cpu_minutes": 240.0})
    assert decide(inputs(world=used)).action is Action.PROPOSE
    waits = decide(inputs(STYLE, world=used))
    assert waits.why == "weights would be next: the day's limit of cpu minutes is reached (240 of 240)"
