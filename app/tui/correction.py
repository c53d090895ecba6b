"""Correcting a reply: the reply in an editor, and below it what changes, while one types."""

from __future__ import annotations

from collections.abc import Iterable

from textual import on
from textual.containers import VerticalScroll
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.tui import diffing
from app.tui.dialogs import EditDialog, Editor

PAUSE = 0.15
"""Seconds without a key after which the difference is drawn anew."""


class CorrectionDialog(EditDialog):
    """Resolves to the owner's own version of a reply, or to None."""

    def __init__(self, text: str) -> None:
        super().__init__(
            "Correct this reply",
            text,
            "Write it as it should have been. Mynah learns from the difference.",
        )
        self._pause: Timer | None = None

    def below(self) -> Iterable[Widget]:
        yield VerticalScroll(Static("", markup=False), id="change", can_focus=False)

    def on_mount(self) -> None:
        self._draw()

    @on(TextArea.Changed)
    def _typed(self) -> None:
        if self._pause is not None:
            self._pause.stop()
        self._pause = self.set_timer(PAUSE, self._draw)

    def _draw(self) -> None:
        before, after = self._original.strip(), self.query_one(Editor).text.strip()
        change = self.query_one("#change", VerticalScroll)
        change.border_title = f"What changes: {diffing.summary(before, after)}"
        change.query_one(Static).update(diffing.difference(before, after))
