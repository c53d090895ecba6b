"""Says at once what was remembered of a message, and takes it back with one key.

A memory that is written in silence is found out later, and then not trusted. So the notice comes with the reply, in
the words that were kept, and the key that undoes it forgets it as if it had never been written, or brings back what it
replaced.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from textual.screen import Screen

from app.tui.background import Background
from app.tui.ports import ChatService
from store.errors import MynahError
from store.items import Item


class Remembering:
    """What one chat screen has said of memories lately. ``key`` is how the command that takes one back is called."""

    def __init__(self, screen: Screen[None], service: ChatService, background: Background, key: str) -> None:
        self._screen = screen
        self._service = service
        self._background = background
        self._key = key
        self._last: list[Item] = []
        self._told: set[str] = set()

    def consider(self, message: str | None, notes: Sequence[str] = ()) -> None:
        """A reply to a message has ended: say what was read off the message, and what a guard could not put right."""
        for note in notes:
            self._screen.notify(note.capitalize(), severity="warning", timeout=10, markup=False)
        if message is not None:
            self._background.call(lambda: self._service.remembered(message), self._say, lambda _error: None)

    def undo(self) -> None:
        """Take back what was remembered last; what was known before it holds again."""
        if not self._last:
            self._screen.notify("Nothing was remembered just now", timeout=3, markup=False)
            return
        gone, self._last = self._last, []

        def work() -> None:
            for item in gone:
                self._service.take_back(item.id)

        self._background.call(work, self._undone, self._refused)

    def _say(self, found: list[Item]) -> None:
        new = [item for item in found if item.id not in self._told]
        if not new:
            return
        self._told.update(item.id for item in new)
        self._last = new
        said = ", ".join(f"“{' '.join(item.text.split())}”" for item in new)
        self._screen.notify(f"Remembered: {said}. {self._key} takes it back", timeout=10, markup=False)

    def _undone(self, _result: Any) -> None:
        self._screen.notify("Taken back", timeout=3, markup=False)

    def _refused(self, error: MynahError) -> None:
        self._screen.notify(str(error), severity="warning", markup=False)
