"""Pictures of the screens that show the learning, in a dark and a light theme, on a wide and a narrow terminal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, tzinfo
from typing import Any

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from app.tui import shelf, timeline_words, wording
from app.tui.app import MynahApp
from app.tui.composer import Composer
from store import ids, signals
from store.home import Home
from store.reasons import Reason
from store.types import SignalKind, SignalSource
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat, drawn


@pytest.fixture(autouse=True)
def _in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of the themes; what is shown without colours has a test of its own."""
    monkeypatch.delenv("NO_COLOR", raising=False)


NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)
LOOKS = [("mynah", (120, 36)), ("textual-light", (60, 28))]


class Noon(datetime):
    """A clock that stands still."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> Noon:
        return cls.fromtimestamp(NOON.timestamp(), tz)


@pytest.fixture
def service(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedService]:
    """Some days of use, the same to the last id each time."""
    numbers = itertools.count(1)
    clock = itertools.count(NOON.timestamp() - 9 * 86400, 3600.0)
    monkeypatch.setattr(ids, "new_id", lambda kind: f"{kind}{next(numbers):010d}")
    for module in ("store.conversations", "store.signals", "store.units", "store.runs", "store.decisions"):
        monkeypatch.setattr(f"{module}.new_id", ids.new_id)
    monkeypatch.setattr("store.ids.time.time", lambda: next(clock))
    monkeypatch.setattr(wording, "ago", lambda moment: "2 d")
    monkeypatch.setattr(timeline_words, "datetime", Noon)
    monkeypatch.setattr(shelf, "datetime", Noon)
    scripted = ScriptedService(home)
    for river in ("Danube", "Rhine", "Loire", "Elbe", "Oder"):
        _, reply = scripted.say(f"Where does the {river} rise?", f"1. The {river}\n2. rises somewhere")
        scripted.rate(reply, -1, reason=Reason.NO_LIST)
    scripted.learned()
    for number in range(30):
        scripted.say(f"A question, the {number}th", "A reply in plain sentences.")
    conversation, reply = scripted.say("How long do I boil an egg?", "About ten hours, in cold water.")
    scripted.say("I meant a soft one", "Six minutes.", conversation)
    signals.record(
        scripted.store,
        reply,
        SignalKind.REQUERY,
        value=1.0,
        text="I meant a soft one",
        source=SignalSource.RULE,
        confidence=0.9,
    )
    scripted.correct(reply, "About six minutes, in boiling water.")
    scripted.learned(salt="second")
    yield scripted
    scripted.close()


# Each screen: the keys that lead there, and what it shows when it is whole.
SCREENS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "story": (("shift+tab", "shift+tab", "f12"), ("You have said nothing",)),
    "correct": (("shift+tab", "shift+tab", "f8", "!"), ("What changes: +1 words",)),
    "versions": (("f3",), ("Learned from",)),
    "compare": (("f3", "c"), ("2. Then, take a pot.", "Six minutes in boiling water.")),
    "timeline": (("f3", "3"), ("Since yesterday", "Yesterday")),
    "satisfaction": (("f3", "4"), ("By version",)),
    "find": (("ctrl+f", *"boil"), ("1 found", "asked again")),
    "incognito": (("alt+i", *"my secret", "enter"), ("2. Then, take a pot.", "tok/s")),
    "dials": (("ctrl+o", "v"), ("what you rate here is learned",)),
    "forget": (("ctrl+o", "d"), ("The backup /b",)),
}


def drive(
    service: ScriptedService, theme: str, keys: tuple[str, ...], ready: tuple[str, ...]
) -> Callable[[Pilot[Any]], Any]:
    async def before(pilot: Pilot[Any]) -> None:
        assert isinstance(pilot.app, MynahApp)
        pilot.app.theme = theme
        chat = Chat(pilot.app, pilot, service)
        await chat.until(lambda: pilot.app.screen.query(Composer))
        chat.composer.cursor_blink = False
        await chat.until(lambda: "v2" in chat.seen("StatusLine") and chat.host_seen)
        chat.view.open(service.conversations()[0].id)
        await chat.until(lambda: chat.replies and chat.replies[-1].query(".meta") and chat.meta())
        for key in keys:
            await chat.press(key)
            for widget in pilot.app.screen.query("Input, TextArea"):
                assert isinstance(widget, Input | TextArea)
                widget.cursor_blink = False
        await chat.until(lambda: all(text in drawn(chat) for text in ready))

    return before


@pytest.mark.parametrize("look", LOOKS, ids=["dark-wide", "light-narrow"])
@pytest.mark.parametrize("screen", SCREENS)
def test_screen(
    snap_compare: Any, service: ScriptedService, screen: str, look: tuple[str, tuple[int, int]]
) -> None:
    theme, size = look
    service.scripts = [
        Script(["1. First, take an egg.\n2. Then, take a pot."]),
        Script(["Six minutes in boiling water."]),
    ]
    assert snap_compare(
        MynahApp(service), run_before=drive(service, theme, *SCREENS[screen]), terminal_size=size
    )
