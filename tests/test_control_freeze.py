"""Frozen means frozen: also a run that was under way brings nothing live by itself."""

from __future__ import annotations

from typing import cast

import pytest

from learner.gate import Check, Verdict
from learner.round import Round
from learner.yielding import Yielding
from store import adapters, changes, runs, steering
from store.changes import Stage
from store.control import ROUND, Action, RoundChoice, RoundInputs, World
from store.db import Store
from store.decisions import append
from store.types import AdapterState, RunOutcome, Trigger
from tests import seed


@pytest.mark.parametrize(
    ("trigger", "frozen", "outcome"),
    [
        (Trigger.ENOUGH_UNITS, True, RunOutcome.REJECTED),
        (Trigger.ENOUGH_UNITS, False, RunOutcome.PROMOTED),
        (Trigger.MANUAL, True, RunOutcome.PROMOTED),
    ],
)
def test_a_run_that_ends_in_a_frozen_home_brings_nothing_live_by_itself(
    store: Store, trigger: Trigger, frozen: bool, outcome: RunOutcome
) -> None:
    runs.request(store, trigger)
    run = runs.claim(store, 1)
    assert run is not None
    made = seed.adapter(store, b"one", [], run.id)
    inputs = RoundInputs(str(trigger), (), 0, World())
    decision = append(
        store, ROUND, inputs.as_dict(), RoundChoice(Action.TRAIN, "due", learns=("a",)).as_dict()
    )
    steering.applied(store, decision, changes.By.RULE, run=run.id)
    steering.freeze(store, frozen)
    round_ = Round(store, run, cast(Yielding, None))
    passed = Verdict((Check("margin", 0.4, 0.1, True, "it is better"),))
    assert passed.passed
    assert round_._decide(made, passed) is outcome
    live = adapters.active(store, seed.BASE).adapter
    assert (live is not None) == (outcome is RunOutcome.PROMOTED)
    if outcome is RunOutcome.REJECTED:
        refused = adapters.get(store, made.id)
        assert refused.state is AdapterState.REJECTED
        assert "froze" in str(refused.reason)
        (change,) = changes.changes(store)
        assert change.stage("a") is Stage.CALLED_OFF, "it says nothing about the knob"
