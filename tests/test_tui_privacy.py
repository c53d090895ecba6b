"""Privacy in sight: incognito leaves nothing, the dials say what they mean, forgetting says what it undoes."""

from __future__ import annotations

import threading

from app.host.events import Failed
from app.tui.composer import Composer
from app.tui.dials_screen import DialsScreen, consequences
from app.tui.forget_screen import ForgetScreen
from app.tui.incognito_screen import IncognitoScreen
from app.tui.pages import Page
from app.tui.sidebar import Sidebar
from app.tui.transcript import ReplyView
from store.consent import Change
from store.types import Consent, Dial, ErrorClass
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat, chatting


async def incognito(chat: Chat) -> IncognitoScreen:
    await chat.press("alt+i")
    await chat.until(lambda: isinstance(chat.app.screen, IncognitoScreen))
    screen = chat.app.screen
    assert isinstance(screen, IncognitoScreen)
    return screen


async def say(chat: Chat, text: str, reply: str) -> None:
    composer = chat.app.screen.query_one(Composer)
    composer.put(text)
    await chat.rest()
    await chat.press("enter")

    def answered() -> bool:
        replies = list(chat.app.screen.query(ReplyView))
        return bool(replies) and replies[-1].entry is not None and replies[-1].text == reply

    await chat.until(answered)


async def test_incognito_goes_on_with_what_was_said_and_keeps_nothing(service: ScriptedService) -> None:
    service.say("an earlier question", "kept")
    before = list(service.store.conn.iterdump())
    service.scripts = [Script(["first [red]"]), Script(["second [/]"])]
    async with chatting(service, (90, 30)) as chat:
        screen = await incognito(chat)
        assert "nothing of this is kept" in chat.seen(".banner")
        await say(chat, "a secret [/]", "first [red]")
        await say(chat, "and more", "second [/]")
        assert service.requests[-1].incognito_turns == [
            {"role": "user", "content": "a secret [/]"},
            {"role": "assistant", "content": "first [red]"},
        ]
        assert all(request.incognito for request in service.requests)
        # Keys that rate and correct mean nothing here.
        await chat.press("f6", "f8", "ctrl+l")
        assert chat.app.screen is screen
        await chat.press("escape")
        await chat.until(lambda: "once more ends it" in chat.toasts)
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, IncognitoScreen))
        assert chat.composer.has_focus
        assert chat.composer.text == ""
    assert list(service.store.conn.iterdump()) == before


async def test_incognito_stops_a_reply_and_leaves_at_once_when_empty(service: ScriptedService) -> None:
    held = threading.Event()
    service.scripts = [Script(["half"], may_end=held)]
    async with chatting(service) as chat:
        screen = await incognito(chat)
        screen.query_one(Composer).put("a question")
        await chat.press("enter")
        await chat.until(lambda: "half" in [view.text for view in screen.query(ReplyView)])
        await chat.press("escape")
        await chat.until(lambda: "stopped" in chat.seen(".meta"))
        await chat.press("escape", "escape")
        await chat.until(lambda: not isinstance(chat.app.screen, IncognitoScreen))
        await incognito(chat)
        await chat.press("alt+i")
        await chat.until(lambda: not isinstance(chat.app.screen, IncognitoScreen))


async def test_incognito_gives_a_question_back_that_could_not_be_answered(service: ScriptedService) -> None:
    service.scripts = [Script((), fails_after=Failed(ErrorClass.OUT_OF_MEMORY, "no memory [/]"))]
    async with chatting(service) as chat:
        screen = await incognito(chat)
        composer = screen.query_one(Composer)
        composer.put("a question")
        await chat.press("enter")
        await chat.until(lambda: "no memory [/]" in chat.seen("Complaint"))
        assert composer.text == "a question"


async def test_the_dials_of_a_conversation_are_seen_and_turned(service: ScriptedService) -> None:
    conversation, reply = service.say("about [/] me", "yes")
    service.correct(reply, "no")
    async with chatting(service, (110, 30)) as chat:
        await chat.press("ctrl+o")
        await chat.until(lambda: service.conversations())
        await chat.press("v")
        await chat.until(lambda: isinstance(chat.app.screen, DialsScreen))
        listing = chat.app.screen.query_one("OptionList")
        await chat.until(lambda: getattr(listing, "option_count", 0) == 3)
        await chat.press("down", "down", "enter")
        await chat.until(lambda: service.consent(conversation)[Dial.TRAIN] is Consent.DENY)
        await chat.until(lambda: "One lesson that waited will not be learned" in chat.seen(".remark"))
        await chat.press("space")
        await chat.until(lambda: service.consent(conversation)[Dial.TRAIN] is Consent.ALLOW)
        assert service.consent(conversation)[Dial.HISTORY] is Consent.ALLOW
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, DialsScreen))


async def test_the_open_conversation_is_sorted_by_command(service: ScriptedService) -> None:
    async with chatting(service, (80, 24)) as chat:
        await chat.press("alt+v")
        await chat.until(lambda: "no conversation yet" in chat.toasts)
        await chat.ask("hello")
        conversation = str(chat.view.conversation)
        screen = chat.app.screen
        await chat.until(lambda: chat.app.screen.query_one(Sidebar).conversation(conversation))
        await chat.press("alt+v")
        await chat.until(lambda: isinstance(chat.app.screen, DialsScreen))
        await chat.press("escape")
        await screen.run_action("archive")
        await chat.until(lambda: service.thread(conversation).conversation.archived)
        await screen.run_action("forget")
        await chat.until(lambda: "will undo" in chat.seen("Page Static"))
        await chat.press("y")
        await chat.until(lambda: chat.view.conversation is None)
        assert service.archived() == []


def test_dials_that_follow_are_named() -> None:
    change = Change({}, along=(Dial.MEMORY, Dial.TRAIN), refused=1, queued=0, taught=("a", "b"))
    assert consequences(change) == (
        "Memory and Learning went off with it. One lesson that waited will not be learned. "
        "2 versions have learned from it before: deleting the conversation takes that back."
    )


async def test_forgetting_says_what_it_undoes_before_it_does_it(service: ScriptedService) -> None:
    service.say("keep me", "yes")
    service.say("forget [/] me", "no")
    async with chatting(service, (110, 30)) as chat:
        await chat.press("ctrl+o")
        await chat.rest()
        await chat.press("d")
        await chat.until(lambda: isinstance(chat.app.screen, ForgetScreen))
        page = chat.app.screen.query_one(Page)
        await chat.until(lambda: "will undo" in page.text)
        assert page.text.splitlines()[1:] == [
            "2 messages and 1 rating or correction are erased.",
            "v1 saw it: that version is deleted.",
            "base answers from the next message on.",
            "What else was learned with it is learned anew, without it.",
            "The backup /b [/] is written anew without it.",
        ]
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, ForgetScreen))
        assert len(service.conversations()) == 2
        await chat.press("d")
        await chat.until(lambda: isinstance(chat.app.screen, ForgetScreen))
        await chat.until(lambda: "will undo" in chat.app.screen.query_one(Page).text)
        await chat.press("y")
        await chat.until(lambda: [each.title for each in service.conversations()] == ["keep me"])
