"""A page to read: lines with a look each, drawn by the theme.

Not one text with colours in it: the same page must be readable on a light, a dark and a high-contrast theme, and
a wrapped line must keep its indent on forty columns. So every line is a widget of a class, and the style sheet says
the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static


class Look(StrEnum):
    """What a line is."""

    TITLE = "title"
    HEADING = "heading"
    TEXT = "text"
    ITEM = "item"
    DETAIL = "detail"
    NOTE = "note"


@dataclass(frozen=True)
class Line:
    """One line, of any length."""

    look: Look
    text: Content


def line(look: Look, *parts: str | tuple[str, str]) -> Line:
    """A line from plain pieces and ``(text, style)`` pairs. Nothing in it is read as markup."""
    return Line(look, Content.assemble(*parts))


def short(text: str, width: int = 120) -> str:
    """One line of at most ``width`` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 1] + "…"


class Page(VerticalScroll):
    """Shows lines from top to bottom."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__(id=name)
        self._lines: list[Line] = []

    @property
    def text(self) -> str:
        """What the page says, without looks."""
        return "\n".join(each.text.plain for each in self._lines)

    def show(self, lines: Sequence[Line]) -> None:
        """Show other lines from now on; the place that was read is kept where they are as many as before."""
        if list(lines) == self._lines:
            return
        keep = len(lines) == len(self._lines)
        self._lines = list(lines)
        if keep:
            for widget, each in zip(self.query(Static), lines, strict=True):
                widget.update(each.text)
                widget.set_classes(each.look.value)
            return
        self.remove_children()
        self.mount_all([Static(each.text, classes=each.look.value, markup=False) for each in lines])
        self.scroll_home(animate=False)
