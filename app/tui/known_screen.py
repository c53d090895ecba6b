"""What I know: every memory, rule and guard on one screen, each with its state and what was measured of it.

What a machine believes of a person has to be in that person's hands: one key changes it, one switches it off, one
forgets it for good. Forgetting is the one thing that cannot be taken back, so it takes the key twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.tui import wording
from app.tui.background import Background
from app.tui.dialogs import EditDialog, LineDialog
from app.tui.ports import ChatService
from store.errors import MynahError
from store.items import Item
from store.types import ItemKind, ItemState

NAMES = {ItemKind.MEMORY: "memory", ItemKind.INSTRUCTION: "rule", ItemKind.GUARD: "guard"}
EMPTY = "Nothing yet. What you tell of yourself in a chat is remembered; A adds something by hand."


class KnownScreen(ModalScreen[None]):
    """The list, and what can be done with the highlighted one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,ctrl+c", "dismiss", "back", key_display="Esc"),
        Binding("space", "switch", "on or off"),
        Binding("a", "add", "add"),
        Binding("f,delete", "forget", "forget"),
    ]

    def __init__(self, service: ChatService) -> None:
        super().__init__()
        self._service = service
        self._background = Background(self)
        self._items: list[Item] = []
        self._asked: str | None = None
        self._remarked: str | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="sheet small") as sheet:
            sheet.border_title = "What I know"
            sheet.border_subtitle = "Enter edits · Space on/off · A adds · F forgets · Esc back"
            yield OptionList(markup=False, compact=True)
            yield Static("", classes="explanation remark", markup=False)

    def on_mount(self) -> None:
        self.query_one(OptionList).focus()
        self._read()

    @on(OptionList.OptionHighlighted)
    def _moved(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        remarked, self._remarked = self._remarked, None
        if event.option.id not in (self._asked, remarked):
            self._asked = None
            item = self._picked
            self._say(EMPTY if item is None else about(item))

    @on(OptionList.OptionSelected)
    def _edit(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        item = self._picked
        if item is None:
            return
        if item.kind is ItemKind.GUARD:
            self._say(f"A guard is changed with: mynah guards edit {item.id} --set NAME=VALUE")
            return

        def save(text: str | None) -> None:
            if text is not None:
                body = {**item.body, "text": text}
                self._change(
                    lambda: self._service.edit_item(item.id, body), "Changed; what it said before is kept."
                )

        title = f"Edit this {NAMES[item.kind]}"
        explanation = (
            "From the next message on it says this; what it said before stays as its earlier version."
        )
        self.app.push_screen(EditDialog(title, item.text, explanation), save)

    def action_switch(self) -> None:
        """Switch the highlighted one on or off."""
        item = self._picked
        if item is None:
            return
        state = ItemState.OFF if item.state is ItemState.ACTIVE else ItemState.ACTIVE
        self._change(lambda: self._service.switch_item(item.id, state), f"Switched {state}.")

    def action_add(self) -> None:
        """Remember a line that is typed here."""

        def save(text: str | None) -> None:
            if text:
                self._change(lambda: self._service.add_item(ItemKind.MEMORY, {"text": text}), "Remembered.")

        self.app.push_screen(LineDialog("Remember", "", "In your words, such as: I live in Oslo."), save)

    def action_forget(self) -> None:
        """Ask once, then forget the highlighted one for good."""
        item = self._picked
        if item is None:
            return
        if self._asked != item.id:
            self._asked = item.id
            self._say("Forgotten for good, in all its versions and in backups: F again does it.")
            return
        self._asked = None
        self._change(lambda: self._service.forget_item(item.id), "Forgotten.")

    @property
    def _picked(self) -> Item | None:
        place = self.query_one(OptionList).highlighted
        return self._items[place] if place is not None and place < len(self._items) else None

    def _change(self, work: Callable[[], Any], then: str) -> None:
        def done(_result: Any) -> None:
            self._read(then)

        self._background.call(work, done, self._refused)

    def _read(self, remark: str = "") -> None:
        self._background.call(self._service.items, lambda found: self._show(found, remark), self._refused)

    def _show(self, found: list[Item], remark: str) -> None:
        order = list(ItemKind)
        self._items = sorted(found, key=lambda item: order.index(item.kind))
        listing = self.query_one(OptionList)
        kept = listing.highlighted or 0
        listing.clear_options()
        listing.add_options([Option(row(item), id=item.id) for item in self._items])
        if self._items:
            listing.highlighted = min(kept, len(self._items) - 1)
        item = self._picked
        self._remarked = item.id if item is not None and remark else None
        self._say(remark or (EMPTY if item is None else about(item)))

    def _say(self, line: str) -> None:
        self.query_one(".remark", Static).update(Content(line))

    def _refused(self, error: MynahError) -> None:
        self._say(str(error))


def row(item: Item) -> Content:
    """An item on one line."""
    on_ = item.state is ItemState.ACTIVE and not item.expired
    mark = ("● ", "$text-success") if on_ else ("○ ", "$text-warning")
    text = " ".join(item.text.split())
    return Content.assemble(mark, (f"{NAMES[item.kind]:<7}", wording.MUTED), text)


def about(item: Item) -> str:
    """Where an item is from, how it stands, and what it does."""
    state = "expired" if item.expired else item.state.value
    source = "read off your message" if item.source_message is not None else "typed by you"
    parts = [f"{state}, version {item.version}, {source} on {item.created[:10]}"]
    if item.expires is not None and not item.expired:
        parts.append(f"holds until {item.expires[:10]}")
    if item.effect is not None:
        parts.append(f"measured: {item.effect['with']:.0%} with it, {item.effect['without']:.0%} without")
    return "; ".join(parts)
