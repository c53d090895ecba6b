"""A few pictures of the chat, so that a change of its looks is seen before it is shipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from textual.pilot import Pilot

from app.tui import wording
from app.tui.app import MynahApp
from app.tui.composer import Composer
from store.home import Home
from store.reasons import Reason
from tests.scripted_service import ScriptedService
from tests.tui_pilot import Chat, drawn


@pytest.fixture(autouse=True)
def _in_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of the themes; what is shown without colours has a test of its own. However long it takes, it is now."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setattr(wording, "ago", lambda moment: "now")


CODE = (
    "Split the text and count:\n\n```python\ndef count_words(text: str) -> dict[str, int]:\n"
    "    counts: dict[str, int] = {}\n    for word in text.lower().split():\n"
    "        counts[word] = counts.get(word, 0) + 1\n    return counts\n```\n\n"
    "- splits at *white space*\n- keeps `punctuation`"
)


@pytest.fixture
def service(home: Home) -> Iterator[ScriptedService]:
    scripted = ScriptedService(home)
    _, reply = scripted.say("How long do I boil an egg?", "That depends on many things.")
    scripted.correct(reply, "Six minutes for soft, eleven for hard.")
    for river in ("Danube", "Rhine", "Loire"):
        _, reply = scripted.say(f"Where does the {river} rise?", f"1. The {river}\n2. rises somewhere")
        scripted.rate(reply, -1, reason=Reason.NO_LIST)
    scripted.learned()
    _, reply = scripted.say("How do I count words in Python?", CODE)
    scripted.rate(reply, 1)
    yield scripted
    scripted.close()


# What a screen shows when it is whole, by the keys that lead there.
READY = {
    ("f7",): "Not good. Why?",
    ("slash", "c", "o"): "/copy",
    ("f3",): "Learned from",
    ("f1",): "stop the reply",
}


def drive(service: ScriptedService, *keys: str) -> Callable[[Pilot[Any]], Any]:
    """Open the newest conversation, then press keys."""

    async def before(pilot: Pilot[Any]) -> None:
        assert isinstance(pilot.app, MynahApp)
        chat = Chat(pilot.app, pilot, service)
        await chat.until(lambda: pilot.app.screen.query(Composer))
        chat.composer.cursor_blink = False
        await chat.until(lambda: "v1" in chat.seen("StatusLine") and chat.host_seen)
        chat.view.open(service.conversations()[0].id)
        await chat.until(lambda: chat.replies and "queued" in chat.meta())
        await chat.press(*keys)
        await chat.until(lambda: READY.get(keys, "") in drawn(chat))

    return before


@pytest.mark.parametrize(
    ("size", "keys"),
    [((120, 36), ()), ((80, 24), ("f7",)), ((40, 20), ())],
    ids=["wide", "reasons", "slim"],
)
def test_chat(
    snap_compare: Any, service: ScriptedService, size: tuple[int, int], keys: tuple[str, ...]
) -> None:
    assert snap_compare(MynahApp(service), run_before=drive(service, *keys), terminal_size=size)


@pytest.mark.parametrize("size", [(120, 36), (40, 20)], ids=["wide", "slim"])
@pytest.mark.parametrize("theme", ["light", "contrast"])
def test_themes(snap_compare: Any, service: ScriptedService, theme: str, size: tuple[int, int]) -> None:
    service.choose_theme(theme)
    assert snap_compare(MynahApp(service), run_before=drive(service), terminal_size=size)


def test_commands_by_name(snap_compare: Any, service: ScriptedService) -> None:
    keys = ("slash", "c", "o")
    assert snap_compare(MynahApp(service), run_before=drive(service, *keys), terminal_size=(80, 24))


def test_versions(snap_compare: Any, service: ScriptedService) -> None:
    assert snap_compare(MynahApp(service), run_before=drive(service, "f3"), terminal_size=(120, 36))


def test_help(snap_compare: Any, service: ScriptedService) -> None:
    assert snap_compare(MynahApp(service), run_before=drive(service, "f1"), terminal_size=(80, 24))
