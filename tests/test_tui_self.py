"""The agent's view of itself in the chat: what it says, and what can be answered there."""

from __future__ import annotations

from app.control.step import Controller
from app.tui.self_screen import SelfScreen
from store import decisions, items, settings
from store.db import Store
from tests.people import disliked
from tests.scripted_service import ScriptedService
from tests.tui_pilot import Chat, chatting, page

SHORTER = "Answer in one or two short sentences."


async def opened(chat: Chat, words: str) -> None:
    chat.composer.put("/self")
    await chat.rest()
    await chat.press("enter")
    await chat.until(lambda: isinstance(chat.app.screen, SelfScreen) and words in page(chat))


def proposed(service: ScriptedService) -> str:
    """An instruction that waits for the owner's word."""
    settings.put(service.store, settings.APPROVE_INSTRUCTION, "ask")
    for number in range(3):
        disliked(service.store, f"[red]Question {number}?", hint=SHORTER)
    with Store.open(service.home) as host:
        Controller().look(host)
    return decisions.list_(service.store)[0].id


async def test_nothing_known_is_said(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await opened(chat, "Nothing I know of")
        assert "Nothing yet." in page(chat)


async def test_what_waits_is_on_top_and_approved_by_a_key(service: ScriptedService) -> None:
    decision = proposed(service)
    async with chatting(service) as chat:
        await opened(chat, "Waits for you")
        said = page(chat).splitlines()
        assert said[:3] == [
            "Waits for you: instruction against replies that are too long (prose)",
            f"“{SHORTER}”",
            f"decision {decision}; A approves, D declines",
        ]
        assert "3 of 3 replies, 44% to 100%" in said
        await chat.press("a")
        await chat.until(lambda: "being tried" in page(chat))
        assert [each.text for each in items.active(service.store)] == [SHORTER]
        assert "holds from the next reply on" in chat.toasts


async def test_declined_by_a_key(service: ScriptedService) -> None:
    proposed(service)
    async with chatting(service) as chat:
        await opened(chat, "Waits for you")
        await chat.press("d")
        await chat.until(lambda: "declined by you" in page(chat))
        assert items.active(service.store) == []


async def test_frozen_by_a_key(service: ScriptedService) -> None:
    async with chatting(service) as chat:
        await opened(chat, "Nothing I know of")
        await chat.press("z")
        await chat.until(lambda: "Frozen" in page(chat))
        await chat.press("z")
        await chat.until(lambda: "Frozen" not in page(chat))
