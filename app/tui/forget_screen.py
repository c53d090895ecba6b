"""Forgetting a conversation: first what it will undo, then one key that does it. Nothing takes it back."""

from __future__ import annotations

from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.tui.background import Background, Finished
from app.tui.pages import Look, Page, line
from app.tui.ports import ChatService
from store.errors import MynahError
from store.types import Scope


class ForgetScreen(ModalScreen[bool]):
    """Resolves to True once the conversation is being forgotten, to False where everything stays."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,n,ctrl+c", "dismiss(False)", "keep it", key_display="Esc"),
        Binding("y", "forget", "forget it"),
    ]

    def __init__(self, service: ChatService, conversation: str, title: str) -> None:
        super().__init__()
        self._service = service
        self._conversation = conversation
        self._title = title
        self._background = Background(self)
        self._known = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small danger") as sheet:
            sheet.border_title = "Forget for good"
            sheet.border_subtitle = "Esc keeps it"
            yield Static(Content(" ".join(self._title.split())), classes="explanation", markup=False)
            yield Page()

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self._page([line(Look.NOTE, "looking what this will undo…")])
        self._background.call(
            lambda: self._service.forget_preview(Scope.CONVERSATION, self._conversation),
            self._show,
            self._refused,
        )

    @on(Finished)
    def _finished(self, event: Finished) -> None:
        event.deliver()

    def _show(self, preview: Any) -> None:
        self._known = True
        told = [line(Look.TEXT, text) for text in str(preview.text).splitlines()]
        self._page([line(Look.HEADING, "This will undo"), *told])
        self.query_one(".sheet").border_subtitle = "Y forgets it · Esc keeps it"

    def action_forget(self) -> None:
        """Only once the owner could read what it undoes."""
        if not self._known:
            return
        self._known = False
        self._background.call(
            lambda: self._service.forget(Scope.CONVERSATION, self._conversation), self._done, self._refused
        )

    def _done(self, _: Any) -> None:
        self.app.notify("Forgotten. What was learned from it is taken back.", timeout=5, markup=False)
        self.dismiss(True)

    def _refused(self, error: MynahError) -> None:
        self._page([line(Look.TEXT, (str(error), "$text-warning"))])
        self.query_one(".sheet").border_subtitle = "Esc keeps it"

    def _page(self, lines: list[Any]) -> None:
        self.query_one(Page).show(lines)
