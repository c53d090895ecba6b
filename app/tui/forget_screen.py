"""Forgetting a conversation: first what it will undo, then one key that does it. Nothing takes it back."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from app.counting import counted
from app.tui import wording
from app.tui.background import Background
from app.tui.pages import Line, Look, Page, line
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
        self._background.call(self._look, self._show, self._refused)

    def _look(self) -> list[Line]:
        preview = self._service.forget_preview(Scope.CONVERSATION, self._conversation)
        after = None if preview.serving is None else self._service.adapter(preview.serving).adapter.version
        return undone(preview, after)

    def _show(self, told: list[Line]) -> None:
        self._known = True
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

    def _page(self, lines: list[Line]) -> None:
        self.query_one(Page).show(lines)


def undone(preview: Any, serving: int | None) -> list[Line]:
    """What a request would undo, for people. ``serving`` is the version that answers then; None for the base."""
    gone = [
        counted(preview.messages, "message"),
        counted(preview.ratings, "rating or correction", "ratings and corrections"),
    ]
    lines = [line(Look.ITEM, f"{' and '.join(gone)} are erased.")]
    if preview.versions:
        names = ", ".join(f"v{version}" for version in preview.versions)
        what = "that version is" if len(preview.versions) == 1 else "those versions are"
        lines.append(line(Look.ITEM, f"{names} saw it: {what} deleted."))
    if preview.serving_moves:
        lines.append(line(Look.ITEM, f"{wording.version_name(serving)} answers from the next message on."))
    if preview.retrain:
        lines.append(line(Look.ITEM, "What else was learned with it is learned anew, without it."))
    for path in preview.backups:
        reason = preview.unreached.get(path)
        told = (
            "is written anew without it." if reason is None else f"keeps it ({reason}): delete it yourself."
        )
        lines.append(line(Look.ITEM, f"The backup {path} {told}"))
    return lines
