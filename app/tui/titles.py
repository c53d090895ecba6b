"""Gives new conversations a title in the background, after their first exchange, and gets out of the way at once.

The model answers one question at a time, so a title is asked for only while nobody waits for a reply, and broken
off as soon as somebody does; it is tried again when that one is over. What comes of it is saved only while the
conversation still bears its first line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from app import titles
from app.host.events import Done
from app.tui.background import Background
from app.tui.ports import ChatService, Turn
from store.errors import MynahError
from store.types import FinishReason


class Titles:
    """Asks for one title at a time. ``changed`` is called when a conversation got one, ``broken_off`` when one
    that had stood aside is over, so that it may be considered again.
    """

    def __init__(
        self,
        service: ChatService,
        background: Background,
        changed: Callable[[], None],
        broken_off: Callable[[], None],
    ) -> None:
        self._service = service
        self._background = background
        self._changed = changed
        self._broken_off = broken_off
        self._tried: set[str] = set()
        self._asking: str | None = None
        self._stream: Turn | None = None
        self._unwanted = threading.Event()

    def consider(self, conversation: str | None) -> None:
        """Nobody waits for a reply: this conversation may want a title."""
        if conversation is not None and conversation not in self._tried and self._asking is None:
            self._asking = conversation
            self._unwanted.clear()
            self._background.beside(lambda: self._ask(conversation), self._answered, self._failed)

    def stand_aside(self) -> None:
        """A reply is wanted: break off the title that is being asked for, however far that has come."""
        # First this: a title that is being asked for at this very moment finds it.
        self._unwanted.set()
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _ask(self, conversation: str) -> bool:
        """In a thread of its own: whether a title was made and saved."""
        if not self._service.wants_titles():
            self._tried.add(conversation)
            return False
        question = self._service.untitled(conversation)
        if question is None or not titles.wanted(question) or self._unwanted.is_set():
            return False
        stream = self._stream = self._service.chat(titles.request(question))
        if self._unwanted.is_set():
            stream.close()
        for event in stream:
            if isinstance(event, Done) and event.finish_reason != FinishReason.CANCELLED:
                self._tried.add(conversation)
                whole = event.finish_reason == FinishReason.STOP
                title = titles.clean(event.text) if whole else None
                return title is not None and self._service.entitle(conversation, title)
        return False

    def _answered(self, titled: bool) -> None:
        self._asking = self._stream = None
        if titled:
            self._changed()
        elif self._unwanted.is_set():
            # The reply it stood aside for may be over by now, and nothing else would bring it up again.
            self._broken_off()

    def _failed(self, _: MynahError) -> None:
        # The conversation has its first line for a title: nobody needs to hear of it.
        if self._asking is not None and not self._unwanted.is_set():
            self._tried.add(self._asking)
        self._answered(titled=False)
