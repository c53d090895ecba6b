"""What was learned: each version, what it learned from, how it did in its test, and the keys to choose another.

Choosing is one small row in the store, so it works while a model loads, and each choice can be taken back here.
The list on the left is the line of descent, the newest on top. Beside it are four pages on the chosen version: its
story, its replies beside those of the version before it, what happened when, and how content the owner was.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import ClassVar, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import Screen
from textual.widgets import OptionList, TabbedContent, TabPane

from app.service import AdapterDetail, Snapshot
from app.tui import lineage, timeline_words
from app.tui.background import Background
from app.tui.compare import CompareView
from app.tui.key_line import Key, KeyLine
from app.tui.pages import Page
from app.tui.ports import ChatService
from app.tui.satisfaction import Satisfaction
from app.tui.shelf import BASE, NEXT, Shelf, VersionList
from app.tui.strength import Strength
from store.adapters import Adapter, Serving
from store.errors import MynahError
from store.types import AdapterState, UnitUse

T = TypeVar("T")
STACKED = 80
LOOK_SECONDS = 1.0
KEYS = (
    Key("Esc", "back", "leave"),
    Key("Enter", "let it answer", "use"),
    Key("C", "before/after", "compare"),
    Key("← →", "strength", "strength(1)"),
    Key("F9", "roll back", "rollback"),
    Key("P", "pin", "pin"),
    Key("1-4", "pages", "turn"),
    Key("F1", "help", "app.help"),
)


class Pane(StrEnum):
    """The pages beside the list, by their keys' order."""

    STORY = "story"
    COMPARE = "compare"
    TIMELINE = "timeline"
    SATISFACTION = "satisfaction"


class Against(StrEnum):
    """What a version's replies are shown beside."""

    PARENT = "the version before it"
    BASE = "the base model"


_TITLES = {
    Pane.STORY: "1 Story",
    Pane.COMPARE: "2 Before/after",
    Pane.TIMELINE: "3 Timeline",
    Pane.SATISFACTION: "4 Satisfaction",
}


