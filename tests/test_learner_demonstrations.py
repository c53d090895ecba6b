"""Practice by demonstration: which corrections are shown, which questions are asked, which answers may teach."""

from __future__ import annotations

import pytest

from app.model.renderer import Renderer
from learner import demonstrations
from learner.demonstrations import Demonstrator, choose, practice_questions, refusal
from learner.examples import END_WEIGHT, Example, Target
from learner.yielding import Yielding
from store.types import UnitKind
from tests.leases import Free
from tests.test_learner_rules import Letters

SHOWN = [list(range(100, 120)), list(range(200, 224))]


def correction(
    number: int, text: str = "Short and plain.", asked: int = 1, question: str | None = None
) -> Example:
    return Example(
        unit=f"u{number}",
        kind=UnitKind.CORRECTION,
        reward=-1.0,
        weight=1.0,
        question=question or f"What is thing {number}?",
        reply_text="Long.",
        hint=None,
        prompt=[1, 2, 3],
        reply=Target([4, 5], [1.0, 1.0]),
        chosen=Target([6, 7], [1.0, 1.0]),
        hinted=None,
        chosen_text=text,
        asked=asked,
    )


@pytest.mark.parametrize(
    ("tokens", "ended", "reason"),
    [
        (range(300, 320), True, None),
        (range(300, 320), False, "it did not end"),
        ([7, 8] * 15, True, "it repeats itself"),
        (range(300, 305), True, "it is much shorter than what the owner writes"),
        (range(300, 345), True, "it is much longer than what the owner writes"),
        (range(100, 118), True, "it copies a correction"),
        ([*range(300, 312), *range(112, 120)], True, None),
    ],
)
def test_only_healthy_answers_of_the_usual_length_teach(tokens, ended: bool, reason: str | None) -> None:
    assert refusal(list(tokens), ended, SHOWN) == reason


def test_first_questions_nearest_the_usual_length_are_shown() -> None:
    renderer = Renderer(Letters(), None)
    given = [correction(number) for number in range(8)]
    given += [correction(8, "x" * 5000), correction(9, asked=2)]
    shown = choose(renderer, given)
    assert 3 <= len(shown) <= demonstrations.MAX_DEMONSTRATIONS
    assert {each.text for each in shown} == {"Short and plain."}
    assert "What is thing 9?" not in {each.question for each in shown}
    assert choose(renderer, [correction(1, asked=2)]) == []


def test_questions_are_in_the_owners_script_and_not_the_taught_ones() -> None:
    english = practice_questions([correction(1, question="how do i boil an EGG?")])
    assert "How do I boil an egg?" not in english
    assert len(english) > demonstrations.TRIES
    korean = practice_questions([correction(1, question="바질은 어떻게 키우나요?")])
    assert all(any("가" <= letter <= "힣" for letter in each) for each in korean)
    assert len(korean) >= demonstrations.TRIES


class _Context:
    n_ctx = 4096

    def close(self) -> None:
        """Nothing to give back."""


class _Model:
    """A model whose answers the test writes."""

    def __init__(self) -> None:
        self.vocab = self

    def context(self, _settings: object) -> _Context:
        return _Context()

    def text(self, tokens: list[int]) -> str:
        return "".join(map(chr, tokens))


def test_practice_stops_when_it_has_enough_and_repeats_itself_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renderer = Renderer(Letters(), None)
    seeds: list[int] = []

    def answers(self, context, shown, questions, longest: int, seed: int) -> list[tuple[list[int], bool]]:
        seeds.append(seed)
        return [
            ([ord(letter) for letter in f"{question[:12]} yes."], number != 2)
            for number, question in enumerate(questions)
        ]

    monkeypatch.setattr(Demonstrator, "_answers", answers)
    model = _Model()
    given = [correction(number) for number in range(4)]
    made = Demonstrator(model, renderer, Yielding(Free())).practise(given, 7)  # type: ignore[arg-type]
    assert len(made.examples) == demonstrations.TOGETHER - 1
    assert set(made.refused) == {"it did not end"}
    first = made.examples[0]
    assert first.chosen is not None
    assert first.chosen.weights[-1] == END_WEIGHT
    assert (first.weight, first.reply.tokens) == (demonstrations.WEIGHT, [])
    seen = list(seeds)
    seeds.clear()
    again = Demonstrator(model, renderer, Yielding(Free())).practise(given, 7)  # type: ignore[arg-type]
    assert (seeds, [each.question for each in again.examples]) == (
        seen,
        [each.question for each in made.examples],
    )


def test_too_few_corrections_are_not_practised() -> None:
    practice = Demonstrator(_Model(), Renderer(Letters(), None), Yielding(Free())).practise(  # type: ignore[arg-type]
        [correction(1), correction(2)], 0
    )
    assert practice.examples == []
