"""Ends a paste whose end does not come.

A terminal puts a paste between two marks, and Textual holds back everything after the first one until the second is
there. A link that drops in the middle of a paste, or a program that writes only the first mark, would leave a chat
that hears no key any more, Ctrl-C and Ctrl-Q included. So a paste that says nothing for ``SILENCE`` seconds is closed
here: what has come is pasted, and the mark that may still follow means nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual._time import get_time
from textual._xterm_parser import XTermParser
from textual.message import Message

BEGIN, END = "\x1b[200~", "\x1b[201~"
SILENCE = 2.0


class ClosingParser(XTermParser):
    """Textual's reader of what a terminal sends, which is ticked several times a second."""

    def __init__(self, debug: bool = False) -> None:
        super().__init__(debug)
        self._before = ""
        self._pasting = False
        self._heard = 0.0

    def feed(self, data: str) -> Iterable[Message]:
        """Take in what came, and note whether a paste is open."""
        # A mark may come in two pieces.
        text = self._before + data
        self._before = text[-len(BEGIN) + 1 :]
        begun, ended = text.rfind(BEGIN), text.rfind(END)
        if begun != ended:
            self._pasting = begun > ended
        self._heard = get_time()
        yield from super().feed(data)

    def tick(self) -> Iterable[Message]:
        """Close a paste that has fallen silent."""
        yield from super().tick()
        if self._pasting and get_time() - self._heard > SILENCE:
            yield from self.feed(END)


def install() -> None:
    """Let the terminal's driver read with it."""
    from textual.drivers import linux_driver

    vars(linux_driver)["XTermParser"] = ClosingParser