class AdaptersScreen(Screen[None]):
    """A list of versions beside the pages of the chosen one. ``chosen`` hears what the owner let answer."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave"),
        Binding("f3,q", "dismiss"),
        Binding("u", "use"),
        Binding("c", "compare"),
        Binding("b", "against_base"),
        Binding("f9", "rollback"),
        Binding("p", "pin"),
        *(Binding(str(place), f"pane('{pane}')") for place, pane in enumerate(Pane, 1)),
        Binding("f1", "app.help"),
    ]
    AUTO_FOCUS = "VersionList"

    def __init__(self, service: ChatService, chosen: Callable[[Serving], None]) -> None:
        super().__init__()
        self._service = service
        self._tell_chosen = chosen
        self._background = Background(self)
        self._shelf: Shelf | None = None
        self._shown: str | None = None
        self._detail: AdapterDetail | None = None
        self._against = Against.PARENT

    def compose(self) -> ComposeResult:
        with Horizontal(id="versions"):
            with Vertical(id="shelf"):
                yield VersionList(markup=False, compact=True)
                yield Strength()
            with TabbedContent(id="pages"):
                with TabPane(_TITLES[Pane.STORY], id=Pane.STORY):
                    yield Page("detail")
                with TabPane(_TITLES[Pane.COMPARE], id=Pane.COMPARE):
                    yield CompareView(self._service)
                with TabPane(_TITLES[Pane.TIMELINE], id=Pane.TIMELINE):
                    yield Page("moments")
                with TabPane(_TITLES[Pane.SATISFACTION], id=Pane.SATISFACTION):
                    yield Satisfaction()
        yield KeyLine(KEYS)

    def on_mount(self) -> None:
        self.query_one("#shelf").border_title = "Versions"
        self._strength.show(None)
        self._load()
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(event.size.width < STACKED, "-narrow")

    # The chosen version

    @on(OptionList.OptionHighlighted)
    def _highlighted(self, event: OptionList.OptionHighlighted) -> None:
        wanted, shelf = event.option.id, self._shelf
        if wanted is None or shelf is None:
            return
        self._shown, self._detail = wanted, None
        self._strength.show(shelf.serving.scale if wanted == shelf.live and wanted != BASE else None)
        if wanted == NEXT:
            self._page.show(lineage.next_story(shelf.learning, shelf.waiting, shelf.refused))
        elif wanted == BASE:
            tally = shelf.tallies.get(None)
            self._page.show(lineage.base_story(shelf.serving, len(shelf.adapters), tally))
        else:
            self._call(lambda: self._service.adapter(wanted), self._tell_story)

    def _tell_story(self, detail: AdapterDetail) -> None:
        if detail.adapter.id == self._shown and self._shelf is not None:
            self._detail = detail
            self._page.show(lineage.story(detail, self._shelf.tallies.get(detail.adapter.id)))
            self._prepare_comparison(detail)

    def _prepare_comparison(self, detail: AdapterDetail) -> None:
        """A question that the version was taught, and better one that it was only tested on."""
        shelf = self._shelf
        assert shelf is not None
        order = {UnitUse.HELD_OUT: 0, UnitUse.TRAINED: 1, UnitUse.REPLAYED: 2}
        asked = sorted(detail.taught, key=lambda each: order[each.use])
        question = " ".join(asked[0].question.split()) if asked else ""
        parent = shelf.version(detail.adapter.parent) if self._against is Against.PARENT else None
        if parent is not None and parent.state is AdapterState.DELETED:
            parent = None
        self.query_one(CompareView).choose(parent, detail.adapter, question)

    # What can be done

    @on(OptionList.OptionSelected)
    def _selected(self) -> None:
        self.action_use()

    def action_leave(self) -> None:
        """Back into the list, and from there to the chat."""
        listing = self.query_one(VersionList)
        if listing.has_focus:
            self.dismiss()
        else:
            listing.focus()

    def action_pane(self, pane: str) -> None:
        """Show one of the pages."""
        self.query_one(TabbedContent).active = pane

    def action_turn(self) -> None:
        """Show the next page."""
        panes = [str(pane) for pane in Pane]
        place = panes.index(self.query_one(TabbedContent).active)
        self.action_pane(panes[(place + 1) % len(panes)])

    def action_use(self) -> None:
        """Let the highlighted version answer from the next turn on."""
        wanted = None if self._shown == BASE else self._shown
        if self._shown == NEXT:
            self.notify("It is not made yet. ^L in the chat makes it now.", timeout=4, markup=False)
        elif self._shown is not None:
            self._call(lambda: self._service.use(wanted), self._used)

    def action_strength(self, steps: int) -> None:
        """Move the slider of the version that answers now."""
        if self._strength.display:
            self._strength.move(steps)
        else:
            self.notify("Strength is that of the version that answers now.", timeout=3, markup=False)

    @on(Strength.Chosen)
    def _strength_chosen(self, event: Strength.Chosen) -> None:
        shelf = self._shelf
        if shelf is None or shelf.live == BASE or event.value == shelf.serving.scale:
            return
        live = shelf.live
        self._call(lambda: self._service.use(live, event.value), self._used)

    def action_compare(self) -> None:
        """Ask the version and the one before it the same question."""
        if self._detail is None:
            self.notify("Choose a version: its replies are shown beside the ones before it.", markup=False)
        elif self._detail.adapter.state is AdapterState.DELETED:
            self.notify("The files of this version are deleted.", severity="warning", markup=False)
        else:
            self.action_pane(Pane.COMPARE)
            self.query_one(CompareView).ask()

    def action_against_base(self) -> None:
        """Compare with the base model instead of the version before, or the other way round."""
        self._against = Against.BASE if self._against is Against.PARENT else Against.PARENT
        if self._detail is not None:
            self._prepare_comparison(self._detail)
        self.notify(f"Compared with {self._against}", timeout=3, markup=False)

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

    # What is shown

    def _look(self) -> None:
        """A run goes on, and others may choose too: what is shown follows."""
        if self._shelf is not None:
            self._call(self._service.snapshot, self._seen)

    def _seen(self, snapshot: Snapshot) -> None:
        shelf = self._shelf
        if shelf is not None and (snapshot.learning, snapshot.serving) != (shelf.learning, shelf.serving):
            self._load()
        elif snapshot.learning.run is not None and shelf is not None:
            self._retell_next(shelf)

    def _retell_next(self, shelf: Shelf) -> None:
        """The time that is left passes by itself."""
        self.query_one(VersionList).replace_option_prompt(NEXT, lineage.next_row(shelf.learning))

    def _load(self) -> None:
        self._call(lambda: Shelf.read(self._service), self._show)

    def _show(self, shelf: Shelf) -> None:
        self._shelf = shelf
        options = shelf.options()
        listing = self.query_one(VersionList)
        listing.clear_options()
        listing.add_options(options)
        places = [option.id for option in options]
        wanted = self._shown if self._shown in places else shelf.live
        listing.highlighted = places.index(wanted) if wanted in places else 0
        self.query_one("#moments", Page).show(
            [
                *timeline_words.since_yesterday(shelf.yesterday),
                *timeline_words.timeline(shelf.record.moments),
            ]
        )
        self.query_one(Satisfaction).show(shelf.record)

    @property
    def _page(self) -> Page:
        return self.query_one("#detail", Page)

    @property
    def _strength(self) -> Strength:
        return self.query_one(Strength)

    def _call(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        self._background.call(work, then, self._refused)

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)
