"""The first start and the lesson: offered once, followed step by step on the real store, left at any moment."""

from __future__ import annotations

import threading

from app.tui.dialogs import EditDialog
from app.tui.lesson import NEEDED, QUESTIONS, Part
from store import runs
from store.types import RunOutcome, Trigger
from tests.scripted_service import GATE, Script, ScriptedService
from tests.tui_pilot import Chat, chatting


async def step(chat: Chat, part: Part) -> str:
    """Wait for a step; returns what its line says."""
    await chat.until(lambda: chat.view.lesson_line.part is part)
    return chat.seen("LessonLine")


async def begin(chat: Chat) -> None:
    await chat.until(lambda: chat.host_seen)
    chat.composer.put("/lesson")
    await chat.press("enter")
    await step(chat, Part.ASK)


async def correct(chat: Chat, text: str) -> None:
    """With the keys that the lesson names."""
    await chat.press("f8")
    await chat.until(lambda: isinstance(chat.app.screen, EditDialog))
    await chat.press("f7", *text, "ctrl+s")
    await chat.until(lambda: not isinstance(chat.app.screen, EditDialog))


async def suggested(chat: Chat, question: str) -> None:
    await chat.until(lambda: chat.composer.text == question)


async def taught(chat: Chat) -> None:
    """The first step, as far as it goes."""
    await begin(chat)
    for number in range(NEEDED):
        await step(chat, Part.ASK)
        await suggested(chat, QUESTIONS[number])
        await chat.press("enter")
        await chat.settled()
        assert "F8" in await step(chat, Part.CORRECT)
        await correct(chat, f"Ahoy {number}")


