"""How strongly a version acts, from 0 (the base model) to 1, as a bar that keys and clicks move.

Moving it is a choice like any other, one row in the store; so it waits until the hand rests, and a key that is held
down makes one choice, not ten.
"""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.timer import Timer
from textual.widget import Widget

STEP = 0.1
REST = 0.5
"""Seconds without a move after which the choice is made."""


class Strength(Widget):
    """A slider. It shows what it is given and reports where it was moved."""

    LABEL = "strength "
    value = reactive(1.0)

    @dataclass
    class Chosen(Message):
        """The slider came to rest at another place."""

        value: float

    def __init__(self) -> None:
        super().__init__()
        self._rest: Timer | None = None

    def show(self, value: float | None) -> None:
        """Show a strength; None hides the slider, where there is nothing to choose."""
        self.display = value is not None
        if value is not None and self._rest is None:
            self.value = value

    def move(self, steps: int) -> None:
        """Move by tenths."""
        if self.display:
            self._to(round(self.value / STEP) * STEP + steps * STEP)

    def on_click(self, event: events.Click) -> None:
        offset = event.get_content_offset_capture(self).x - len(self.LABEL)
        width = self._bar_width
        if 0 <= offset < width:
            self._to(round(offset / max(width - 1, 1) / STEP) * STEP)

    def render(self) -> Content:
        full = round(self.value * self._bar_width)
        return Content.assemble(
            (self.LABEL, "$text-muted"),
            ("━" * full, "$primary"),
            ("─" * (self._bar_width - full), "$foreground 35%"),
            f" {self.value:4.0%}",
        )

    @property
    def _bar_width(self) -> int:
        return max(self.content_size.width - len(self.LABEL) - 5, 4)

    def _to(self, value: float) -> None:
        self.value = round(min(max(value, 0.0), 1.0), 2)
        if self._rest is not None:
            self._rest.stop()
        self._rest = self.set_timer(REST, self._rested)

    def _rested(self) -> None:
        self._rest = None
        self.post_message(self.Chosen(self.value))
