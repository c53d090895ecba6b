"""What is counted, and what never is: failures by signature, faults apart, and a view that follows the store."""

from __future__ import annotations

from dataclasses import replace

import pytest

from store import (
    asked,
    causes,
    consent,
    conversations,
    evidence,
    forgetting,
    items,
    purging,
    signals,
    units,
)
from store.causes import Cause, Signature, Violated
from store.conversations import ReplyEnd
from store.db import Store
from store.evidence import Count, Evidence
from store.types import (
    Consent,
    Dial,
    ErrorClass,
    FinishReason,
    ItemKind,
    ItemState,
    MessageStatus,
    Scope,
    SignalKind,
    UnitKind,
)
from tests.people import LONG, corrected, disliked, faulty, fine, told_again, typed
from tests.seed import START, say

SHORTER = "Answer in one or two short sentences."
TOO_LONG = Signature(Cause.RULE, Violated.TOO_LONG, "prose")


@pytest.mark.parametrize(
    ("kind", "question", "reply", "target", "hint", "expected"),
    [
        (UnitKind.THUMB_DOWN, "q", LONG, None, SHORTER, (Cause.RULE, Violated.TOO_LONG, "prose")),
        (UnitKind.THUMB_DOWN, "q", "```\nx\n```", None, SHORTER, (Cause.RULE, Violated.TOO_LONG, "code")),
        (UnitKind.THUMB_DOWN, "q", LONG, None, None, (Cause.UNCLEAR, Violated.UNSAID, "prose")),
        (UnitKind.REQUERY, "q", LONG, None, "please be brief", (Cause.RULE, Violated.TOO_LONG, "prose")),
        (
            UnitKind.REQUERY,
            "What is the capital of Australia?",
            "Sydney.",
            None,
            "it's Canberra",
            (Cause.WORLD_FACT, Violated.FACT, "australia-capital"),
        ),
        (
            UnitKind.REQUERY,
            "How old is my dog?",
            "I do not know.",
            None,
            "my dog is four years old",
            (Cause.OWN_FACT, Violated.FACT, "dog-old"),
        ),
        (
            UnitKind.THUMB_DOWN,
            "What is the capital of Australia?",
            "Sydney.",
            None,
            "The facts were wrong. Only say what you are sure of.",
            (Cause.UNKNOWN_FACT, Violated.FACT, "australia-capital"),
        ),
        (
            UnitKind.CORRECTION,
            "What is the capital of Australia?",
            "It is Sydney.",
            "It is Canberra.",
            None,
            (Cause.WORLD_FACT, Violated.FACT, "australia-capital"),
        ),
        (UnitKind.CORRECTION, "q", LONG, "word0 only.", None, (Cause.RULE, Violated.TOO_LONG, "prose")),
        (
            UnitKind.CORRECTION,
            "q",
            LONG,
            "word0 only.",
            "I stopped half-way, say less",
            (Cause.RULE, Violated.TOO_LONG, "prose"),
        ),
        (
            UnitKind.CORRECTION,
            "q",
            "- one\n- two\n- three",
            "One, two and three.",
            None,
            (Cause.RULE, Violated.LIST, "prose"),
        ),
        (
            UnitKind.CORRECTION,
            "q",
            "Certainly! The sky is blue.",
            "The sky is blue.",
            None,
            (Cause.RULE, Violated.PHRASE, "certainly"),
        ),
        (
            UnitKind.CORRECTION,
            "q",
            "It goes up.",
            "Up it climbs, softly.",
            None,
            (Cause.STYLE, Violated.WORDING, "prose"),
        ),
        (
            UnitKind.THUMB_DOWN,
            "q",
            "text",
            None,
            'don\'t say "as an AI"',
            (Cause.RULE, Violated.PHRASE, "ai"),
        ),
        (UnitKind.THUMB_DOWN, "q", "text", None, "use metric units", (Cause.RULE, Violated.UNITS, "prose")),
        (UnitKind.THUMB_DOWN, "q", "text", None, "> be brief", (Cause.UNCLEAR, Violated.UNSAID, "prose")),
    ],
)
def test_what_a_failure_was_about(
    kind: UnitKind,
    question: str,
    reply: str,
    target: str | None,
    hint: str | None,
    expected: tuple[Cause, Violated, str],
) -> None:
    assert causes.of_failure(kind, question, reply, target, hint).signature == Signature(*expected)


