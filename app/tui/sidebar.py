"""The conversations: the last used first, with a line to find one by any word that was said in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, OptionList
from textual.widgets.option_list import Option

from app.tui import wording
from store.conversations import Conversation
from store.search import Hit


class Finder(Input):
    """Filters while one types; down and Enter go into the list."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("down", "app.focus_next", show=False)]


class ConversationList(OptionList):
    """The list itself."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "find", "find", key_display="/"),
        Binding("r", "rename", "rename"),
        Binding("d,delete", "delete", "delete", key_display="d"),
    ]

    def action_find(self) -> None:
        self.screen.query_one(Finder).focus()

    def action_rename(self) -> None:
        self._post(Sidebar.RenameAsked)

    def action_delete(self) -> None:
        self._post(Sidebar.DeleteAsked)

    def on_key(self, event: events.Key) -> None:
        if event.key == "up" and self.highlighted in (0, None):
            event.stop()
            event.prevent_default()
            self.screen.query_one(Finder).focus()

    def _post(self, kind: type[Sidebar.RenameAsked | Sidebar.DeleteAsked]) -> None:
        if self.highlighted is not None:
            chosen = self.get_option_at_index(self.highlighted).id
            if chosen is not None:
                self.post_message(kind(chosen))


class Sidebar(Vertical):
    """List and finder. It shows what it is given and reports what is wanted."""

    @dataclass
    class Opened(Message):
        """A conversation was chosen."""

        conversation: str

    @dataclass
    class RenameAsked(Message):
        """A conversation is to get another title."""

        conversation: str

    @dataclass
    class DeleteAsked(Message):
        """A conversation is to go."""

        conversation: str

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
        self._hits: dict[str, Hit] | None = None
        self._open: str | None = None
        self._busy: frozenset[str] = frozenset()

    def compose(self) -> ComposeResult:
        yield Finder(placeholder="find", compact=True)
        yield ConversationList(markup=False, compact=True)

    @property
    def titles(self) -> dict[str, str]:
        return {conversation.id: conversation.title for conversation in self._conversations}

    def show(self, conversations: Sequence[Conversation]) -> None:
        """All conversations, the last used first."""
        self._conversations = list(conversations)
        self._draw()

    def show_found(self, hits: Sequence[Hit] | None) -> None:
        """Only what a search found; None for everything."""
        self._hits = None if hits is None else {hit.conversation: hit for hit in reversed(hits)}
        self._draw()

    def mark(self, conversation: str | None, busy: frozenset[str]) -> None:
        """Say which one is open, and in which a reply is being written."""
        if (conversation, busy) != (self._open, self._busy):
            self._open, self._busy = conversation, busy
            self._draw()

    def focus_list(self) -> None:
        self.query_one(ConversationList).focus()

    def action_leave(self) -> None:
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
        if event.option.id is not None:
            self.query_one(Finder).value = ""
            self.post_message(self.Opened(event.option.id))

    def _draw(self) -> None:
        listing = self.query_one(ConversationList)
        kept = None
        if listing.highlighted is not None and listing.has_focus:
            kept = listing.get_option_at_index(listing.highlighted).id
        shown = [each for each in self._conversations if self._hits is None or each.id in self._hits]
        listing.clear_options()
        listing.add_options([Option(self._prompt(each), id=each.id) for each in shown])
        places = {each.id: place for place, each in enumerate(shown)}
        if places:
            listing.highlighted = places.get(kept or self._open or "", 0)

    def _prompt(self, conversation: Conversation) -> Content:
        mark = "◐ " if conversation.id in self._busy else "▌ " if conversation.id == self._open else "  "
        title = Content(mark + " ".join(conversation.title.split()))
        hit = (self._hits or {}).get(conversation.id)
        below = hit.excerpt if hit else wording.ago(conversation.updated)
        return title + Content("\n") + Content.styled(f"  {below}", wording.MUTED)
