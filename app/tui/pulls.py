"""Fetching and changing models from the chat: one at a time, in a thread, whichever screen is open meanwhile.

A gigabyte takes minutes, so a pull belongs to the chat and not to the screen that began it: that screen can be left
and opened again, and quitting keeps what has come. The thread leaves its last progress where any screen reads it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from textual.screen import Screen

from app.models import Progress, Running
from app.service import ModelFile
from app.tui.background import Background
from app.tui.ports import ChatService
from store.errors import Interrupted, MynahError


class Pulls:
    """The pull that goes on, if any. ``changed`` is called when another model answers."""

    def __init__(
        self,
        screen: Screen[None],
        service: ChatService,
        background: Background,
        changed: Callable[[], None],
    ) -> None:
        self._screen = screen
        self._service = service
        self._background = background
        self._changed = changed
        self._stop = threading.Event()
        self.under_way: str | None = None
        self.progress: Progress | None = None
        self.revision = 0
        """Grows whenever the list of models may have changed."""

    def fetch(self, typed: str) -> None:
        """Fetch a model by its name or address; refused while another one comes."""
        if self.under_way is not None:
            self._say(f"{self.under_way} is being fetched: S stops it")
            return
        self.under_way, self.progress = typed, None
        self._stop.clear()
        self._background.beside(
            lambda: self._service.pull(typed, self._hear, self._stop), self._fetched, self._broken
        )

    def stop(self) -> None:
        """Stop fetching; what has come is kept."""
        self._stop.set()

    def choose(self, pick: str) -> None:
        """Let another model answer."""
        self._background.beside(
            lambda: self._service.change_model(pick), self._chosen, lambda error: self._say(str(error))
        )

    def run_with(self, key: str, typed: str) -> None:
        """Run the model with another context, or another share on the GPU."""
        self._background.beside(
            lambda: self._service.run_with(key, typed), self._runs, lambda error: self._say(str(error))
        )

    def _runs(self, _running: Running) -> None:
        self.revision += 1
        self._say("The model is loaded anew with that")
        self._changed()

    def _hear(self, progress: Progress) -> None:
        # In the thread of the pull: one assignment, which whoever looks finds whole.
        self.progress = progress

    def _fetched(self, model: ModelFile) -> None:
        self._over()
        self._say(f"{model.name} is here: Alt+M lets it answer")

    def _broken(self, error: MynahError) -> None:
        self._over()
        if isinstance(error, Interrupted):
            self._say("Stopped. What has come is kept, and Enter goes on.")
        else:
            self._screen.notify(str(error), severity="warning", markup=False)

    def _over(self) -> None:
        self.under_way = self.progress = None
        self.revision += 1

    def _chosen(self, model: ModelFile) -> None:
        self.revision += 1
        self._say(f"{model.name} answers from now on, with versions of its own")
        self._changed()

    def _say(self, line: str) -> None:
        self._screen.notify(line, timeout=6, markup=False)
