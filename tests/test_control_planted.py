"""Planted faults: a person with hidden rules, and what the controller does about it; faults of the machinery beside.

The histories and their labels are those of the benchmark, so that what the documents quote is what is tested.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.planted_faults import NOTHING, Case, among_faults, cases, decided, plain, run


def test_nine_of_ten_choices_are_the_right_ones_and_faults_alone_change_nothing(tmp_path: Path) -> None:
    labelled = cases()
    found = [run(case, tmp_path / str(number)) for number, case in enumerate(labelled)]
    wrong = [
        (case.name, case.right, each)
        for case, each in zip(labelled, found, strict=True)
        if case.right != each
    ]
    assert len(labelled) >= 60
    assert len(wrong) <= 0.1 * len(labelled), wrong
    alone = [each for case, each in zip(labelled, found, strict=True) if case.faults_alone]
    assert len(alone) >= 10
    assert set(alone) == {NOTHING}


@pytest.mark.parametrize("case", plain(), ids=lambda case: case.name)
def test_faults_and_twice_as_many_faults_change_no_decision(case: Case, tmp_path: Path) -> None:
    once, twice = (among_faults([case], times)[0] for times in (1, 2))
    made = decided(case, tmp_path / "none")
    assert decided(once, tmp_path / "once") == made
    assert decided(twice, tmp_path / "twice") == made
