"""What the learner sees by rule: asked again or not, checkable replies, what a unit becomes, how a ledger divides."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.model.renderer import Renderer, Turn
from learner import checks, examples, ledger, requery, words
from learner.examples import COPIED_WEIGHT, END_WEIGHT, Example, Refusal
from store import signals, units
from store.db import Store
from store.redaction import Redactor
from store.types import Role, RunState, SignalKind, UnitKind, UnitState
from store.units import Unit
from tests import seed


class Letters:
    """A vocabulary of characters, with three control tokens that only a template writes."""

    adds_bos = False
    bos = eos = end_of_turn = 2
    end_ids = frozenset({2})
    _controls: ClassVar[dict[int, str]] = {1: "<|im_start|>", 2: "<|im_end|>"}

    def encode(self, text: str, *, special: bool) -> list[int]:
        tokens: list[int] = []
        while text:
            control = next(
                (c for c, name in self._controls.items() if special and text.startswith(name)), None
            )
            tokens.append(ord(text[0]) if control is None else control)
            text = text[1:] if control is None else text[len(self._controls[control]) :]
        return tokens

    def control_text(self, token: int) -> str:
        return self._controls.get(token, "")

    def is_control(self, token: int) -> bool:
        return token in self._controls


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(Letters(), None)


def never(_one: str, _other: str) -> float:
    """A similarity that must not be asked for."""
    raise AssertionError("the embedding model was asked")


@pytest.mark.parametrize(
    "following",
    [
        "No, I meant the river, not the city.",
        "no i meant in Celsius",
        "I meant the other one",
        "That's wrong.",
        "That is not what I asked.",
        "I asked for three, not ten!",
        "You didn't answer my question.",
        "Try again, shorter.",
        "But I said without sugar.",
        "아니, 그게 아니라 강을 말한 거예요.",
        "제 말은 섭씨로 알려 달라는 거예요.",
        "틀렸어요. 다시 설명해 주세요.",
    ],
)
def test_phrases_say_that_it_was_asked_again(following: str):
    verdict = requery.judge("Tell me about the Amazon please", following, never)
    assert verdict is not None
    assert verdict.hint == following


@pytest.mark.parametrize(
    ("question", "following"),
    [
        ("What is the capital of France?", "What is the capital of Spain?"),
        ("What is 7 times 13?", "What is 7 times 14?"),
        ("How do I boil an egg?", "Thanks!"),
        ("How do I boil an egg?", "No problem, thank you."),
        ("How do I boil an egg?", "Nothing else, bye"),
        ("Can I eat it raw?", "Great, that is what I wanted."),
        ("서울의 인구는 얼마인가요?", "부산은 어떤 도시인가요?"),
    ],
)
def test_a_new_question_or_thanks_is_not_asked_again(question: str, following: str):
    assert requery.judge(question, following, lambda *_: 0.5) is None


def test_the_same_words_again_need_no_model_and_bring_no_hint():
    verdict = requery.judge("How do I boil an egg?", "how do i boil an EGG", never)
    assert verdict is not None
    assert verdict.hint is None


def test_similarity_decides_only_where_no_name_or_number_changed():
    assert requery.judge("How far is the Moon?", "How far is the Sun?", lambda *_: 0.99) is None
    assert (
        requery.judge("How do I fix a flat tyre?", "How can I repair a flat tire?", lambda *_: 0.93)
        is not None
    )
    assert requery.judge("How do I fix a flat tyre?", "How do I sell my old car?", lambda *_: 0.6) is None


@pytest.mark.model
def test_the_packaged_embeddings_tell_rewordings_from_other_questions():
    assert (
        requery.sentence_similarity("How do I fix a flat tyre?", "How can I repair a flat tyre?")
        > requery.SIMILAR
    )
    assert requery.sentence_similarity("How do I fix a flat tyre?", "What is a good soup?") < 0.5


def test_loops_are_seen_and_prose_is_not():
    assert checks.loops([5, 6, 7, 8] * 12)
    assert checks.loops([9] * 30)
    assert not checks.loops(list(range(60)))
    assert not checks.loops([1, 2, 3])


@pytest.mark.parametrize(
    ("reply", "hint", "reason"),
    [
        ("", "be nice", "it is empty"),
        ("the same", "be nice", "it is the rejected reply again"),
        ("the same length", "Answer in one or two short sentences.", "it is not shorter"),
        ("- a\n- b", "without any list or bullet points", "it has a list"),
        (
            "안녕하세요",
            "Answer in the same language the user writes in.",
            "it is in another script than the question",
        ),
        ("fine", "Answer in one or two short sentences.", None),
    ],
)
def test_a_teachers_reply_is_held_to_what_can_be_counted(reply: str, hint: str, reason: str | None):
    found = checks.teaches(reply, [1, 2], ended=True, question="Hello there", rejected="the same", hint=hint)
    assert found == reason


def test_a_reply_that_was_cut_does_not_teach():
    assert checks.teaches("x", [1], ended=False, question="q", rejected="r", hint="h") == "it did not end"


def test_what_the_owner_kept_weighs_a_tenth_and_the_end_most():
    weights = examples.correction_weights([1, 2, 3, 9, 8, 0], [1, 2, 3, 0])
    assert weights == [COPIED_WEIGHT] * 3 + [1.0, 1.0, END_WEIGHT]


def test_a_long_kept_end_is_left_out_and_a_long_kept_beginning_is_not():
    said = list(range(100, 200))
    before = examples.correction_target([5, 6, *said, 2], [*said, 2])
    assert before.tokens == [5, 6, *said[: examples.KEPT_TAIL + 1]]
    assert before.weights[:4] == [1.0, 1.0, 1.0, COPIED_WEIGHT]
    after = examples.correction_target([*said, 5, 6, 2], [*said, 2])
    assert after.tokens == [*said, 5, 6, 2]
    assert after.weights[-3:] == [1.0, 1.0, END_WEIGHT]


def test_a_shortened_reply_weighs_its_new_end():
    said = list(range(100, 120))
    assert examples.correction_target([*said[:5], 2], [*said, 2]).weights == [
        *[COPIED_WEIGHT] * 5,
        END_WEIGHT,
    ]


def test_a_wholly_own_text_weighs_in_full():
    assert examples.correction_weights([5, 6, 7], [1, 2]) == [1.0, 1.0, END_WEIGHT]


@given(st.lists(st.integers(0, 5), min_size=1), st.lists(st.integers(0, 5)))
def test_each_token_has_a_weight_and_the_window_lies_in_the_reply(chosen: list[int], reply: list[int]):
    weights = examples.correction_weights(chosen, reply)
    assert len(weights) == len(chosen)
    assert all(weight > 0 for weight in weights)
    start, end = examples.rejected_window(chosen, reply)
    assert 0 <= start <= end <= len(reply)


def test_a_hint_stands_below_the_last_question():
    turns = [Turn(Role.USER, "a"), Turn(Role.ASSISTANT, "b"), Turn(Role.USER, "c")]
    assert examples.with_hint(turns, "short!")[-1] == Turn(Role.USER, "c\n\nshort!")
    assert turns[-1].content == "c"


def test_an_example_masks_exactly_prompt_from_completion(home, renderer):
    with Store.open(home) as store:
        unit = seed.corrected(store, "Why?", "Because it is so.", "Because.")
        built = examples.build(store, renderer, unit, Redactor())
    assert isinstance(built, Example)
    assert built.chosen is not None
    assert built.prompt == renderer.prompt([Turn(Role.USER, "Why?")])
    assert built.chosen.tokens == renderer.completion("Because.")
    assert built.reply.tokens == renderer.completion("Because it is so.")


def test_a_correction_that_is_too_long_is_refused_with_its_reason(home, renderer):
    with Store.open(home) as store:
        unit = seed.corrected(store, "Why?", "So.", "x" * 600)
        built = examples.build(store, renderer, unit, Redactor())
    assert isinstance(built, Refusal)
    assert "longer than 512 tokens" in built.reason


def test_a_correction_of_personal_data_alone_is_refused(home, renderer):
    with Store.open(home) as store:
        unit = seed.corrected(store, "Whom?", "Write to bo@example.org.", "Write to Bo@example.org.")
        built = examples.build(store, renderer, unit, Redactor())
    assert isinstance(built, Refusal)
    assert "only in personal data" in built.reason


def test_a_thumb_with_a_note_becomes_a_hinted_prompt(home, renderer):
    with Store.open(home) as store:
        _, _, reply = seed.say(store, "Why?", "Because of many things.")
        signals.record(store, reply, SignalKind.THUMB, value=-1.0, text="Answer briefly.")
        unit = units.of_message(store, reply)
        assert unit is not None
        built = examples.build(store, renderer, unit, Redactor())
    assert isinstance(built, Example)
    assert built.hinted == renderer.prompt([Turn(Role.USER, "Why?\n\nAnswer briefly.")])


def unit(name: str, state: UnitState = UnitState.QUEUED) -> Unit:
    return Unit(name, "m", "c", UnitKind.CORRECTION, -1.0, "t", None, 1.0, state, None, name, "2026")


def test_one_of_eight_is_held_out_and_the_choice_is_the_runs():
    waiting = [unit(str(index)) for index in range(8)]
    first, again = ledger.split(waiting, [], 7), ledger.split(waiting, [], 7)
    assert first == again
    assert (len(first.train), len(first.held_out), first.replay) == (7, 1, [])


def test_a_single_unit_is_not_held_out_from_nothing():
    division = ledger.split([unit("a")], [], 1)
    assert (len(division.train), division.held_out) == (1, [])


@given(st.integers(0, 60), st.integers(0, 80), st.integers(0, 10), st.integers())
def test_no_unit_is_used_twice_and_earlier_tests_stay_tests(fresh: int, used: int, tests: int, number: int):
    waiting = [unit(f"w{index}") for index in range(fresh)]
    earlier = [unit(f"u{index}", UnitState.USED) for index in range(used)]
    tested = [unit(f"t{index}", UnitState.HELD_OUT) for index in range(tests)]
    division = ledger.split(waiting, earlier + tested, number)
    names = [one.id for one in (*division.train, *division.held_out, *division.replay)]
    assert len(names) == len(set(names))
    assert len(division.train) + sum(one.id.startswith("w") for one in division.held_out) == fresh
    assert not any(one.id.startswith("t") for one in (*division.train, *division.replay))
    assert len(division.replay) == used or len(division.replay) >= 24


def test_of_a_long_history_no_more_is_made_than_is_used():
    earlier = [unit(f"u{index}", UnitState.USED) for index in range(5000)]
    tested = [unit(f"t{index}", UnitState.HELD_OUT) for index in range(500)]
    looked: list[str] = []

    def usable(one: Unit) -> bool:
        looked.append(one.id)
        return len(looked) % 2 == 0

    division = ledger.split([unit(str(index)) for index in range(8)], earlier + tested, 5, usable)
    assert len(division.replay) == 24
    assert [one.id for one in division.held_out[1:]] == [f"t{index}" for index in range(488, 500, 2)]
    assert len(looked) == 2 * (24 + 6)
    assert {one.id for one in division.replay} < set(looked)


def test_the_log_says_it_in_words():
    assert words.refused([]) == "none refused"
    assert words.refused(["it loops", "too long", "it loops"]) == "3 refused: it loops (2), too long"
    steps = {RunState.PREPARING: 3.2, RunState.TRAINING: 40.4}
    assert words.by_step(steps) == "preparing 3 s, training 40 s"