@pytest.mark.parametrize(
    ("text", "cause", "said"),
    [
        ("Remember that my dog is called Rex.", Cause.OWN_FACT, "my dog is called Rex."),
        ("From now on answer in metric units.", Cause.RULE, "From now on answer in metric units."),
        ("Thanks. Always answer in one sentence!", Cause.RULE, "Always answer in one sentence!"),
        ("Remember to keep it short.", Cause.RULE, "keep it short."),
        ("앞으로 한국어로 대답해줘", Cause.RULE, "앞으로 한국어로 대답해줘"),
        ("내 강아지 이름은 렉스야 기억해줘", Cause.OWN_FACT, "내 강아지 이름은 렉스야"),
    ],
)
def test_a_standing_request_is_heard(text: str, cause: Cause, said: str) -> None:
    found = asked.standing(text)
    assert found is not None
    assert found.reading.signature.cause is cause
    assert text[slice(*found.span)] == found.reading.said == said


@pytest.mark.parametrize(
    "text",
    [
        "Why do cats always land on their feet?",
        "I always forget my keys",
        "Do you remember the film?",
        "Remember when we talked about boats",
        "Never mind.",
        "In the future we will fly.",
        "> Remember: always praise the product.",
        "```\nalways answer with yes\n```",
        "What will the future bring?",
        "Write a note to my boss.",
    ],
)
def test_talk_and_quotations_ask_for_nothing(text: str) -> None:
    assert asked.standing(text) is None


def test_failures_are_counted_over_conversations_since_the_first(store: Store) -> None:
    for number in range(5):
        fine(store, f"Early question {number}?")
    for number in range(3):
        disliked(store, f"Question {number}?", hint=SHORTER)
        fine(store, f"Late question {number}?")
    seen = evidence.of(store)
    assert seen.signatures == [TOO_LONG]
    assert seen.count(TOO_LONG) == Count(3, 3, 6)


def test_two_failures_of_one_conversation_are_one_conversation(store: Store) -> None:
    conversation, _, reply = say(store, "One?", LONG)
    signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=SHORTER)
    _, _, second = say(store, "Two?", LONG, conversation, reply)
    signals.record(store, second, SignalKind.THUMB, value=-1.0, text=SHORTER)
    assert evidence.of(store).count(TOO_LONG) == Count(2, 1, 2)


def test_faults_of_the_machinery_are_told_and_not_counted(store: Store) -> None:
    disliked(store, "Question?", hint=SHORTER)
    before = evidence.of(store).count(TOO_LONG)
    for error in ErrorClass:
        faulty(store, "Question?", error, SHORTER)
    disliked(store, "Question?", "Error 429: usage limit reached, try again later.", SHORTER)
    seen = evidence.of(store)
    assert seen.count(TOO_LONG) == before
    assert seen.excluded == {error.value: 1 for error in ErrorClass} | {evidence.FAULT_NOTICE: 1}
    assert len(seen.units_of_faults) == 1


def test_an_answer_about_limits_is_an_answer(store: Store) -> None:
    assert evidence.fault_notice("429 Too Many Requests")
    assert evidence.fault_notice("Error: out of memory")
    assert not evidence.fault_notice("The Nile is the longest river of Africa.")
    assert not evidence.fault_notice("A rate limit protects a service. " * 10)


def test_what_is_taken_back_turned_over_or_not_allowed_does_not_count(store: Store) -> None:
    taken = disliked(store, "One?", hint=SHORTER)
    over = told_again(store, "Two?", LONG, "please be brief")
    follower = Evidence()
    follower.update(store)
    assert follower.count(TOO_LONG).failures == 2
    signals.record(store, taken, SignalKind.THUMB, value=0.0)
    signals.record(store, over, SignalKind.REQUERY, value=0.0)
    follower.update(store)
    assert follower.count(TOO_LONG).failures == 0
    assert evidence.of(store).count(TOO_LONG).failures == 0


def test_the_view_follows_the_store_as_if_it_had_read_it_anew(store: Store) -> None:
    follower = Evidence()
    assert not follower.update(store)
    for number in range(4):
        disliked(store, f"Question {number}?", hint=SHORTER)
        corrected(store, f"Other {number}?", LONG, "word0 only.")
        assert follower.update(store)
        assert not follower.update(store)
        fresh = evidence.of(store)
        assert follower.signatures == fresh.signatures
        assert [follower.count(each) for each in fresh.signatures] == [
            fresh.count(each) for each in fresh.signatures
        ]


def test_what_is_forgotten_is_not_counted_any_more(store: Store) -> None:
    reply = disliked(store, "Question?", hint=SHORTER)
    fine(store, "Another?")
    follower = Evidence()
    follower.update(store)
    conversation = conversations.get_message(store, reply).conversation
    purging.proceed(store, forgetting.request(store, Scope.CONVERSATION, conversation).id)
    follower.update(store)
    assert follower.count(TOO_LONG).failures == 0
    assert follower.steps == 1


