"""The bottom line: the commands and their keys, as many as fit, each of which can be clicked.

Not Textual's Footer: that lists bindings in the order of the focused widget's own, so that the text area's keys
come first whatever matters, and on a narrow terminal cuts the line where it happens to end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.widget import Widget


@dataclass(frozen=True)
class Key:
    """One entry: the key as it is shown, a word, and the screen's action behind both."""

    shown: str
    word: str
    action: str


class KeyLine(Widget):
    """Shows keys in falling order of importance."""

    GAP = 2

    def __init__(self, keys: Sequence[Key]) -> None:
        super().__init__()
        self._keys = list(keys)
        self._places: list[tuple[int, int, str]] = []

    def show(self, keys: Sequence[Key]) -> None:
        """Show other keys from now on."""
        if list(keys) != self._keys:
            self._keys = list(keys)
            self.refresh()

    def render(self) -> Content:
        line, self._places = Content(""), []
        for key in self._keys:
            entry = Content.assemble((key.shown, "$primary"), " ", key.word)
            start = line.cell_length + (self.GAP if self._places else 0)
            if start + entry.cell_length > self.content_size.width:
                break
            line = line + Content(" " * (start - line.cell_length)) + entry
            self._places.append((start, line.cell_length, key.action))
        return line

    async def on_click(self, event: events.Click) -> None:
        x = event.get_content_offset_capture(self).x
        for start, end, action in self._places:
            if start <= x < end:
                await self.screen.run_action(action)
