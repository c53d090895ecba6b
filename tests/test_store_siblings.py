"""Another answer was asked for and one was gone on from: when that says something, how little, and what undoes it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from app.model.renderer import Renderer
from learner import examples, judge, ledger, staleness
from learner.examples import Example, Refusal
from learner.next_state import NextState, Pair, Reading
from store import conversations, forgetting, purging, siblings, signals, story, units, verdicts
from store.conversations import ReplyEnd
from store.db import Store
from store.evidence import of as evidence_of
from store.redaction.training import redactor_of
from store.types import (
    FinishReason,
    MessageStatus,
    Scope,
    SignalKind,
    SignalSource,
    UnitKind,
    UnitState,
    UnitUse,
)
from store.units import Unit
from tests import seed
from tests.scripted import ByteVocab
from tests.test_store_forgetting import files_with, live

SILENT = Reading(NextState.FOLLOW_UP, 0, 0.7, 0.1)
UNHAPPY = Reading(NextState.CHANGE, -1, 0.9, 0.9)
FIRST, SECOND, THIRD = "Boil it long.", "Eight minutes.", "Ask a cook."


class Asked:
    """A question with several answers, of which all but the last were asked to be replaced."""

    def __init__(self, store: Store, *answers: str) -> None:
        self.store = store
        self.conversation, self.question, first = seed.say(store, "How do I boil an egg?", answers[0])
        self.replies = [first]
        for text in answers[1:]:
            signals.record(store, self.replies[-1], SignalKind.REGENERATE, value=1.0)
            self.replies.append(self.answer(text))

    def answer(self, text: str, end: MessageStatus = MessageStatus.COMPLETE) -> str:
        reply = conversations.begin_reply(self.store, self.conversation, self.question, seed.START)
        why = FinishReason.STOP if end is MessageStatus.COMPLETE else FinishReason.CANCELLED
        conversations.finish_reply(self.store, reply.id, ReplyEnd(text, end, why, [3], [-0.1]))
        return reply.id

    def go_on(self, number: int, said: str = "and a soft one?", reading: Reading = SILENT) -> None:
        """Ask on below one of the answers, and let the judge look at it."""
        seed.say(self.store, said, "Four minutes.", self.conversation, self.replies[number])
        look(self.store, reading)

    def unit(self, number: int) -> Unit | None:
        return units.of_message(self.store, self.replies[number])


def look(store: Store, reading: Reading = SILENT) -> None:
    class Scripted:
        def read(self, pairs: Sequence[Pair]) -> list[Reading]:
            return [reading for _ in pairs]

    judge.judge_waiting(store, lambda *_: 0.0, Scripted, lambda: None)


@pytest.fixture
def renderer() -> Renderer:
    return Renderer(ByteVocab(), None)


def test_what_was_replaced_is_the_lesser_where_the_new_answer_is_gone_on_from(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND)
    assert asked.unit(0) is None, "asking for another answer says nothing yet"
    asked.go_on(1)
    unit = asked.unit(0)
    assert unit is not None
    assert (unit.kind, unit.state, unit.reward, unit.target) == (
        UnitKind.LESSER, UnitState.QUEUED, -1.0, None
    )  # fmt: skip
    assert unit.weight == pytest.approx(0.5 * siblings.STAYED)
    assert unit.weight < units.TRUST[SignalSource.USER] / 2, "less than half of a thumb"
    assert asked.unit(1) is None, "nothing is said of the kept one by itself"
    assert units.fresh(store) == [], "it starts no run"
    signal = signals.all_of(store, asked.replies[0])[-1]
    assert (signal.kind, signal.source, signal.text) == (SignalKind.LESSER, SignalSource.RULE, None)


def test_of_three_answers_both_others_are_lesser_and_who_went_back_chose(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND, THIRD)
    asked.go_on(2)
    made = siblings.choice(store, asked.replies[0])
    assert made is not None
    assert made.kept.id == asked.replies[2]
    assert [each.reply for each in made.lesser] == asked.replies[:2]
    back = Asked(store, FIRST, SECOND)
    back.go_on(0)
    chosen = siblings.choice(store, back.replies[1])
    assert chosen is not None
    assert chosen.kept.id == back.replies[0]
    assert chosen.lesser == (siblings.Lesser(back.replies[1], siblings.CHOSE),)
    assert back.unit(0) is None


def test_a_copy_of_the_kept_one_makes_it_surer_and_says_nothing_alone(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND)
    signals.record(store, asked.replies[1], SignalKind.COPY, value=1.0)
    assert asked.unit(1) is None
    asked.go_on(1)
    unit = asked.unit(0)
    assert unit is not None
    assert unit.weight == pytest.approx(0.5 * siblings.CHOSE)
    assert asked.unit(1) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda asked: signals.record(asked.store, asked.replies[0], SignalKind.COPY, value=1.0),
        lambda asked: signals.record(asked.store, asked.replies[0], SignalKind.THUMB, value=1.0),
        lambda asked: signals.record(asked.store, asked.replies[1], SignalKind.THUMB, value=-1.0),
        lambda asked: signals.record(asked.store, asked.replies[1], SignalKind.THUMB, value=1.0),
        lambda asked: signals.record(asked.store, asked.replies[1], SignalKind.CORRECTION, text="Ten."),
    ],
    ids=["lesser copied", "lesser liked", "kept disliked", "kept liked", "kept corrected"],
)
def test_what_was_said_with_a_word_or_contradicts_it_is_all_that_counts(store: Store, spoil: object) -> None:
    asked = Asked(store, FIRST, SECOND)
    spoil(asked)  # type: ignore[operator]
    asked.go_on(1)
    unit = asked.unit(0)
    assert unit is None or unit.kind is not UnitKind.LESSER


def test_a_word_that_comes_later_takes_its_place(store: Store, renderer: Renderer) -> None:
    asked = Asked(store, FIRST, SECOND)
    asked.go_on(1)
    signals.record(store, asked.replies[0], SignalKind.THUMB, value=1.0)
    unit = asked.unit(0)
    assert unit is not None
    assert unit.kind is UnitKind.THUMB_UP
    other = Asked(store, FIRST, SECOND)
    other.go_on(1)
    signals.record(store, other.replies[1], SignalKind.THUMB, value=-1.0)
    stale = other.unit(0)
    assert stale is not None
    built = examples.build(store, renderer, stale, redactor_of(store))
    assert isinstance(built, Refusal)
    assert built.reason == siblings.UNCLEAR


def test_nothing_is_said_where_it_is_not_clear(store: Store) -> None:
    both = Asked(store, FIRST, SECOND)
    both.go_on(1)
    assert both.unit(0) is not None
    both.go_on(0)
    unit = both.unit(0)
    assert unit is not None
    assert (unit.state, unit.reason) == (UnitState.REFUSED, siblings.UNCLEAR), "it was gone on from as well"

    wanting = Asked(store, FIRST, SECOND)
    wanting.go_on(1, "shorter please", UNHAPPY)
    assert wanting.unit(0) is None, "what was kept was no good either"

    unasked = Asked(store, FIRST)
    unasked.replies.append(unasked.answer(SECOND))
    unasked.go_on(1)
    assert unasked.unit(0) is None, "nobody asked for another answer"

    same = Asked(store, FIRST, FIRST)
    same.go_on(1)
    assert same.unit(0) is None

    longer = Asked(store, FIRST, f"{FIRST} Then eat it.")
    longer.go_on(1)
    assert longer.unit(0) is None, "it is the same one, gone on with"


@pytest.mark.parametrize("stopped", [0, 1])
def test_an_answer_that_was_stopped_was_not_read_whole(store: Store, stopped: int) -> None:
    asked = Asked(store, THIRD)
    asked.replies = []
    for number, text in enumerate((FIRST, SECOND)):
        end = MessageStatus.STOPPED if number == stopped else MessageStatus.COMPLETE
        asked.replies.append(asked.answer(text, end))
    signals.record(store, asked.replies[0], SignalKind.REGENERATE, value=1.0)
    signals.record(store, asked.replies[stopped], SignalKind.STOP, value=1.0)
    asked.go_on(1)
    assert [asked.unit(number) for number in (0, 1)] == [None, None]


def test_the_owner_turns_it_over_and_back_and_the_story_tells(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND)
    asked.go_on(1)
    told = story.of(store, asked.replies[0])
    assert told.compared is not None
    assert (told.compared.source, told.kept) == (SignalSource.RULE, asked.replies[1])
    assert told.counted
    flipped = verdicts.flip(store, asked.replies[0])
    assert (flipped.kind, flipped.value, flipped.supersedes) == (
        SignalKind.LESSER, 0.0, told.compared.signal
    )  # fmt: skip
    unit = asked.unit(0)
    assert unit is not None
    assert (unit.state, unit.reason) == (UnitState.REFUSED, units.NO_BETTER)
    look(store)
    assert asked.unit(0) == unit, "the owner's word stands"
    verdicts.flip(store, asked.replies[0])
    unit = asked.unit(0)
    assert unit is not None
    assert (unit.state, unit.weight) == (UnitState.QUEUED, 1.0)


def test_its_example_compares_and_imitates_nothing(store: Store, renderer: Renderer) -> None:
    asked = Asked(store, FIRST, SECOND)
    asked.go_on(1)
    unit = asked.unit(0)
    assert unit is not None
    made = examples.build(store, renderer, unit, redactor_of(store))
    assert isinstance(made, Example)
    assert made.chosen is not None
    assert made.chosen.tokens == renderer.completion(SECOND)
    assert made.reply.tokens == renderer.completion(FIRST)
    assert (made.chosen_text, made.hinted, made.weight) == (None, None, unit.weight)
    assert staleness.ages(made), "of nothing but what was said then"


def test_it_is_learned_on_the_side_and_never_a_test(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND)
    asked.go_on(1)
    lesser = asked.unit(0)
    assert lesser is not None
    one = seed.corrected(store, "Why?", "Because it is so.", "Because.")
    assert ledger.tested([lesser, one]) == set()
    two = seed.corrected(store, "When?", "It is late.", "Now.")
    (tested,) = ledger.tested([lesser, one, two])
    assert tested in (one.id, two.id)


def test_it_is_no_failure_in_the_statistics(store: Store) -> None:
    asked = Asked(store, FIRST, SECOND)
    asked.go_on(1)
    assert evidence_of(store).signatures == []


def test_forgetting_the_kept_answer_takes_the_lesson_along(store: Store) -> None:
    secret = "The lighthouse keeper's cellar is full of brass lanterns."
    asked = Asked(store, FIRST, secret)
    asked.go_on(1)
    unit = asked.unit(0)
    assert unit is not None
    adapter = live(store, b"1", [(unit, UnitUse.TRAINED)])
    done = purging.proceed(store, forgetting.request(store, Scope.MESSAGE, asked.replies[1]).id)
    assert done.plan["tainted"] == [adapter]
    assert asked.unit(0) is None
    assert [each.kind for each in signals.all_of(store, asked.replies[0])] == [SignalKind.REGENERATE]
    assert files_with(store.home.root, secret) == []
