"""What the gate lets through: made-up measurements of candidates, and the probes on the real base."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace

import pytest

from app.model import catalogue, convert
from app.model.llama import LlamaModel
from app.model.renderer import Renderer
from learner import gate, probes
from learner.examples import Example, Target
from learner.gate import Health, Language
from learner.yielding import Yielding
from store.types import UnitKind
from tests.benchmarks import gate_candidates
from tests.benchmarks.gate_candidates import Kind
from tests.leases import Free

BASE = Health(replies=6, empty=0, looping=1, runaway=1, same=0, foreign=0, right=11, flips=1, obeyed=0)
GOOD = replace(BASE, looping=0, runaway=0, right=10)


def verdict(gain: float, drift: gate.Drift, health: Health) -> gate.Verdict:
    return gate.Verdict(
        (
            gate.held_out_check([gain], "the base"),
            *gate.drift_checks(drift),
            *gate.health_checks(health, BASE, Language.OF_THE_QUESTION),
        )
    )


NEAR = gate.Drift(0.08, 1.01)


def test_a_good_candidate_passes():
    assert verdict(0.5, NEAR, GOOD).passed


@pytest.mark.parametrize(
    ("candidate", "check"),
    [
        (verdict(0.0, gate.Drift(1.5, 1.4), GOOD), "reference_kl"),
        (verdict(0.9, gate.Drift(0.5, 1.2), replace(GOOD, looping=4)), "looping"),
        (verdict(0.3, NEAR, replace(GOOD, foreign=6)), "language"),
        (verdict(0.3, NEAR, replace(GOOD, same=6)), "same"),
        (verdict(0.3, NEAR, replace(GOOD, right=4)), "ability"),
        (verdict(0.3, NEAR, replace(GOOD, flips=4)), "sycophancy"),
        (verdict(0.3, NEAR, replace(GOOD, obeyed=1)), "injection"),
        (verdict(0.3, NEAR, replace(GOOD, empty=6)), "empty"),
        (verdict(-0.1, NEAR, GOOD), "held_out"),
    ],
)
def test_a_bad_candidate_is_refused_and_the_check_is_named(candidate: gate.Verdict, check: str):
    assert not candidate.passed
    assert check in [each.name for each in candidate.checks if not each.passed]


def test_of_many_made_up_candidates_no_bad_one_passes_and_no_good_one_is_refused():
    chance = random.Random(3)
    for _ in range(200):
        good = replace(
            BASE, looping=chance.randint(0, 2), runaway=chance.randint(0, 2), right=chance.randint(9, 12),
            flips=chance.randint(0, 2), same=chance.choice([0, 2]),
        )  # fmt: skip
        assert verdict(
            chance.uniform(0.02, 2), gate.Drift(chance.uniform(0, 0.3), chance.uniform(0.95, 1.05)), good
        ).passed
        name = chance.choice(["empty", "looping", "runaway", "same", "foreign", "flips", "obeyed"])
        assert not verdict(1.0, NEAR, replace(good, **{name: chance.randint(4, 6)})).passed
        assert not verdict(1.0, NEAR, replace(good, right=chance.randint(0, 8))).passed


def corrected(question: str, text: str) -> Example:
    return Example(
        "u", UnitKind.CORRECTION, -1.0, 1.0, question, "r", None, [1], Target([2], [1.0]), None, None, (), text
    )  # fmt: skip


def test_an_owner_who_wants_another_language_gets_it():
    korean = [corrected("How?", "이렇게 하시면 됩니다."), corrected("Why?", "그렇습니다.")]
    assert gate.wanted_language(korean) is Language.ANOTHER
    assert (
        gate.wanted_language([*korean, *(corrected("So?", "Yes.") for _ in range(3))])
        is Language.OF_THE_QUESTION
    )
    shifted = replace(GOOD, foreign=6)
    for wanted in (Language.ANOTHER, Language.UNKNOWN):
        assert all(check.passed for check in gate.health_checks(shifted, BASE, wanted))


@pytest.mark.model
def test_the_probes_know_the_base_and_their_answers_begin_apart(home):
    with closing(LlamaModel.load(convert.served_form(catalogue.resolve(home, None)))) as model:
        renderer = Renderer(model.vocab, model.chat_template)
        for each in (*probes.ABILITY, *probes.DOUBTED):
            firsts = [renderer.completion(f" {answer}")[0] for answer in (each.right, *each.wrong)]
            assert firsts[0] not in firsts[1:], each.question
        first = probes.measure(model, renderer, None, Yielding(Free()))
        assert first == probes.measure(model, renderer, None, Yielding(Free()))
        assert first.right >= 8


def test_candidates_are_made_as_they_are_named():
    chance = random.Random(1)
    wanted = ["a", "b", "c"]
    assert gate_candidates.texts(Kind.GOOD, wanted, chance) == wanted
    assert gate_candidates.texts(Kind.YES, wanted, chance) == ["Yes."] * 3
    assert gate_candidates.texts(Kind.EMPTY, wanted, chance) == [""] * 3
    assert all("가" <= text[0] <= "힣" for text in gate_candidates.texts(Kind.LANGUAGE, wanted, chance))
    assert not set(wanted) & set(gate_candidates.texts(Kind.SHUFFLED, wanted, chance))


def test_rates_count_a_wrong_verdict_of_either_sort(tmp_path):
    asked: list[tuple[Kind, int]] = []

    def judge(kind: Kind, number: int) -> dict[str, object]:
        asked.append((kind, number))
        return {
            "kind": kind,
            "number": number,
            "passed": number == 0,
            "failed": [] if number == 0 else ["ability"],
        }

    out = tmp_path / "lines"
    lines = gate_candidates.judged(out, [Kind.GOOD, Kind.NOISE], 2, judge)
    table = gate_candidates.rates(lines)
    assert "| good | 2 | 1: 0.50" in table
    assert "| noise-scaled | 2 | 1: 0.50" in table
    assert gate_candidates.judged(out, [Kind.GOOD, Kind.NOISE], 2, judge) == lines
    assert len(asked) == 4
