"""One line: model, version, speed, context on the left, the learner on the right. It never asks, it is told."""

from __future__ import annotations

from dataclasses import replace

from textual.content import Content
from textual.widget import Widget

from app.service import Snapshot
from app.tui import wording
from app.tui.wording import Speed


class StatusLine(Widget):
    """Draws the last things it was told, as far as they fit."""

    def __init__(self) -> None:
        super().__init__()
        self._snapshot: Snapshot | None = None
        self._host = ""
        self._speed = Speed()

    def tell(self, snapshot: Snapshot | None, host: str) -> None:
        """What the last look saw, and the host in words."""
        # While a run goes on, the time that is left changes by itself.
        running = snapshot is not None and snapshot.learning.run is not None
        if running or (snapshot, host) != (self._snapshot, self._host):
            self._snapshot, self._host = snapshot, host
            self.refresh()

    def measured(self, tokens_per_second: float | None, context_tokens: int | None) -> None:
        """What the reply on the screen took."""
        self._speed = replace(self._speed, tokens_per_second=tokens_per_second, context_tokens=context_tokens)
        self.refresh()

    def render(self) -> Content:
        return wording.status_line(self._snapshot, self._host, self._speed, self.content_size.width)
