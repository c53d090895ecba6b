"""A paste whose end does not come: what has come is pasted, and the keys after it are heard."""

from __future__ import annotations

import pytest
from textual import events
from textual.message import Message

from app.tui import pasting
from app.tui.pasting import BEGIN, END, SILENCE, ClosingParser


class Clock:
    now = 100.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    ticking = Clock()
    monkeypatch.setattr(pasting, "get_time", lambda: ticking.now)
    return ticking


def heard(messages: list[Message]) -> list[str]:
    """Pastes in brackets, keys as they are."""
    found = []
    for each in messages:
        if isinstance(each, events.Paste):
            found.append(f"[{each.text}]")
        elif isinstance(each, events.Key):
            found.append(each.key)
    return found


def test_a_paste_that_falls_silent_is_closed_and_keys_are_keys_again(clock: Clock) -> None:
    parser = ClosingParser()
    assert heard([*parser.feed(BEGIN + "abc"), *parser.tick()]) == []
    clock.now += SILENCE + 0.1
    assert heard([*parser.tick(), *parser.feed("x")]) == ["[abc]", "x"]
    # The end may come late: it pastes nothing a second time.
    assert heard([*parser.feed(END), *parser.feed("y"), *parser.tick()]) == ["y"]


def test_a_paste_that_goes_on_is_waited_for(clock: Clock) -> None:
    parser = ClosingParser()
    said: list[Message] = []
    for piece in (BEGIN[:3], BEGIN[3:] + "one ", "two ", "three", END[:2], END[2:]):
        said += [*parser.feed(piece), *parser.tick()]
        clock.now += SILENCE - 0.1
    said += [*parser.feed("z"), *parser.tick()]
    assert heard(said) == ["[one two three]", "z"]


def test_without_a_paste_nothing_is_closed(clock: Clock) -> None:
    parser = ClosingParser()
    said = [*parser.feed(BEGIN + "a" + END), *parser.feed("b")]
    clock.now += 10 * SILENCE
    said += [*parser.tick(), *parser.feed("c")]
    assert heard(said) == ["[a]", "b", "c"]
