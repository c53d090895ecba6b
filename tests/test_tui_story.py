"""The story of a reply: one key opens it, one turns a rule's verdict over; corrections show what changes."""

from __future__ import annotations

import pytest
from textual.widgets import Static

from app.tui import diffing
from app.tui.correction import CorrectionDialog
from app.tui.dialogs import Editor
from app.tui.story_screen import StoryScreen
from store import signals, units
from store.types import SignalKind, SignalSource, UnitState
from tests.scripted_service import ScriptedService
from tests.tui_pilot import Chat, chatting, page


async def opened(chat: Chat, conversation: str) -> None:
    chat.view.open(conversation)
    await chat.until(lambda: chat.replies and chat.replies[-1].query(".meta") and chat.meta())


async def test_one_key_tells_the_whole_story(service: ScriptedService) -> None:
    conversation, reply = service.say("How long [red] for an egg?", "Ten hours in the pot.")
    service.rate(reply, -1)
    service.correct(reply, "Ten minutes in the pot [/].")
    adapter = service.learned()
    async with chatting(service, (100, 40)) as chat:
        await opened(chat, conversation)
        assert "used in v1" in chat.meta()
        await chat.press("f12")
        await chat.until(lambda: "Decisions" in page(chat))
        told = page(chat)
        assert "How long [red] for an egg?" in told
        assert "▼ bad" in told
        assert "✎ corrected" in told
        assert "hoursminutes" in told, "the difference stands in one line"
        assert "used in v1" in told
        assert "v1 learned from it" in told
        assert f"promote {adapter.id}" in told
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, StoryScreen))
        assert chat.composer.has_focus


async def test_a_refused_lesson_says_why(service: ScriptedService) -> None:
    conversation, reply = service.say("hello", "password: hunter2-Xk29sLq")
    service.rate(reply, 1)
    service.rate(reply, 0)
    async with chatting(service) as chat:
        await opened(chat, conversation)
        assert "not used: the rating was taken back" in chat.meta()
        await chat.press("f12")
        await chat.until(lambda: "the rating was taken back" in page(chat))


async def test_asked_again_is_shown_and_its_verdict_can_be_flipped(service: ScriptedService) -> None:
    conversation, reply = service.say("Where does the Rhine rise?", "In a bottle.")
    service.say("No, I meant its source", "In the Alps.", conversation)
    signals.record(
        service.store,
        reply,
        SignalKind.REQUERY,
        value=1.0,
        text="No, I meant its source",
        source=SignalSource.RULE,
        confidence=0.9,
    )
    async with chatting(service, (100, 40)) as chat:
        await opened(chat, conversation)
        assert "↻ asked again" in chat.meta(0)
        assert "queued" in chat.meta(0)
        assert "asked again" not in chat.meta(1)
        chat.replies[0].focus()
        await chat.press("alt+w")
        await chat.until(lambda: "Yes, a rule says so" in page(chat))
        await chat.press("f")
        await chat.until(lambda: "No, you say so" in page(chat))
        await chat.until(lambda: "↻" not in chat.meta(0))
        story = service.story(reply)
        assert story.unit is not None
        assert story.unit.state is UnitState.REFUSED
        assert "nothing was asked again" in str(story.unit.reason)
        assert story.signals[-1].supersedes == story.signals[0].id
        await chat.press("f")
        await chat.until(lambda: "Yes, you say so" in page(chat))
        story = service.story(reply)
        assert story.unit is not None
        assert story.unit.state is UnitState.QUEUED
        assert story.unit.weight == 1.0
        assert story.unit.hint == "No, I meant its source"


