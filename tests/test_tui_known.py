"""What I know, in sight: the list and its keys, and the notice that something was remembered."""

from __future__ import annotations

from textual.widgets import Input, OptionList

from app.harness import writer
from app.host.events import TurnRequest
from app.tui.dialogs import EditDialog, Editor, LineDialog
from app.tui.known_screen import EMPTY, KnownScreen
from store import items
from store.home import Home
from store.types import ItemKind, ItemState
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat, chatting


async def known(chat: Chat) -> KnownScreen:
    await chat.press("alt+k")
    await chat.until(lambda: isinstance(chat.app.screen, KnownScreen))
    screen = chat.app.screen
    assert isinstance(screen, KnownScreen)
    await chat.until(lambda: chat.seen(".remark"))
    return screen


def rows(screen: KnownScreen) -> list[str]:
    listing = screen.query_one(OptionList)
    return [str(listing.get_option_at_index(place).prompt) for place in range(listing.option_count)]


async def test_an_empty_list_says_how_it_fills_and_takes_a_line(service: ScriptedService) -> None:
    async with chatting(service, (90, 30)) as chat:
        screen = await known(chat)
        assert chat.seen(".remark") == EMPTY
        await chat.press("a")
        await chat.until(lambda: isinstance(chat.app.screen, LineDialog))
        chat.app.screen.query_one(Input).value = "I live in [bold]Oslo[/]"
        await chat.press("enter")
        await chat.until(lambda: chat.app.screen is screen and rows(screen))
        assert rows(screen) == ["● memory I live in [bold]Oslo[/]"]
        assert chat.seen(".remark") == "Remembered."
        (item,) = items.active(service.store)
        assert item.topic == "home"


async def test_each_one_is_changed_switched_and_forgotten_by_a_key(service: ScriptedService) -> None:
    item = service.add_item(ItemKind.MEMORY, {"text": "I live in Oslo"})
    service.add_item(ItemKind.GUARD, {"template": "length", "parameters": {"sentences": 2}})
    service.add_item(ItemKind.INSTRUCTION, {"text": "be brief"})
    async with chatting(service, (90, 30)) as chat:
        screen = await known(chat)
        await chat.until(lambda: len(rows(screen)) == 3)
        assert [row.split()[1] for row in rows(screen)] == ["memory", "rule", "guard"]
        assert "typed by you" in chat.seen(".remark")
        await chat.press("enter")
        await chat.until(lambda: isinstance(chat.app.screen, EditDialog))
        chat.app.screen.query_one(Editor).text = "I live in Bergen"
        await chat.press("ctrl+s")
        await chat.until(lambda: chat.app.screen is screen and "Bergen" in rows(screen)[0])
        assert items.get(service.store, item.id).state is ItemState.OFF
        await chat.press("space")
        await chat.until(lambda: rows(screen)[0].startswith("○"))
        await chat.press("space")
        await chat.until(lambda: rows(screen)[0].startswith("●"))
        await chat.press("f")
        assert "F again" in chat.seen(".remark")
        await chat.press("down", "up", "f")
        assert len(rows(screen)) == 3
        await chat.press("f")
        await chat.until(lambda: len(rows(screen)) == 2)
        assert items.get(service.store, item.id).state is ItemState.FORGOTTEN
        await chat.press("down", "enter")
        assert "mynah guards edit" in chat.seen(".remark")


class Remembers(ScriptedService):
    """Does what the host does when a question is saved."""

    def _parent(self, request: TurnRequest) -> tuple[str, str]:
        conversation, message = super()._parent(request)
        if request.text is not None:
            writer.remember(self.store, conversation, message, request.text)
        return conversation, message


async def test_what_was_remembered_is_said_once_and_one_key_takes_it_back(home: Home) -> None:
    service = Remembers(home, [Script(["hello [Anna]"]), Script(["sunny"])])
    async with chatting(service, (90, 30)) as chat:
        await chat.ask("my name is Anna")
        await chat.until(lambda: "Remembered" in chat.toasts)
        assert "“my name is Anna”. Alt+U takes it back" in chat.toasts
        await chat.ask("how is the weather?")
        await chat.press("alt+u")
        await chat.until(lambda: "Taken back" in chat.toasts)
        assert chat.toasts.count("Remembered") == 1
        assert items.list_(service.store) == []
        await chat.press("alt+u")
        await chat.until(lambda: "Nothing was remembered" in chat.toasts)
    service.close()
