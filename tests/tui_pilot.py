"""Drives the chat in a test: starts it on a scripted service and waits for what a person would wait for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from app.tui.app import MynahApp
from app.tui.chat_screen import ChatScreen
from app.tui.chat_view import ChatView
from app.tui.composer import Composer
from app.tui.pages import Page
from app.tui.transcript import ReplyView, Transcript
from tests.at_rest import PATIENCE, rest
from tests.scripted_service import ScriptedService

__all__ = ["PATIENCE", "Chat", "chatting", "drawn", "page"]


class Chat:
    """A running chat and what can be seen of it."""

    def __init__(
        self, app: MynahApp, pilot: Pilot[Any], service: ScriptedService, told: list[str] | None = None
    ) -> None:
        self.app = app
        self.pilot = pilot
        self.service = service
        self._told = heard_from(app) if told is None else told

    @property
    def view(self) -> ChatView:
        return self.app.screen_stack[0].query_one(ChatView)

    @property
    def composer(self) -> Composer:
        return self.view.composer

    @property
    def transcript(self) -> Transcript:
        return self.view.transcript

    @property
    def replies(self) -> list[ReplyView]:
        return self.transcript.replies

    @property
    def toasts(self) -> str:
        """All that was ever told in one: a slow machine may look only when they have gone from the screen."""
        return "\n".join(self._told)

    @property
    def host_seen(self) -> bool:
        """Whether the chat's last look at the service found a host."""
        screen = self.app.screen_stack[0]
        assert isinstance(screen, ChatScreen)
        return screen._snapshot is not None and screen._snapshot.host is not None

    def meta(self, place: int = -1) -> str:
        """The line under a reply."""
        return "".join(str(line.render()) for line in self.replies[place].query(".meta"))

    def seen(self, selector: str) -> str:
        """The text of the widgets that fit a selector, on the top screen."""
        return "\n".join(str(widget.render()) for widget in self.app.screen.query(selector))

    async def until(self, true: Callable[[], Any]) -> None:
        """Wait for something to become true, and for what belongs to it."""
        async with asyncio.timeout(PATIENCE):
            while not true():
                await asyncio.sleep(0.01)
        await self.rest()

    async def rest(self) -> None:
        """Wait until the chat has nothing left to do; see ``tests.at_rest``."""
        await rest(self.app)

    async def press(self, *keys: str) -> None:
        await self.pilot.press(*keys)

    async def send(self, text: str) -> None:
        """Type a message and send it; what a paste would do is tested by itself."""
        self.composer.put(text)
        await self.rest()
        sent = len(self.service.requests)
        await self.press("enter")
        await self.until(lambda: len(self.service.requests) > sent)

    async def ask(self, text: str) -> str:
        """Send a message and wait for its whole reply; returns the reply's id."""
        await self.send(text)
        await self.settled()
        entry = self.replies[-1].entry
        assert entry is not None
        return entry.message.id

    async def settled(self) -> None:
        """Wait until the last reply is shown as it is stored."""
        await self.until(lambda: self.view.turn is None and self.replies and self.replies[-1].entry)


def heard_from(app: MynahApp) -> list[str]:
    """The notices of an app, from now on."""
    told: list[str] = []
    notify = app.notify

    def hear(message: str, **how: Any) -> None:
        told.append(message)
        notify(message, **how)

    app.notify = hear  # type: ignore[method-assign]
    return told


def page(chat: Chat) -> str:
    """The text of the page that is open over the chat, if there is one."""
    found = chat.app.screen.query(Page)
    return found.first().text if found else ""


def drawn(chat: Chat) -> str:
    """Everything that is on the screen, line by line."""
    strips = chat.app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip) for strip in strips)


@asynccontextmanager
async def chatting(service: ScriptedService, size: tuple[int, int] = (80, 24)) -> AsyncIterator[Chat]:
    """The chat on a terminal of a size, with its host up."""
    app = MynahApp(service)
    told = heard_from(app)
    async with app.run_test(size=size) as pilot:
        chat = Chat(app, pilot, service, told)
        await chat.until(lambda: service.host_starts)
        yield chat
