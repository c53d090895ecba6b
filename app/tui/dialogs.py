"""Small windows that ask for a text. They resolve to the text, or to None when they are closed without one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static, TextArea

from app.tui.composer import NEWLINE, UNDO, clean
from app.tui.paths import complete

NAMES = 12
"""Names that a path could go on with, as many as are shown."""


class Editor(TextArea):
    """A text area for a whole text: Enter is a newline, Tab leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding(UNDO, "undo", "Undo", show=False)]

    async def _on_key(self, event: events.Key) -> None:
        if event.key in NEWLINE:
            event = events.Key("enter", "\r")
        await super()._on_key(event)

    async def _on_paste(self, event: events.Paste) -> None:
        event.stop()
        event.prevent_default()
        if result := self._replace_via_keyboard(clean(event.text), *self.selection):
            self.move_cursor(result.end_location)


class EditDialog(ModalScreen[str | None]):
    """A text to change: Ctrl+S saves, Esc leaves everything as it was.

    Closing with unsaved changes asks for a second Esc, since a correction may have taken a while to write.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s,f8", "save", "save", key_display="^S", priority=True),
        Binding("escape", "leave", "leave", key_display="Esc", priority=True),
        Binding("ctrl+c", "copy_or_leave", show=False, priority=True),
    ]

    def __init__(self, title: str, text: str, explanation: str) -> None:
        super().__init__()
        self._title = title
        self._original = text
        self._explanation = explanation
        self._warned = False

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet") as sheet:
            sheet.border_title = Content(self._title)
            sheet.border_subtitle = "^S save · Esc leave"
            yield Static(self._explanation, classes="explanation", markup=False)
            yield Editor(self._original, soft_wrap=True, show_line_numbers=False, highlight_cursor_line=False)
            yield from self.below()

    def below(self) -> Iterable[Widget]:
        """What a particular editor shows under the text."""
        return ()

    def on_mount(self) -> None:
        editor = self.query_one(Editor)
        editor.focus()
        editor.move_cursor(editor.document.end)

    def action_save(self) -> None:
        text = self.query_one(Editor).text.strip()
        if not text:
            self._say("An empty text teaches nothing. Esc leaves everything as it was.")
        elif text == self._original.strip():
            self._say("Nothing is changed yet. Esc leaves everything as it was.")
        else:
            self.dismiss(text)

    def action_leave(self) -> None:
        changed = self.query_one(Editor).text.strip() != self._original.strip()
        if changed and not self._warned:
            self._warned = True
            self._say("Your changes are not saved. ^S saves them, Esc again drops them.")
        else:
            self.dismiss(None)

    def action_copy_or_leave(self) -> None:
        selected = self.query_one(Editor).selected_text
        if selected:
            self.app.copy_to_clipboard(selected)
        else:
            self.action_leave()

    def _say(self, line: str) -> None:
        self.query_one(".explanation", Static).update(Content(line))


class LineDialog(ModalScreen[str | None]):
    """One line to write: Enter saves, Esc leaves."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "dismiss(None)", "leave", key_display="Esc", priority=True)
    ]

    def __init__(self, title: str, text: str, explanation: str) -> None:
        super().__init__()
        self._title = title
        self._text = text
        self._explanation = explanation

    def compose(self) -> ComposeResult:
        from textual.widgets import Input

        with Vertical(classes="sheet line") as sheet:
            sheet.border_title = Content(self._title)
            sheet.border_subtitle = "Enter saves · Esc leaves"
            yield Static(self._explanation, classes="explanation", markup=False)
            yield Input(self._text, select_on_focus=False)

    def on_input_submitted(self) -> None:
        from textual.widgets import Input

        self.dismiss(self.answer(self.query_one(Input).value.strip()))

    def answer(self, text: str) -> str | None:
        """What a line comes to: an empty one is no answer."""
        return text or None


class PathDialog(LineDialog):
    """A path to write: Tab completes it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("tab", "complete", show=False, priority=True)]

    def action_complete(self) -> None:
        """Go on as far as it is certain, and say what there is where it is not."""
        from textual.widgets import Input

        box = self.query_one(Input)
        completed = complete(box.value)
        box.value = completed.text
        box.cursor_position = len(box.value)
        names = "  ".join(completed.names[:NAMES])
        more = len(completed.names) - NAMES
        said = f"{names}  … and {more} more" if more > 0 else names
        self.query_one(".explanation", Static).update(Content(said or self._explanation))
