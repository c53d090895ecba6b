"""The page behind F1: the key table, and in a few sentences how the chat learns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.table import Table
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

from app.tui.keys import WRITING, Command

_LEARNING = (
    "Rate a reply, or better: correct it. After a few of these Mynah trains a small adapter in the background, "
    "tests it on what it was not trained on, and only if it passes the next reply comes from the new version. "
    "The line under a reply says what became of your rating. F3 shows every version and what it learned from; "
    "F9 goes back to the one before. Everything stays on this machine."
)


class HelpScreen(ModalScreen[None]):
    """Keys and how learning works; any of Esc, F1, q or Enter closes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,enter", "dismiss", "close", key_display="Esc")
    ]

    def __init__(self, commands: Sequence[Command]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="sheet") as sheet:
            sheet.border_title = "Mynah"
            sheet.border_subtitle = "Esc closes"
            yield Static(Text("Writing", style="bold"), classes="heading")
            yield Static(_table(WRITING))
            yield Static(Text("Commands", style="bold"), classes="heading")
            yield Static(_table(tuple(map(_row, self._commands))))
            yield Static(Text("Learning", style="bold"), classes="heading")
            yield Static(Text(_LEARNING))

    def on_mount(self) -> None:
        self.query_one(VerticalScroll).focus()


def _row(command: Command) -> tuple[str, str]:
    """A command by its key where it has one; the name works everywhere."""
    if not command.shown:
        return f"/{command.name}", command.help
    return command.shown, f"{command.help} (/{command.name})"


def _table(rows: tuple[tuple[str, str], ...]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=False, max_width=20)
    table.add_column(ratio=1)
    for keys, meaning in rows:
        table.add_row(Text(keys), Text(meaning))
    return table