async def test_an_answer_that_was_left_for_another_says_so_and_thanks_are_told(
    service: ScriptedService,
) -> None:
    conversation, first = service.say("Where does the Rhine rise?", "In a bottle.")
    signals.record(
        service.store, first, SignalKind.LESSER, value=1.0, source=SignalSource.RULE, confidence=0.5
    )
    _, thanked = service.say("And the Rhône?", "In the Alps.", conversation)
    signals.record(
        service.store, thanked, SignalKind.THANKS, value=1.0, source=SignalSource.JUDGE, confidence=0.9
    )
    async with chatting(service, (110, 40)) as chat:
        await opened(chat, conversation)
        chat.replies[0].focus()
        await chat.press("alt+w")
        await chat.until(lambda: "⇄ you went on from another answer (50% sure)" in page(chat))
        assert "Yes, a rule says so" in page(chat)
        assert "It rests on the other answer, which you went on from" in page(chat)
        await chat.press("f")
        await chat.until(lambda: "No, you say so" in page(chat))
        assert units.NO_BETTER in page(chat)
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, StoryScreen))
        chat.replies[1].focus()
        await chat.press("alt+w")
        await chat.until(lambda: "♥ you thanked" in page(chat))
        assert "It rests on your thanks" in page(chat)


@pytest.mark.parametrize(
    ("seen", "label"),
    [("put it right", "✎ you put it right"), ("wanted it otherwise", "↻ you wanted it otherwise")],
)
async def test_what_is_no_repeated_question_is_not_called_one(
    service: ScriptedService, seen: str, label: str
) -> None:
    conversation, reply = service.say("What is the capital of Australia?", "Sydney.")
    service.say("It is Canberra", "Right.", conversation)
    signals.record(
        service.store, reply, SignalKind.REQUERY, value=1.0, source=SignalSource.JUDGE, confidence=0.98
    )
    units.mark_judged(service.store, reply, seen)
    async with chatting(service, (110, 40)) as chat:
        await opened(chat, conversation)
        assert label in chat.meta(0)
        assert "asked again" not in chat.meta(0)
        chat.replies[0].focus()
        await chat.press("f12")
        await chat.until(lambda: f"Yes, the judge says so (you {seen})" in page(chat))
        assert f"{label} (98% sure)" in page(chat)


async def test_the_story_offers_to_flip_only_what_can_be_flipped(service: ScriptedService) -> None:
    conversation, _ = service.say("Where does the Rhine rise?", "In a bottle.")
    service.say("Its source, please", "In the Alps.", conversation)
    async with chatting(service) as chat:
        await opened(chat, conversation)
        for place, offered in ((0, "F it was wanting · Esc back"), (1, "Esc back")):
            chat.replies[place].focus()
            await chat.press("f12")
            await chat.until(lambda: page(chat))
            assert chat.app.screen.query_one(".sheet").border_subtitle == offered
            await chat.press("escape")


async def test_a_repeated_question_that_no_rule_noticed_can_be_said_to_be_one(
    service: ScriptedService,
) -> None:
    conversation, _ = service.say("Where does the Rhine rise?", "In a bottle.")
    service.say("Its source, please", "In the Alps.", conversation)
    async with chatting(service) as chat:
        await opened(chat, conversation)
        chat.replies[0].focus()
        await chat.press("f12", "f")
        await chat.until(lambda: "Yes, you say so" in page(chat))
        await chat.press("escape")
        chat.replies[1].focus()
        await chat.press("f12", "f")
        await chat.until(lambda: "no verdict to turn over" in chat.toasts)


async def test_a_correction_shows_what_it_changes_while_it_is_written(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.ask("hello")
        await chat.press("f8")
        await chat.until(lambda: isinstance(chat.app.screen, CorrectionDialog))
        change = chat.app.screen.query_one("#change")
        await chat.until(lambda: change.border_title == "What changes: nothing is changed yet")
        chat.app.screen.query_one(Editor).text = "A better [/] answer."
        await chat.until(lambda: "+" in str(change.border_title))
        assert "short" in str(change.query_one(Static).render())
        assert "better [/]" in str(change.query_one(Static).render())


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("one two three", "one two three", "nothing is changed yet"),
        ("one two three", "one three", "−1 words"),
        ("one", "one two", "+1 words"),
        ("漢字です", "漢語です", "−1 · +1 words"),
        ("a\n" * 4000, "a\n" * 3999, "−1 words"),
    ],
)
def test_the_size_of_a_difference(before: str, after: str, said: str) -> None:
    assert diffing.summary(before, after) == said
