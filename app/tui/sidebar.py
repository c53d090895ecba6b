"""The conversations: pinned ones, then the last used first, with a line to find one by what was said in it.

It shows what it is given and reports what is wanted; nothing here touches the store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from app.tui import wording
from store.conversations import Conversation
from store.search import Hit

ARCHIVE = "archive"
HINT = "p pin  a archive  d delete\nt tags  r rename  v privacy"


class Deed(StrEnum):
    """What can be done to a conversation from the list."""

    RENAME = "rename"
    DELETE = "delete"
    PIN = "pin"
    ARCHIVE = "archive"
    TAG = "tag"
    DIALS = "dials"


class Finder(Input):
    """Filters while one types; down and Enter go into the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "app.focus_next", show=False)]


class ConversationList(OptionList):
    """The list itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "find", key_display="/"),
        Binding("r", "do('rename')", "rename"),
        Binding("d,delete", "do('delete')", "delete", key_display="d"),
        Binding("p", "do('pin')", "pin"),
        Binding("a", "do('archive')", "archive"),
        Binding("t", "do('tag')", "tags"),
        Binding("v", "do('dials')", "privacy"),
    ]

    def action_find(self) -> None:
        self.screen.query_one(Finder).focus()

    def action_do(self, deed: str) -> None:
        if self.highlighted is not None:
            chosen = self.get_option_at_index(self.highlighted).id
            if chosen is not None and chosen != ARCHIVE:
                self.post_message(Sidebar.Wanted(chosen, Deed(deed)))

    def on_key(self, event: events.Key) -> None:
        if event.key == "up" and self.highlighted in (0, None):
            event.stop()
            event.prevent_default()
            self.screen.query_one(Finder).focus()


class Sidebar(Vertical):
    """List and finder."""

    @dataclass
    class Opened(Message):
        """A conversation was chosen, with the message that was found in it where that is why."""

        conversation: str
        message: str | None

    @dataclass
    class Wanted(Message):
        """Something is to be done to a conversation."""

        conversation: str
        deed: Deed

    @dataclass
    class Sought(Message):
        """The words to find changed; empty for all conversations."""

        words: str

    @dataclass
    class Left(Message):
        """The owner is done here."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "back", key_display="Esc")]

    def __init__(self) -> None:
        super().__init__()
        self._conversations: list[Conversation] = []
        self._archived: list[Conversation] = []
        self._in_archive = False
        self._hits: dict[str, Hit] | None = None
        self._open: str | None = None
        self._busy: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        yield Finder(placeholder="find", compact=True)
        yield Static("", classes="hint", markup=False)
        yield ConversationList(markup=False, compact=True)

    def on_mount(self) -> None:
        self.say("")

    def conversation(self, conversation: str) -> Conversation | None:
        """One of those that are listed or archived."""
        return next(
            (each for each in (*self._conversations, *self._archived) if each.id == conversation), None
        )

    @property
    def titles(self) -> dict[str, str]:
        return {each.id: each.title for each in (*self._conversations, *self._archived)}

    def show(self, conversations: Sequence[Conversation], archived: Sequence[Conversation] = ()) -> None:
        """All conversations in the order of the list, and those that are out of it."""
        self._conversations, self._archived = list(conversations), list(archived)
        self._in_archive = self._in_archive and bool(archived)
        self._draw()

    def show_found(self, hits: Sequence[Hit] | None) -> None:
        """Only what a search found; None for everything."""
        self._hits = None if hits is None else {hit.conversation: hit for hit in reversed(hits)}
        self.say("" if hits is None or hits else "nothing found")
        self._draw()

    def say(self, line: str) -> None:
        """A remark under the finder; none brings the keys of the list back."""
        shown = line or (HINT if self.has_focus_within else "")
        hint = self.query_one(".hint", Static)
        hint.display = bool(shown)
        hint.update(Content(shown))

    def mark(self, conversation: str | None, busy: frozenset[str]) -> None:
        """Say which one is open, and in which a reply is being written."""
        if (conversation, busy) != (self._open, self._busy):
            self._open, self._busy = conversation, busy
            self._draw()

    def focus_list(self) -> None:
        self.query_one(ConversationList).focus()

    def on_descendant_focus(self) -> None:
        self.say("")

    def on_descendant_blur(self) -> None:
        self.call_after_refresh(self.say, "")

    def action_leave(self) -> None:
        self._in_archive = False
        self.query_one(Finder).value = ""
        self.post_message(self.Left())

    @on(Input.Changed)
    def _sought(self, event: Input.Changed) -> None:
        event.stop()
        self.post_message(self.Sought(event.value.strip()))

    @on(Input.Submitted)
    def _to_list(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_list()

    @on(OptionList.OptionSelected)
    def _chosen(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        chosen = event.option.id
        if chosen == ARCHIVE:
            self._in_archive = not self._in_archive
            self._draw()
        elif chosen is not None:
            hit = (self._hits or {}).get(chosen)
            self.query_one(Finder).value = ""
            self.post_message(self.Opened(chosen, None if hit is None else hit.message))

    def _draw(self) -> None:
        listing = self.query_one(ConversationList)
        kept = None
        if listing.highlighted is not None and listing.has_focus:
            kept = listing.get_option_at_index(listing.highlighted).id
        options = self._found() if self._hits is not None else self._all()
        listing.clear_options()
        listing.add_options(options)
        places = {option.id: place for place, option in enumerate(options)}
        if places:
            listing.highlighted = places.get(kept, places.get(self._open, 0))

    def _all(self) -> list[Option]:
        shown = self._archived if self._in_archive else self._conversations
        options = [Option(self._prompt(each), id=each.id) for each in shown]
        if self._archived:
            number = len(self._archived)
            words = "▴ back to the conversations" if self._in_archive else f"▾ archive ({number})"
            options.append(Option(Content.styled(f"  {words}", wording.MUTED), id=ARCHIVE))
        return options

    def _found(self) -> list[Option]:
        """Hits in the order of the list; those it does not hold (archived, or far down) after them."""
        hits = dict(self._hits or {})
        options = []
        for each in self._conversations:
            hit = hits.pop(each.id, None)
            if hit is not None:
                options.append(Option(self._prompt(each, hit.excerpt), id=each.id))
        for hit in hits.values():
            title = Content("  " + " ".join(hit.title.split()))
            options.append(Option(title + _second(hit.excerpt), id=hit.conversation))
        return options

    def _prompt(self, conversation: Conversation, excerpt: str | None = None) -> Content:
        mark = "◐ " if conversation.id in self._busy else "▌ " if conversation.id == self._open else "  "
        title = Content(mark + " ".join(conversation.title.split()))
        if conversation.pinned is not None:
            title = Content.assemble(mark, ("★ ", "$text-accent"), " ".join(conversation.title.split()))
        if excerpt is not None:
            return title + _second(excerpt)
        tags = "".join(f" #{tag}" for tag in conversation.tags)
        return title + _second(wording.ago(conversation.updated) + tags)


def _second(text: str) -> Content:
    return Content("\n") + Content.styled(f"  {text}", wording.MUTED)
