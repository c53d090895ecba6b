"""What was learned: each version, what it learned from, how it did in its test, and the keys to choose another.

Choosing is one small row in the store, so it works while a model loads, and each choice can be taken back here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.screen import Screen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.service import AdapterDetail, LearningStatus, Taught
from app.tui import lineage
from app.tui.background import Background, Finished
from app.tui.key_line import Key, KeyLine
from app.tui.ports import ChatService
from store.adapters import Adapter, Serving
from store.errors import MynahError
from store.types import UnitUse
from store.units import Unit

T = TypeVar("T")
BASE = "base"
NEXT = "next"
SHOWN_UNITS = 30
STACKED = 80
KEYS = (
    Key("Esc", "back", "dismiss"),
    Key("Enter", "let it answer", "use"),
    Key("F9", "roll back", "rollback"),
    Key("P", "pin", "pin"),
    Key("F1", "help", "app.help"),
)


@dataclass(frozen=True)
class Shelf:
    """All versions, which one answers, which one is pinned, and what the next one would learn from."""

    adapters: list[Adapter]
    serving: Serving
    pinned: str | None
    learning: LearningStatus
    waiting: list[Taught]
    refused: list[Taught]

    @classmethod
    def read(cls, service: ChatService) -> Shelf:
        """Everything the screen shows, in one go."""
        learning = service.snapshot().learning
        return cls(
            service.adapters(),
            service.serving(),
            service.pinned(),
            learning,
            [_lesson(service, unit) for unit in learning.waiting[:SHOWN_UNITS]],
            [_lesson(service, unit) for unit in learning.refused[:SHOWN_UNITS]],
        )


def _lesson(service: ChatService, unit: Unit) -> Taught:
    reply = service.message(unit.message).message
    question = service.message(reply.parent).message.text if reply.parent else ""
    return Taught(unit, UnitUse.TRAINED, question, reply.text)


class AdaptersScreen(Screen[None]):
    """A list of versions beside the story of the chosen one. ``chosen`` hears what the owner let answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f3,q", "dismiss"),
        Binding("u", "use"),
        Binding("f9,r", "rollback"),
        Binding("p", "pin"),
        Binding("f1", "app.help"),
    ]
    AUTO_FOCUS = "OptionList"

    def __init__(self, service: ChatService, chosen: Callable[[Serving], None]) -> None:
        super().__init__()
        self._service = service
        self._tell_chosen = chosen
        self._background = Background(self)
        self._shelf: Shelf | None = None
        self._shown: str | None = None

    def compose(self) -> ComposeResult:
        with Horizontal(id="versions"):
            yield OptionList(id="shelf", markup=False, compact=True)
            with VerticalScroll(id="story", can_focus=False):
                yield Static("", id="detail", markup=False)
        yield KeyLine(KEYS)

    def on_mount(self) -> None:
        self.query_one("#shelf").border_title = "Versions"
        self.query_one("#story").border_title = "What it learned"
        self._load()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < STACKED, "-narrow")

    @on(Finished)
    def _finished(self, event: Finished) -> None:
        event.deliver()

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        wanted = event.option.id
        if wanted is None or self._shelf is None:
            return
        self._shown = wanted
        if wanted == NEXT:
            self._detail.update(
                lineage.next_story(self._shelf.learning, self._shelf.waiting, self._shelf.refused)
            )
        elif wanted == BASE:
            self._detail.update(lineage.base_story(self._shelf.serving, len(self._shelf.adapters)))
        else:
            self._call(lambda: self._service.adapter(wanted), self._tell_story)
        self.query_one("#story", VerticalScroll).scroll_home(animate=False)

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_use()

    def action_use(self) -> None:
        """Let the highlighted version answer from the next turn on."""
        wanted = None if self._shown == BASE else self._shown
        if self._shown == NEXT:
            self.notify("It is not made yet. ^L in the chat makes it now.", timeout=4, markup=False)
        elif self._shown is not None:
            self._call(lambda: self._service.use(wanted), self._used)

    def action_rollback(self) -> None:
        def back(result: tuple[Adapter, Serving]) -> None:
            self._used(result[1])

        self._call(self._service.rollback, back)

    def action_pin(self) -> None:
        """Keep the highlighted version whatever is learned, or let go of it again."""
        shelf, wanted = self._shelf, self._shown
        if shelf is None or wanted is None or wanted == NEXT:
            return
        if wanted == BASE:
            self.notify("The base model cannot be pinned; `mynah learn pause` keeps it.", markup=False)
            return
        target = None if shelf.pinned == wanted else wanted

        def pinned(_: None) -> None:
            self.notify(
                "Pinned: it answers until you unpin it" if target else "Unpinned", timeout=3, markup=False
            )
            self._load()

        self._call(partial(self._service.pin, target), pinned)

    def _used(self, serving: Serving) -> None:
        self._tell_chosen(serving)
        self.notify(lineage.now_answers(serving), timeout=4, markup=False)
        self._load()

    def _load(self) -> None:
        self._call(lambda: Shelf.read(self._service), self._show)

    def _show(self, shelf: Shelf) -> None:
        self._shelf = shelf
        live = shelf.serving.adapter.id if shelf.serving.adapter else BASE
        options = []
        if shelf.waiting or shelf.refused or shelf.learning.run is not None:
            options.append(Option(lineage.next_row(shelf.learning), id=NEXT))
        options += [
            Option(
                lineage.version_row(adapter, adapter.id == live, adapter.id == shelf.pinned), id=adapter.id
            )
            for adapter in shelf.adapters
        ]
        options.append(Option(lineage.base_row(live == BASE), id=BASE))
        listing = self.query_one("#shelf", OptionList)
        listing.clear_options()
        listing.add_options(options)
        places = [option.id for option in options]
        wanted = self._shown if self._shown in places else live
        listing.highlighted = places.index(wanted) if wanted in places else 0

    def _tell_story(self, detail: AdapterDetail) -> None:
        if detail.adapter.id == self._shown:
            self._detail.update(lineage.story(detail))

    @property
    def _detail(self) -> Static:
        return self.query_one("#detail", Static)

    def _call(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._background.call(work, then, self._refused)

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)