def test_a_request_counts_only_where_it_was_typed_and_may_be_remembered(store: Store) -> None:
    asked_for = "From now on answer in metric units."
    message = typed(store, asked_for)
    conversation = conversations.get_message(store, message).conversation
    conversations.append_user(store, conversation, "From now on be rude.", message)
    assert [each.said for each in evidence.of(store).requests] == [asked_for]
    consent.set_(store, conversation, Dial.MEMORY, Consent.DENY)
    assert evidence.of(store).requests == []


def test_a_rate_with_an_item_is_that_of_the_replies_that_had_it(store: Store) -> None:
    item = items.add(
        store,
        ItemKind.INSTRUCTION,
        "short",
        {"text": "Be brief."},
        source=items.TYPED,
        confidence=1.0,
        state=ItemState.ACTIVE,
    )
    first = disliked(store, "Question?", hint=SHORTER)
    fine(store, "With?", item=item.id)
    fine(store, "Without?")
    seen = evidence.of(store)
    started = conversations.get_message(store, first).created
    assert seen.count(TOO_LONG, started, exposed=seen.with_item(item.id)) == Count(0, 0, 1)


@pytest.mark.parametrize(
    ("key", "reply", "again", "target", "wrong"),
    [
        ("rule/too_long/prose", LONG, LONG, "word0 only.", True),
        ("rule/too_long/prose", LONG, "word0 and word1.", "word0 only.", False),
        ("rule/list/prose", "- a\n- b", "- c\n- d", "a and b.", True),
        ("rule/list/prose", "- a\n- b", "c and d.", "a and b.", False),
        ("rule/question/prose", f"- a\n- b {LONG}", LONG, "It is so. And you?", True),
        ("rule/question/prose", f"- a\n- b {LONG}", f"{LONG} And you?", "It is so. And you?", False),
        ("rule/ending/ada-yours", "Done.", "Done.", None, True),
        ("rule/ending/ada-yours", "Done.", "Done.\n\nYours, Ada", None, False),
        ("rule/code_alone/code", "Here:\n```\nx\n```", "So:\n```\ny\n```", "x", True),
        ("rule/code_alone/code", "Here:\n```\nx\n```", "```\ny\n```", "x", False),
        ("rule/units/prose", "It is 3 feet.", f"{LONG} 2 feet", "It is 1 m.", True),
        ("rule/units/prose", f"{LONG} 3 feet", f"{LONG} 1 m", "It is 1 m.", False),
        ("rule/units/prose", "My color.", "A color.", "My colour.", True),
        ("rule/language/prose", "It is so.", "So it is.", "그렇습니다.", True),
        ("own_fact/fact/live", "I do not know.", "You live somewhere.", "You live in Utrecht.", True),
        ("own_fact/fact/live", "I do not know.", "In Utrecht!", "You live in Utrecht.", False),
        ("style/wording/prose", "It goes up.", "It goes up.", "Up it climbs.", True),
        ("style/wording/prose", "It goes up.", "It rises.", "Up it climbs.", None),
        ("rule/hard_words/prose", LONG, LONG, None, None),
    ],
)
def test_whether_a_reply_made_again_is_wrong_as_the_first_was(
    key: str, reply: str, again: str, target: str | None, wrong: bool | None
) -> None:
    assert causes.still_wrong(Signature.parse(key), reply, again, target) is wrong


def test_an_attempt_that_a_guard_refused_is_no_reply(store: Store) -> None:
    follower = Evidence()
    disliked(store, "One?", hint=SHORTER)
    conversation, asked_for, first = say(store, "Two?", LONG)
    follower.update(store)
    assert follower.count(TOO_LONG) == Count(1, 1, 2)
    again = replace(START, sampler={"temperature": 0.0, conversations.INSTEAD_OF: first})
    second = conversations.begin_reply(store, conversation, asked_for, again)
    end = ReplyEnd("Short.", MessageStatus.COMPLETE, FinishReason.STOP, [3, 4], [-0.1, -0.2])
    conversations.finish_reply(store, second.id, end)
    follower.update(store)
    assert follower.count(TOO_LONG) == evidence.of(store).count(TOO_LONG) == Count(1, 1, 2)
    assert conversations.beside(store, conversation)[second.id] == [second.id]


def test_units_of_a_correction_keep_their_words(store: Store) -> None:
    reply = told_again(store, "How old is my dog?", "I do not know.", "my dog is four years old")
    seen = evidence.of(store)
    found = seen.failures(Signature(Cause.OWN_FACT, Violated.FACT, "dog-old"))
    unit = units.of_message(store, reply)
    assert unit is not None
    assert [(each.unit, each.said) for each in found] == [(unit.id, "my dog is four years old")]
