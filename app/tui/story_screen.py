"""What became of one reply, from the thumb to the decision. One key opens it, one turns a rule's verdict over."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen

from app.service import Receipt
from app.tui import story_words
from app.tui.background import Background
from app.tui.pages import Page
from app.tui.ports import ChatService
from store.errors import MynahError
from store.story import Story


class StoryScreen(ModalScreen[None]):
    """The story of a reply. ``changed`` is called when the line under the reply may differ."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f12,alt+w,q,enter,ctrl+c", "dismiss", "back", key_display="Esc"),
        Binding("f", "flip", "turn the verdict over"),
    ]

    def __init__(self, service: ChatService, message: str, changed: Callable[[], None]) -> None:
        super().__init__()
        self._service = service
        self._message = message
        self._changed = changed
        self._background = Background(self)

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet") as sheet:
            sheet.border_title = "What became of this reply"
            sheet.border_subtitle = "Esc back"
            yield Page()

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self._load()

    def action_flip(self) -> None:
        """Say that the rules were wrong, or right after all."""
        self._background.call(lambda: self._service.flip(self._message), self._flipped, self._refused)

    def _flipped(self, receipt: Receipt) -> None:
        said = "You say it was asked again" if receipt.signal.value else "You say nothing was asked again"
        fate = f" · {receipt.fate.text}" if receipt.fate is not None else ""
        self.notify(said + fate, timeout=4, markup=False)
        self._changed()
        self._load()

    def _load(self) -> None:
        self._background.call(lambda: self._service.story(self._message), self._show, self._refused)

    def _show(self, told: Story) -> None:
        self.query_one(Page).show(story_words.story(told))
        self.query_one(".sheet").border_subtitle = story_words.keys(told)

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)
