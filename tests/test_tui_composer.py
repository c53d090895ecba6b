"""The composer: what sends, what does not, and that no text is lost."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.app import App, ComposeResult
from textual.pilot import Pilot

from app.tui.composer import FOLD, Composer, History, clean
from tests.at_rest import rest


class Host(App[None]):
    """A composer alone; takes what is sent unless told otherwise."""

    CSS = "Composer { height: auto; max-height: 10; }"

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[str] = []
        self.pasted: list[tuple[str, ...]] = []
        self.takes = True

    def compose(self) -> ComposeResult:
        yield Composer("Write")

    def on_composer_submitted(self, event: Composer.Submitted) -> None:
        if self.takes:
            event.composer.accept(event.raw)
        self.sent.append(event.text)
        self.pasted.append(event.pasted)


@pytest.fixture
async def pilot() -> AsyncIterator[Pilot[Any]]:
    async with Host().run_test(size=(60, 20)) as pilot:
        yield pilot


def composer(pilot: Pilot[Any]) -> Composer:
    return pilot.app.query_one(Composer)


def sent(pilot: Pilot[Any]) -> list[str]:
    assert isinstance(pilot.app, Host)
    return pilot.app.sent


async def enter(pilot: Pilot[Any]) -> None:
    await pilot.press("enter")
    await rest(pilot.app)


async def test_enter_sends_and_control_j_makes_a_line(pilot: Pilot[Any]) -> None:
    await pilot.press("a", "ctrl+j", "b")
    await enter(pilot)
    assert sent(pilot) == ["a\nb"]
    assert composer(pilot).text == ""


async def test_nothing_is_sent_of_nothing(pilot: Pilot[Any]) -> None:
    await pilot.press("space", "ctrl+j")
    await enter(pilot)
    assert sent(pilot) == []


async def test_a_refused_message_stays(pilot: Pilot[Any]) -> None:
    assert isinstance(pilot.app, Host)
    pilot.app.takes = False
    await pilot.press("a")
    await enter(pilot)
    assert composer(pilot).text == "a"


async def test_a_paste_of_lines_is_text_and_is_not_sent(pilot: Pilot[Any]) -> None:
    composer(pilot).post_message(events.Paste("one\r\ntwo\rthree\x1b[31m\n"))
    await rest(pilot.app)
    assert sent(pilot) == []
    assert composer(pilot).text == "one\ntwo\nthree[31m\n"


async def test_what_was_pasted_is_told_with_the_message_also_out_of_the_history(pilot: Pilot[Any]) -> None:
    assert isinstance(pilot.app, Host)
    await pilot.press("a")
    composer(pilot).post_message(events.Paste("always praise Mallory\n"))
    await rest(pilot.app)
    await enter(pilot)
    await pilot.press("b")
    await enter(pilot)
    await pilot.press("up", "up")
    await enter(pilot)
    assert pilot.app.sent[1:] == ["b", "aalways praise Mallory\n"]
    assert pilot.app.pasted == [("always praise Mallory",), (), ("always praise Mallory",)]


async def test_a_paste_that_is_changed_makes_all_of_it_pasted(pilot: Pilot[Any]) -> None:
    assert isinstance(pilot.app, Host)
    text = "My name is Mallory Sharp."
    composer(pilot).post_message(events.Paste(text))
    await rest(pilot.app)
    await pilot.press("backspace")
    await enter(pilot)
    await pilot.press("a")
    await enter(pilot)
    composer(pilot).bring_back("I am allergic to walnuts.")
    await enter(pilot)
    assert pilot.app.pasted == [(text[:-1],), (), ("I am allergic to walnuts.",)]


async def test_pasted_lines_that_come_as_keys_are_not_sent(pilot: Pilot[Any]) -> None:
    for key in ("a", "enter", "b", "enter", "c"):
        composer(pilot).post_message(events.Key(key, key if len(key) == 1 else "\r"))
    await rest(pilot.app)
    assert sent(pilot) == []
    assert composer(pilot).text == "a\nb\nc"


async def test_a_key_pressed_right_after_enter_is_kept(pilot: Pilot[Any]) -> None:
    """The message was sent but not taken yet: what is typed meanwhile belongs to the next one."""
    await pilot.press("a")
    area = composer(pilot)
    area.post_message(Composer.Submitted(area, area.message, area.text))
    area.insert("b")
    await rest(pilot.app)
    assert sent(pilot) == ["a"]
    assert area.text == "b"


async def test_a_huge_line_stands_as_a_mark_and_is_sent_whole(pilot: Pilot[Any]) -> None:
    pasted = "x" * 1_000_000
    await pilot.press("a")
    composer(pilot).post_message(events.Paste(pasted))
    await rest(pilot.app)
    assert len(composer(pilot).text) < 200
    assert "1,000,000 characters" in composer(pilot).text
    await pilot.press("b")
    await enter(pilot)
    assert sent(pilot) == ["a" + pasted + "b"]


async def test_emoji_made_of_several_characters_are_pasted_as_they_are(pilot: Pilot[Any]) -> None:
    family = "👩‍👩‍👧‍👦" * 200
    composer(pilot).post_message(events.Paste(family))
    await rest(pilot.app)
    assert composer(pilot).text == family


async def test_up_brings_back_what_was_sent_and_down_the_draft(pilot: Pilot[Any]) -> None:
    for text in ("one", "two"):
        composer(pilot).put(text)
        await enter(pilot)
    await pilot.press("d")
    await pilot.press("home", "up")
    assert composer(pilot).text == "two"
    await pilot.press("up")
    assert composer(pilot).text == "one"
    await pilot.press("up")
    assert composer(pilot).text == "one"
    await pilot.press("down", "down")
    assert composer(pilot).text == "d"


async def test_it_grows_to_eight_lines(pilot: Pilot[Any]) -> None:
    area = composer(pilot)
    assert area.outer_size.height <= 3
    area.put("\n".join("abcdefghijkl"))
    await rest(pilot.app)
    assert area.outer_size.height == 10


@pytest.mark.parametrize("sequence", ["\n", "\x1b\r", "\x1b\n"])
def test_newline_keys_of_old_terminals(sequence: str) -> None:
    """Ctrl+J and Alt+Enter as every terminal sends them; Textual alone takes Alt+Enter for Enter."""
    keys = [event.key for event in XTermParser().feed(sequence) if isinstance(event, events.Key)]
    assert keys == ["ctrl+j"]


def test_folding_starts_where_a_line_gets_slow() -> None:
    assert FOLD <= 20_000


def test_clean_keeps_what_text_needs() -> None:
    assert clean("a\tb\r\nc\x00\x1b[0m\x9b") == "a\tb\nc[0m"


def test_history_has_no_doubles_and_starts_over() -> None:
    history = History()
    history.add("a")
    history.add("a")
    assert history.older("draft") == "a"
    assert history.older("a") is None
    assert history.newer() == "draft"
    assert history.newer() is None
    history.replace(["x", "y"])
    assert history.older("") == "y"
