"""Learning in sight: before and after, strength, timeline, satisfaction, and how long a run still takes."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from textual.message import Message
from textual.widgets import Input, TabbedContent

from app.host.events import Failed
from app.tui import timeline_words, wording
from app.tui.adapters_screen import AdaptersScreen
from app.tui.compare import Side
from app.tui.pages import Page
from app.tui.satisfaction import Satisfaction
from app.tui.shelf import VersionList
from app.tui.strength import Strength
from store import progress, runs
from store.home import Home
from store.runs import Run
from store.types import ErrorClass, RunOutcome, RunState, Trigger
from tests.scripted_service import GATE, Script, ScriptedService
from tests.tui_pilot import Chat, chatting

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)


@pytest.fixture
def service(home: Home) -> Iterator[ScriptedService]:
    scripted = ScriptedService(home)
    for each in range(4):
        _, reply = scripted.say(f"question {each} [red]", f"wrong {each}")
        scripted.correct(reply, f"right {each} [/]")
    scripted.learned()
    yield scripted
    scripted.close()


async def versions(chat: Chat) -> AdaptersScreen:
    await chat.press("f3")
    await chat.until(lambda: isinstance(chat.app.screen, AdaptersScreen))
    screen = chat.app.screen
    assert isinstance(screen, AdaptersScreen)
    await chat.until(lambda: "Learned from" in screen.query_one("#detail", Page).text)
    return screen


async def test_before_and_after_stand_side_by_side_and_nothing_is_kept(service: ScriptedService) -> None:
    async with chatting(service, (110, 36)) as chat:
        screen = await versions(chat)
        conversations = len(service.conversations())
        service.scripts = [Script(["before [red]"]), Script(["after [/]"])]
        await chat.press("c")
        sides = list(screen.query(Side))
        await chat.until(lambda: [side.text for side in sides] == ["before [red]", "after [/]"])
        assert [side.border_title for side in sides] == ["base", "v1"]
        first, second = service.requests[-2:]
        # The held-out question, which the version was not trained on.
        assert (first.text, second.text) == ("question 3 [red]", "question 3 [red]")
        assert (first.base, first.incognito, first.adapter) == (True, True, None)
        assert second.adapter == service.adapters()[0].id
        assert second.incognito
        assert second.sampler == {"temperature": 0.0, "max_tokens": 300}
        assert len(service.conversations()) == conversations


async def test_any_question_can_be_compared_and_a_failure_is_said(service: ScriptedService) -> None:
    async with chatting(service, (60, 30)) as chat:
        screen = await versions(chat)
        await chat.press("2")
        box = screen.query_one(Input)
        box.value = "why [/]?"
        box.focus()
        service.scripts = [
            Script(["one"]),
            Script((), fails_after=Failed(ErrorClass.LOAD_FAILED, "its file is damaged")),
        ]
        await chat.press("enter")
        await chat.until(lambda: "its file is damaged" in chat.seen("Side Static"))
        assert service.requests[-1].text == "why [/]?"
        await chat.press("escape")
        await chat.until(lambda: screen.query_one(VersionList).has_focus)


async def test_a_new_comparison_breaks_the_old_one_off(service: ScriptedService) -> None:
    async with chatting(service, (110, 36)) as chat:
        screen = await versions(chat)
        service.scripts = [Script(["never shown"], may_start=threading.Event()), Script(["1"]), Script(["2"])]
        await chat.press("c")
        await chat.until(lambda: len(service.requests) == 1)
        await chat.press("c")
        await chat.until(lambda: [side.text for side in screen.query(Side)] == ["1", "2"])


async def test_the_strength_slider_makes_one_choice_when_the_hand_rests(
    service: ScriptedService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with chatting(service, (100, 30)) as chat:
        screen = await versions(chat)
        slider, chosen = screen.query_one(Strength), []
        post = slider.post_message

        def heard(message: Message) -> bool:
            if isinstance(message, Strength.Chosen):
                chosen.append(message.value)
            return post(message)

        monkeypatch.setattr(slider, "post_message", heard)
        made = service.serving().activation
        assert made is not None
        await chat.press("left", "left", "left", "right")
        assert slider.value == 0.8
        await chat.until(lambda: service.serving().scale == 0.8)
        assert service.serving().activation == made + 1
        await chat.until(lambda: "at 80%" in chat.toasts)
        # Pinning it does not turn it up again.
        await chat.press("p")
        await chat.until(service.pinned)
        assert service.serving().scale == 0.8
        await chat.press("escape")
        await chat.until(lambda: "v1 at 80%" in chat.seen("StatusLine"))
        assert chosen == [0.8]
        assert service.serving().activation == made + 1


async def test_strength_is_offered_only_for_what_answers(service: ScriptedService) -> None:
    async with chatting(service, (100, 30)) as chat:
        screen = await versions(chat)
        await chat.press("end")
        await chat.until(lambda: not screen.query_one(Strength).display)
        await chat.press("left")
        await chat.until(lambda: "answers now" in chat.toasts)
        assert service.serving().scale == 1.0


async def test_the_timeline_tells_everything_that_happened(service: ScriptedService) -> None:
    service.rollback()
    first = service.adapters()[0]
    service.use(first.id, 0.5)
    _, reply = service.say("another", "thing")
    service.rate(reply, -1)
    service.learned({**GATE, "passed": False, "summary": "worse [/]"}, passes=False)
    async with chatting(service, (110, 40)) as chat:
        screen = await versions(chat)
        await chat.press("3")
        told = screen.query_one("#moments", Page).text
        assert told.startswith("Since yesterday\n5 replies, 0% left as they were (4 corrected, 1 rated bad)")
        for event in (
            "v1 went live, learned from 3 replies",
            "you went back to base",
            "you let v1 answer at 50%",
            "v2 was refused at its test",
            "worse [/]",
        ):
            assert event in told
        assert "Today" in told


async def test_satisfaction_is_shown_by_version_and_by_day(service: ScriptedService) -> None:
    service.say("fine", "this one is left alone")
    async with chatting(service, (110, 40)) as chat:
        screen = await versions(chat)
        await chat.press("4")
        told = screen.query_one(Satisfaction).query_one(Page).text
        assert "v1     ━━━━━━━━━━━━━━━━━━━━ 1 reply, 100% left as they were" in told
        assert "base   ──────────────────── 4 replies, 0% left as they were (4 corrected)" in told


async def test_the_pages_turn_with_one_key(service: ScriptedService) -> None:
    async with chatting(service, (40, 24)) as chat:
        screen = await versions(chat)
        for key, pane in (("4", "satisfaction"), ("2", "compare"), ("3", "timeline"), ("1", "story")):
            await chat.press(key)
            assert screen.query_one(TabbedContent).active == pane


def test_a_tally_counts_a_reply_once_and_not_what_was_taken_back(service: ScriptedService) -> None:
    _, reply = service.say("one more", "answer")
    service.rate(reply, -1)
    service.rate(reply, 0)
    tally = progress.since(service.store, "")
    assert (tally.replies, tally.corrected, tally.down, tally.up) == (5, 4, 0, 0)
    assert tally.left_alone == pytest.approx(0.2)
    assert list(progress.by_day(service.store, "")) == [datetime.now().date().isoformat()]


def test_nothing_since_yesterday_is_said_so(home: Home) -> None:
    scripted = ScriptedService(home)
    lines = timeline_words.since_yesterday(scripted.changes(""))
    assert "Nothing" in lines[-1].text.plain
    scripted.close()


def run_at(fraction: float, began: datetime, state: RunState = RunState.TRAINING) -> Run:
    return Run("r1", Trigger.MANUAL, state, None, "", began.isoformat(), None, 1, 1, fraction, "", {}, None)


@pytest.mark.parametrize(
    ("fraction", "usual", "left"),
    [(0.0, None, None), (0.0, 60.0, 50.0), (0.5, None, 10.0), (0.5, 30.0, 15.0), (0.9, 5.0, 1.0)],
)
def test_how_long_a_run_still_takes(fraction: float, usual: float | None, left: float | None) -> None:
    run = run_at(fraction, NOW - timedelta(seconds=10))
    assert wording.remaining(run, usual, NOW) == (None if left is None else pytest.approx(left, abs=0.1))


@pytest.mark.parametrize(
    ("seconds", "said"), [(2, "a few seconds"), (14, "about 10 s"), (58, "about 60 s"), (200, "about 3 min")]
)
def test_durations_are_said_as_people_do(seconds: float, said: str) -> None:
    assert wording.duration(seconds) == said


async def test_the_status_line_has_a_bar_and_the_time_that_is_left(service: ScriptedService) -> None:
    done = runs.request(service.store, Trigger.MANUAL)
    runs.finish(service.store, done.id, RunOutcome.REJECTED, {"outcome": "rejected", "seconds": 40.0})
    run = runs.request(service.store, Trigger.MANUAL)
    async with chatting(service, (110, 30)) as chat:
        await chat.until(lambda: "learning starts" in chat.seen("StatusLine"))
        assert "about 40 s left" in chat.seen("StatusLine")
        runs.claim(service.store, 1)
        runs.progress(service.store, run.id, RunState.TRAINING, 0.4, "")
        await chat.until(lambda: "training 40% ━━━━──────" in chat.seen("StatusLine"))
        assert "left" in chat.seen("StatusLine")


async def test_the_versions_screen_follows_a_run_to_its_end(service: ScriptedService) -> None:
    _, reply = service.say("one more", "wrong")
    service.correct(reply, "right")
    run = runs.request(service.store, Trigger.MANUAL)
    async with chatting(service, (100, 30)) as chat:
        screen = await versions(chat)
        listing = screen.query_one(VersionList)
        runs.claim(service.store, 1)
        runs.progress(service.store, run.id, RunState.TRAINING, 0.5, "")
        await chat.until(lambda: "training 50%\n┆    ━━━━━━──────" in str(listing.get_option("next").prompt))
        runs.finish(service.store, run.id, RunOutcome.NOTHING_TO_LEARN, {})
        service.learned(salt="next")
        await chat.until(lambda: str(listing.get_option_at_index(0).prompt).startswith("v2"))
