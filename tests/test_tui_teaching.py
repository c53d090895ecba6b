"""Rating, correcting, copying, learning, rolling back, from the chat and from the versions screen."""

from __future__ import annotations

import threading
from functools import partial

import pytest
from textual.widgets import OptionList

from app.tui import copying
from app.tui.choice_bar import ChoiceBar
from app.tui.clipboard import Outcome
from app.tui.dialogs import EditDialog, Editor
from app.tui.pages import Page
from store import runs
from store.reasons import REASONS, Reason
from store.types import RunOutcome, RunState, SignalKind, Trigger
from tests.scripted_service import GATE, Script, ScriptedService
from tests.tui_pilot import PATIENCE, chatting


def taught(service: ScriptedService, number: int) -> None:
    """Several corrected replies."""
    for each in range(number):
        _, reply = service.say(f"question {each} [red]", f"wrong {each}")
        service.correct(reply, f"right {each} [/]")


async def test_thumbs_up_and_taken_back(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("f6")
        await chat.until(lambda: "▲ good" in chat.meta())
        assert "queued" in chat.meta()
        await chat.press("ctrl+g")
        await chat.until(lambda: "good" not in chat.meta())
        assert service.message(reply).rating is None


async def test_thumbs_down_asks_why_with_one_key(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        for reason in [each for each in Reason if each is not Reason.OWN_WORDS]:
            reply = await chat.ask("hello")
            await chat.press("f7")
            await chat.until(lambda: "▼ bad" in chat.meta())
            assert REASONS[reason].label in chat.seen("ChoiceBar")
            await chat.press(REASONS[reason].key)
            wanted = REASONS[reason].hint
            await chat.until(partial(_last_text_is, service, reply, wanted))
            assert chat.composer.has_focus
            assert not chat.app.screen.query_one(ChoiceBar).display


def _last_text_is(service: ScriptedService, reply: str, text: str) -> bool:
    return service.signals(reply)[-1].text == text


async def test_a_reason_in_own_words(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("ctrl+b", REASONS[Reason.OWN_WORDS].key)
        await chat.press(*"rhyme", "enter")
        await chat.until(lambda: service.signals(reply)[-1].text == "rhyme")
        assert chat.composer.has_focus


async def test_the_question_why_may_be_ignored(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("f7", "escape")
        assert chat.composer.has_focus
        await chat.press("f7", "f7")
        await chat.press("t")
        await chat.until(lambda: chat.composer.text == "t")
        await chat.until(lambda: service.message(reply).rating == -1)
        assert service.signals(reply)[-1].text is None


async def test_a_correction_is_written_in_the_reply(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("f8")
        editor = chat.app.screen.query_one(Editor)
        assert editor.text == "A short answer."
        await chat.press("ctrl+s")
        assert "Nothing is changed" in chat.seen(".explanation")
        editor.text = "A better answer."
        await chat.press("ctrl+s")
        await chat.until(lambda: "✎ corrected" in chat.meta())
        assert "Correction saved · queued" in chat.toasts
        assert service.signals(reply)[-1].text == "A better answer."
        assert chat.composer.has_focus


async def test_leaving_a_changed_correction_asks_once(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("ctrl+t")
        chat.app.screen.query_one(Editor).text = "half"
        await chat.press("escape")
        assert isinstance(chat.app.screen, EditDialog)
        assert "not saved" in chat.seen(".explanation")
        await chat.press("escape")
        await chat.until(lambda: not isinstance(chat.app.screen, EditDialog))
        assert service.signals(reply) == []


async def test_copy_puts_the_reply_on_the_clipboard(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        reply = await chat.ask("hello")
        await chat.press("ctrl+s")
        await chat.until(lambda: service.signals(reply))
        assert chat.app.clipboard == "A short answer."
        assert service.signals(reply)[-1].kind is SignalKind.COPY


async def test_a_clipboard_that_hangs_stalls_no_key(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()

    def hang(_text: str) -> Outcome:
        done.wait(PATIENCE)
        return Outcome.CHECKED

    monkeypatch.setattr(copying, "copy_and_check", hang)
    async with chatting(service) as chat:
        await chat.ask("hello")
        await chat.press("ctrl+s", *"typed meanwhile")
        assert chat.composer.text == "typed meanwhile"
        assert "copied" not in chat.toasts
        chat.composer.put("")
        await chat.ask("and answered")
        done.set()
        await chat.until(lambda: "read back from the clipboard" in chat.toasts)


async def test_keys_without_a_reply_say_so(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        for key in ("f6", "f7", "f8", "ctrl+s", "ctrl+r"):
            await chat.press(key)
        assert "no reply yet" in chat.toasts
        assert chat.composer.has_focus


async def test_learn_now_asks_for_a_run_and_its_progress_is_seen(service: ScriptedService) -> None:
    taught(service, 2)
    async with chatting(service, (120, 30)) as chat:
        await chat.until(lambda: "2 waiting" in chat.seen("StatusLine"))
        await chat.press("ctrl+l")
        await chat.until(lambda: "learning starts" in chat.seen("StatusLine"))
        run = runs.claim(service.store, 1)
        assert run is not None
        runs.progress(service.store, run.id, RunState.TRAINING, 0.4, "")
        await chat.until(lambda: "training 40%" in chat.seen("StatusLine"))
        runs.progress(service.store, run.id, RunState.GATING, 0.9, "")
        await chat.until(lambda: "testing the new version" in chat.seen("StatusLine"))


async def test_a_new_version_is_announced_and_interrupts_nothing(service: ScriptedService) -> None:
    taught(service, 5)
    async with chatting(service) as chat:
        chat.view.open(service.conversations()[-1].id)
        await chat.until(lambda: chat.replies and "queued" in chat.meta())
        await chat.press("h", "a")
        service.learned()
        await chat.until(lambda: "v1 is live" in chat.toasts)
        await chat.press("l", "f")
        assert chat.composer.text == "half"
        assert chat.composer.has_focus
        await chat.until(lambda: "used in v1" in chat.meta())
        assert "v1" in chat.seen("StatusLine")
        chat.composer.put("")
        await chat.ask("and now?")
        assert chat.meta().startswith("v1")


async def test_a_refused_version_and_an_empty_run_are_told(service: ScriptedService) -> None:
    taught(service, 1)
    async with chatting(service) as chat:
        await chat.until(lambda: "1 waiting" in chat.seen("StatusLine"))
        service.learned(
            {**GATE, "passed": False, "summary": "worse on what it had not seen [/]"}, passes=False
        )
        await chat.until(lambda: "Nothing changed: worse on what it had not seen [/]" in chat.toasts)
        run = runs.request(service.store, Trigger.MANUAL)
        runs.finish(service.store, run.id, RunOutcome.NOTHING_TO_LEARN, {"skipped": []})
        await chat.until(lambda: "Nothing to learn" in chat.toasts)


async def test_roll_back_is_one_key_and_so_is_its_undo(service: ScriptedService) -> None:
    taught(service, 4)
    first = service.learned()
    async with chatting(service) as chat:
        await chat.until(lambda: "v1" in chat.seen("StatusLine"))
        await chat.press("f9")
        await chat.until(lambda: "Back on base; v1 is set aside" in chat.seen("ChoiceBar"))
        assert service.serving().adapter is None
        await chat.press("u")
        await chat.until(lambda: service.serving().adapter is not None)
        serving = service.serving().adapter
        assert serving is not None
        assert serving.id == first.id
        assert "is live" not in chat.toasts
        await chat.press("f9")
        await chat.until(lambda: service.serving().adapter is None)
        await chat.press("escape", "f9")
        await chat.until(lambda: "nothing to roll back" in chat.toasts)


async def test_the_versions_screen_tells_what_was_learned(service: ScriptedService) -> None:
    taught(service, 4)
    service.learned()
    async with chatting(service, (120, 36)) as chat:
        await chat.press("f3")
        listing = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: listing.option_count == 2)
        shown = chat.app.screen.query_one("#detail", Page)
        await chat.until(lambda: "Learned from" in shown.text)
        story = shown.text
        assert "question 0 [red]" in story
        assert "right 0 [/]" in story
        assert "Test passed" in story
        assert "kl reference" in story
        assert "Tested on" in story
        await chat.press("end", "enter")
        await chat.until(lambda: service.serving().adapter is None)
        await chat.until(lambda: listing.get_option_at_index(1).prompt)
        await chat.press("home", "p")
        await chat.until(service.pinned)
        await chat.press("p")
        await chat.until(lambda: service.pinned() is None)
        await chat.press("f9")
        await chat.until(lambda: service.serving().adapter is None)
        await chat.press("escape")
        await chat.until(lambda: chat.app.screen is chat.app.screen_stack[0])
        assert chat.composer.has_focus


@pytest.mark.parametrize("size", [(40, 20), (80, 24), (120, 36)])
async def test_every_screen_works_at_every_width(service: ScriptedService, size: tuple[int, int]) -> None:
    taught(service, 4)
    service.learned()
    service.scripts = [
        Script(("```python\nprint('a long line of code that is longer than forty columns')\n```",))
    ]
    async with chatting(service, size) as chat:
        await chat.ask("hello")
        for key in ("f1", "f3", "f8", "f12", "ctrl+f", "f11", "alt+i"):
            await chat.press(key)
            await chat.until(lambda: len(chat.app.screen_stack) == 2)
            await chat.press("escape")
            await chat.until(lambda: len(chat.app.screen_stack) == 1)
        await chat.press("f7")
        assert chat.composer.region.bottom <= size[1]
        assert chat.composer.region.right <= size[0]


async def test_the_versions_screen_says_what_waits_and_why_one_is_not_used(service: ScriptedService) -> None:
    taught(service, 2)
    _, reply = service.say("a question", "an answer")
    service.rate(reply, 1)
    service.rate(reply, 0)
    async with chatting(service, (120, 36)) as chat:
        await chat.press("f3")
        listing = chat.app.screen.query_one(OptionList)
        await chat.until(lambda: listing.option_count == 2)
        await chat.press("home")
        shown = chat.app.screen.query_one("#detail", Page)
        await chat.until(lambda: "Waiting (2)" in shown.text)
        assert "Not used (1)" in shown.text
        assert "the rating was taken back" in shown.text
        await chat.press("enter", "p")
        await chat.until(lambda: "not made yet" in chat.toasts)
        assert service.serving().adapter is None


async def test_a_learner_that_dies_is_one_line_and_a_retry(service: ScriptedService) -> None:
    taught(service, 2)
    async with chatting(service, (100, 30)) as chat:
        await chat.press("ctrl+l")
        await chat.until(lambda: "learning starts" in chat.seen("StatusLine"))
        for _ in range(runs.MAX_ATTEMPTS):
            run = runs.claim(service.store, 1)
            assert run is not None
            await chat.until(lambda: "preparing" in chat.seen("StatusLine"))
        assert runs.claim(service.store, 1) is None
        await chat.until(lambda: "the learner died 3 times" in chat.toasts)
        assert "What you taught waits; ^L tries again" in chat.toasts
        await chat.until(lambda: "✗ learning failed · ^L tries again" in chat.seen("StatusLine"))
        assert "Traceback" not in chat.toasts
        await chat.press("ctrl+l")
        await chat.until(lambda: "learning starts" in chat.seen("StatusLine"))


async def test_a_host_that_dies_under_a_run_is_started_again(service: ScriptedService) -> None:
    taught(service, 2)
    async with chatting(service, (100, 30)) as chat:
        await chat.until(lambda: chat.host_seen)
        await chat.press("ctrl+l")
        await chat.until(lambda: runs.open_(service.store))
        assert runs.claim(service.store, 1)
        await chat.until(lambda: "preparing" in chat.seen("StatusLine"))
        before = service.host_starts
        service.up = False
        await chat.until(lambda: service.host_starts > before)
        await chat.until(lambda: "went away while it learned" in chat.toasts)
        await chat.until(lambda: chat.host_seen)
        # Without a run it is asleep, and nobody wakes it before somebody types.
        runs.fail(service.store, runs.open_(service.store)[0].id, "x")
        await chat.until(lambda: "learning failed" in chat.seen("StatusLine"))
        before, service.up = service.host_starts, False
        await chat.until(lambda: "asleep" in chat.seen("StatusLine"))
        assert service.host_starts == before
