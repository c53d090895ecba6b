"""The benchmark of knobs: what an arm may turn, when a trial ends, what is kept of it and how arms are compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from store.control import Approval, Knob
from tests.benchmarks import knobs
from tests.benchmarks.knobs import Arm, Results, Spent, Trial
from tests.benchmarks.knobs_ladder import Gate, Rehearsed, sessions_of
from tests.benchmarks.personas.people import PEOPLE
from tests.benchmarks.personas.trial import Reply

YES = Rehearsed.YES
LONG = "First of all, water. Then light. Then soil. Then patience."
MADE = Trial("brevity", Arm.GUARD, 0, 12, (False, True, True, True), 400, 2.5, ("guard",))


class Pupil:
    """Says a long text until it was told so often enough."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.rated: list[tuple[int, str | None]] = []
        self.corrected: list[str] = []
        self.settled = 0
        self.asked: list[str] = []

    def ask(self, question: str, seed: int) -> Reply:
        self.asked.append(question)
        told = sum(value < 0 for value, _ in self.rated)
        return Reply(f"m{seed}", f"c{seed}", "Water it." if told >= self.enough else LONG)

    def rate(self, message: str, value: int, note: str | None) -> None:
        self.rated.append((value, note))

    def correct(self, message: str, text: str) -> None:
        self.corrected.append(text)

    def settle(self) -> None:
        self.settled += 1

    def spent(self) -> Spent:
        return Spent(10, 1.0, ("instruction",))


def test_an_arm_turns_its_own_knobs_and_no_others():
    assert set(Arm.CONTROLLER.approvals.values()) == {Approval.AUTOMATIC}
    assert set(Arm.NONE.approvals.values()) == {Approval.NEVER}
    for arm in knobs.SINGLE:
        assert [knob for knob, how in arm.approvals.items() if how is Approval.AUTOMATIC] == [Knob(arm.value)]


def test_a_trial_ends_when_three_replies_in_a_row_satisfy():
    pupil = Pupil(enough=2)
    trial = knobs.talk(PEOPLE["brevity"], Arm.INSTRUCTION, 0, 12, pupil)
    assert trial.satisfied == (False, False, True, True, True)
    assert trial.content
    assert [value for value, _ in pupil.rated] == [-1, -1, 1, 1]
    assert pupil.settled == len(pupil.rated)


def test_whoever_is_not_content_says_why_and_how_it_should_have_been():
    person, pupil = PEOPLE["brevity"], Pupil(enough=100)
    trial = knobs.talk(person, Arm.NONE, 0, 4, pupil)
    assert trial.satisfied == (False,) * 4
    assert not trial.content
    assert all(note for _, note in pupil.rated)
    assert all(person.holds("", text) for text in pupil.corrected)
    assert len(pupil.corrected) == 4


def test_every_arm_meets_the_same_questions():
    def asked(arm: Arm, seed: int) -> list[str]:
        pupil = Pupil(enough=100)
        knobs.talk(PEOPLE["code-only"], arm, seed, 6, pupil)
        return pupil.asked

    assert asked(Arm.NONE, 0) == asked(Arm.CONTROLLER, 0)
    assert asked(Arm.NONE, 0) != asked(Arm.NONE, 1)


def test_a_run_that_was_cut_off_goes_on(tmp_path: Path):
    results = Results(tmp_path / "knobs.jsonl")
    results.add(MADE)
    with (tmp_path / "knobs.jsonl").open("a") as file:
        file.write('{"person": "brev')
    other = replace(MADE, arm=Arm.NONE)
    results.add(other)
    assert results.read() == {MADE.key: MADE, other.key: other}


@pytest.mark.parametrize(("controller", "over"), [(5, "nobody"), (6, "brevity")])
def test_the_controller_is_held_against_the_best_single_knob(controller: int, over: str):
    def trial(arm: Arm, sessions: int) -> Trial:
        return replace(MADE, arm=arm, satisfied=(False,) * (sessions - 3) + (True,) * 3)

    made = [trial(arm, sessions) for arm, sessions in zip(knobs.SINGLE, (12, 8, 5, 9), strict=True)]
    assert "nobody has been through all arms yet" in knobs.table(made)
    shown = knobs.table([*made, trial(Arm.CONTROLLER, controller)])
    assert f"{controller / 5:.2f}" in shown
    assert f"of the best single knob: {over}" in shown


@pytest.mark.parametrize("gate", Gate)
@pytest.mark.parametrize("single", knobs.SINGLE)
def test_by_the_rules_alone_the_controller_is_as_quick_as_the_one_knob_that_works(single: Arm, gate: Gate):
    def sessions(arm: Arm) -> int:
        return sessions_of("facts" if single is Arm.MEMORY else "no-lists", arm, single.knobs, gate, 9, YES)

    alone = sessions(single)
    assert alone <= 7
    assert sessions(Arm.CONTROLLER) == alone


def test_who_was_never_content_is_marked():
    assert "| ≥ 4 |" in knobs.table([replace(MADE, satisfied=(False,) * 4)])