async def test_a_first_start_takes_no_key_but_the_question(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.press("h", "i", "enter")
        await chat.settled()
        assert service.requests[0].text == "hi"
        assert chat.replies[-1].text == "A short answer."


async def test_the_lesson_is_offered_once_and_whoever_types_on_has_declined(
    service: ScriptedService,
) -> None:
    async with chatting(service) as chat:
        await chat.until(lambda: "/lesson teaches it something" in chat.seen("Welcome"))
        assert chat.composer.has_focus
        await chat.press("escape")
        assert chat.toasts == ""
    async with chatting(service) as chat:
        await chat.until(lambda: chat.host_seen)
        await chat.rest()
        assert "/lesson" not in chat.seen("Welcome")


async def test_nobody_who_has_chatted_is_offered_a_lesson(service: ScriptedService) -> None:
    service.say("hello", "you")
    assert not service.offer_lesson()
    async with chatting(service) as chat:
        await chat.until(lambda: chat.host_seen)
        assert "/lesson" not in chat.seen("Welcome")


async def test_the_whole_lesson(service: ScriptedService) -> None:
    service.scripts = [Script(["long [/]"]), Script(["long again"]), Script(["Ahoy!"])]
    async with chatting(service) as chat:
        await taught(chat)
        assert "^L" in await step(chat, Part.LEARN)
        await chat.press("ctrl+l")
        assert "Learning starts" in await step(chat, Part.WAIT)
        for each in runs.open_(service.store):
            runs.finish(service.store, each.id, RunOutcome.NOTHING_TO_LEARN, {})
        service.learned()
        assert "v1 answers now. ^R" in await step(chat, Part.SEE)
        await chat.press("ctrl+r")
        assert "F9 takes it back" in await step(chat, Part.TAKE_BACK)
        assert chat.replies[-1].text == "Ahoy!"
        assert "‹ 2/2 ›" in chat.meta()
        await chat.press("f9")
        assert "/forget" in await step(chat, Part.OVER)
        assert service.serving().adapter is None
        # One conversation, kept as any other, and what was undone can be redone.
        assert len(service.conversations()) == 1
        await chat.press("u")
        await step(chat, Part.TAKE_BACK)
        await chat.press("f9")
        await step(chat, Part.OVER)
        await chat.press("escape", "escape")
        await chat.until(lambda: chat.view.lesson_line.part is None)
        assert "Lesson left" not in chat.toasts
        assert not chat.view.lesson_line.display


async def test_a_version_that_did_not_pass_is_said_and_one_more_correction_tries_again(
    service: ScriptedService,
) -> None:
    async with chatting(service, (60, 30)) as chat:
        await taught(chat)
        await step(chat, Part.LEARN)
        service.learned({**GATE, "passed": False, "summary": "worse [/] than before"}, passes=False)
        assert "worse [/] than before, so nothing changed. One more" in await step(chat, Part.REFUSED)
        await chat.ask("a third")
        await correct(chat, "Ahoy there")
        await step(chat, Part.LEARN)
        service.learned()
        await step(chat, Part.SEE)


async def test_a_run_that_fails_and_one_that_is_asked_for_too_early(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await begin(chat)
        early = runs.request(service.store, Trigger.MANUAL)
        runs.finish(service.store, early.id, RunOutcome.NOTHING_TO_LEARN, {})
        await chat.until(lambda: "Nothing to learn" in chat.toasts)
        await step(chat, Part.ASK)
        await chat.press("escape")
        await taught(chat)
        await chat.press("ctrl+l")
        await step(chat, Part.WAIT)
        run = runs.open_(service.store)[0]
        runs.fail(service.store, run.id, "the disk is full [/]")
        assert "^L tries again" in await step(chat, Part.FAILED)
        await chat.press("ctrl+l")
        await step(chat, Part.WAIT)


async def test_escape_leaves_the_lesson_and_it_is_taken_up_where_things_stand(
    service: ScriptedService,
) -> None:
    may_end = threading.Event()
    service.scripts = [Script(["half"], may_end=may_end)]
    async with chatting(service, (40, 20)) as chat:
        await begin(chat)
        await chat.send("why?")
        # What is being written comes first: Esc stops that, and the lesson stays.
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        await chat.press("escape")
        await chat.settled()
        await step(chat, Part.CORRECT)
        await correct(chat, "because")
        await step(chat, Part.ASK)
        await chat.press("escape")
        assert not chat.view.lesson_line.display
        assert "/lesson takes it up again" in chat.toasts
        conversation = chat.view.conversation
        assert conversation is not None
        await begin(chat)
        assert "Now another question" in chat.seen("LessonLine")
        assert conversation in [each.id for each in service.conversations()]


async def test_the_question_that_the_lesson_put_there_goes_with_it(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await begin(chat)
        await suggested(chat, QUESTIONS[0])
        await chat.press("escape")
        assert chat.view.lesson_line.part is None
        assert chat.composer.text == ""
        await begin(chat)
        await suggested(chat, QUESTIONS[0])
        await chat.press("!", "escape")
        assert chat.composer.text == f"{QUESTIONS[0]}!", "what somebody wrote stays"


async def test_who_only_rates_is_told_of_ratings(service: ScriptedService) -> None:
    async with chatting(service, (120, 30)) as chat:
        await begin(chat)
        await chat.ask("why?")
        await step(chat, Part.CORRECT)
        await chat.press("f6")
        assert "correction" not in await step(chat, Part.ASK)
        await chat.ask("and how?")
        said = await step(chat, Part.CORRECT)
        assert "opens the reply" in said
        assert "once more" not in said
        await chat.press("f6")
        assert "from what you rated" in await step(chat, Part.LEARN)
        service.learned({**GATE, "passed": False, "summary": "worse"}, passes=False)
        assert "Correct a reply (F8), and ^L" in await step(chat, Part.REFUSED)


async def test_what_is_typed_is_not_replaced_by_a_suggestion(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await begin(chat)
        await chat.until(lambda: chat.composer.text == QUESTIONS[0])
        chat.composer.put("")
        await chat.pilot.pause(0.6)
        assert chat.composer.text == ""
        await chat.press("x")
        assert chat.composer.text == "x"
