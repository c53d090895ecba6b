"""The conversation on the screen: a window of its newest messages, and the reply that is being written.

A chat that stays open all day grows without end while a terminal shows forty lines, so only ``WINDOW``
messages are mounted; earlier ones come when somebody scrolls up to them. The transcript follows new text only
while its end is in view: whoever reads further up is left in peace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Markdown, Static

from app.service import ThreadMessage
from app.tui import wording
from app.tui.markdown import ChatMarkdown, PacedMarkdown
from store.conversations import Conversation
from store.types import MessageStatus, Role

WINDOW = 30
REACH = 300
"""Messages up to which a jump mounts what lies between: 2 s of work at the most."""
FEW = 6
FLASH_SECONDS = 2.0
LONG_QUESTION = 1500


class QuestionView(Static):
    """What the owner wrote. A very long text is shown in part; a click shows the rest."""

    def __init__(self, text: str) -> None:
        super().__init__("", markup=False, classes="question")
        self.text = text
        self._whole = len(text) <= LONG_QUESTION

    def on_mount(self) -> None:
        self._draw()

    def on_click(self) -> None:
        if not self._whole:
            self._whole = True
            self._draw()

    def _draw(self) -> None:
        if self._whole:
            self.update(Content(self.text))
            return
        rest = len(self.text) - LONG_QUESTION
        self.update(
            Content(f"{self.text[:LONG_QUESTION]}… ").append_text(f"({rest:,} more characters)", "dim")
        )


class ReplyView(Vertical, can_focus=True, can_focus_children=False):
    """One reply with the line that says which version gave it and what became of its rating."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sibling(-1)", show=False),
        Binding("right", "sibling(1)", show=False),
        Binding("escape", "pick(1000)", show=False),
        Binding("up,shift+tab,k", "pick(-1)", show=False),
        Binding("down,tab,j", "pick(1)", show=False),
    ]

    @dataclass
    class SiblingAsked(Message):
        """Another answer to the same question is wanted."""

        view: ReplyView
        step: int

    @dataclass
    class PickAsked(Message):
        """The reply before or after this one is wanted."""

        view: ReplyView
        step: int

    @dataclass
    class Typed(Message):
        """A printable key while a reply has the focus: it belongs into the composer."""

        key: events.Key

    def __init__(self, entry: ThreadMessage | None, text: str = "") -> None:
        super().__init__(classes="reply")
        self.entry = entry
        self._body = ChatMarkdown(entry.message.text if entry else "")
        self._meta = Static("", markup=False, classes="meta")
        self._stream: PacedMarkdown | None = None
        self._first = text

    def compose(self) -> ComposeResult:
        yield self._body
        yield self._meta

    def on_mount(self) -> None:
        if self.entry is not None:
            self._settle(self.entry)
        elif self._first:
            self.write(self._first)

    @property
    def text(self) -> str:
        return self.entry.message.text if self.entry else self._body.source

    def write(self, text: str) -> None:
        """Add streamed text."""
        if self._stream is None:
            self._stream = PacedMarkdown(self._body)
        self._stream.write(text)

    def say(self, line: str) -> None:
        """Put a passing remark on the meta line: waiting, thinking."""
        self._meta.update(Content(line))

    async def finish(self, entry: ThreadMessage) -> None:
        """The reply is over: show it as it is stored."""
        if self._stream is not None:
            await self._stream.finish(entry.message.text)
            self._stream = None
        elif self._body.source != entry.message.text:
            await self._body.update(entry.message.text)
        self._settle(entry)

    def refresh_entry(self, entry: ThreadMessage) -> None:
        """The reply is the same, what is known about it changed."""
        if entry != self.entry:
            self._settle(entry)

    async def on_unmount(self) -> None:
        if self._stream is not None:
            await self._stream.cancel()

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        event.stop()
        self.app.copy_to_clipboard(event.href)
        self.notify(f"Copied the address {event.href}", markup=False)

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character not in ("j", "k"):
            event.stop()
            self.post_message(self.Typed(event))

    def action_sibling(self, step: int) -> None:
        self.post_message(self.SiblingAsked(self, step))

    def action_pick(self, step: int) -> None:
        self.post_message(self.PickAsked(self, step))

    def _settle(self, entry: ThreadMessage) -> None:
        self.entry = entry
        self.set_class(entry.message.status is MessageStatus.FAILED, "-failed")
        self._meta.update(wording.meta_line(entry))


class Welcome(Static):
    """What an empty conversation shows."""


class Complaint(Static):
    """Why there is no reply, under the question it concerns. Never a traceback."""


class Transcript(VerticalScroll, can_focus=False):
    """Messages top to bottom, with a welcome while there are none."""

    def __init__(self) -> None:
        super().__init__()
        self._earlier: list[ThreadMessage] = []
        self._loading = False
        self._latest: Conversation | None = None

    def on_mount(self) -> None:
        self.anchor()

    @property
    def replies(self) -> list[ReplyView]:
        return list(self.query(ReplyView))

    @property
    def picked(self) -> ReplyView | None:
        """The reply that has the focus, else the last one."""
        focused = self.screen.focused
        if isinstance(focused, ReplyView):
            return focused
        replies = self.replies
        return replies[-1] if replies else None

    async def show(self, entries: Sequence[ThreadMessage]) -> None:
        """Show another conversation, or this one along another branch."""
        self._earlier = list(entries[:-WINDOW])
        views = [_view(entry) for entry in entries[-WINDOW:]]
        with self.app.batch_update():
            await self.remove_children()
            if views:
                await self.mount_all([*self._more(), *views])
            else:
                await self.mount(Welcome(wording.welcome(self._latest), markup=False))
        self.anchor()

    async def reveal(self, from_end: int) -> bool:
        """Bring a message into view and set it off for a moment; False where it is too far up.

        ``from_end`` counts from the last one, which is 0.
        """
        missing = from_end + 1 - len(self._messages)
        if missing > REACH:
            return False
        if missing > 0:
            take = missing + FEW
            batch, self._earlier = self._earlier[-take:], self._earlier[:-take]
            await self.query(".earlier").remove()
            await self.mount_all([*self._more(), *(_view(entry) for entry in batch)], before=0)
        view = self._messages[-1 - from_end]
        self.release_anchor()
        view.add_class("-found")
        view.set_timer(FLASH_SECONDS, partial(view.remove_class, "-found"))
        self.call_after_refresh(self.scroll_to_widget, view, top=True, animate=False)
        if isinstance(view, ReplyView):
            view.focus(scroll_visible=False)
        return True

    @property
    def _messages(self) -> list[Widget]:
        return [child for child in self.children if isinstance(child, QuestionView | ReplyView)]

    def welcome(self, latest: Conversation | None) -> None:
        """The conversation that an empty page offers to go on with."""
        if latest != self._latest:
            self._latest = latest
            for page in self.query(Welcome):
                page.update(wording.welcome(latest))

    async def add_question(self, text: str) -> None:
        """The owner's message, from the moment it was sent."""
        await self.stop_complaining()
        await self.query(Welcome).remove()
        await self.mount(QuestionView(text))
        self.anchor()

    async def add_reply(self, text: str = "") -> ReplyView:
        """An empty reply, or one that has come as far as ``text``."""
        view = ReplyView(None, text)
        await self.mount(view)
        return view

    async def take_back(self, view: ReplyView | None, keep_question: bool = False) -> None:
        """Take away a reply that never came, and the question above it where that was not saved either."""
        if view is None or view.parent is not self:
            return
        place = self.children.index(view)
        above = self.children[place - 1] if place and not keep_question else None
        await view.remove()
        if isinstance(above, QuestionView):
            await above.remove()
        if not self.query("QuestionView, ReplyView, Welcome"):
            await self.mount(Welcome(wording.welcome(self._latest), markup=False))

    async def drop_from(self, view: ReplyView) -> None:
        """Take away a reply and what follows it, for another answer in its place."""
        await self.remove_children(self.children[self.children.index(view) :])

    async def complain(self, line: str) -> None:
        """Say why there is no reply."""
        await self.stop_complaining()
        await self.mount(Complaint(Content(line), markup=False))
        self.anchor()

    async def stop_complaining(self) -> None:
        """The reason is gone."""
        await self.query(Complaint).remove()

    def update_entries(self, entries: Sequence[ThreadMessage]) -> None:
        """Bring the meta lines up to date, without touching a text."""
        known = {entry.message.id: entry for entry in entries}
        for view in self.replies:
            if view.entry is not None and view.entry.message.id in known:
                view.refresh_entry(known[view.entry.message.id])

    def watch_scroll_y(self, old: float, new: float) -> None:
        super().watch_scroll_y(old, new)
        if new <= 0 < old and self._earlier and not self._loading:
            self.call_later(self._show_earlier)

    async def _show_earlier(self) -> None:
        """Mount the messages before the window, keeping in place what was being read."""
        if self._loading or not self._earlier:
            return
        self._loading = True
        batch, self._earlier = self._earlier[-WINDOW:], self._earlier[:-WINDOW]
        height = self.virtual_size.height
        await self.query(".earlier").remove()
        await self.mount_all([*self._more(), *(_view(entry) for entry in batch)], before=0)

        def stay() -> None:
            self.scroll_to(y=self.scroll_y + self.virtual_size.height - height, animate=False)
            self._loading = False

        self.call_after_refresh(stay)

    def _more(self) -> list[Static]:
        if not self._earlier:
            return []
        return [Static(f"{len(self._earlier)} earlier messages · scroll up", classes="earlier", markup=False)]


def _view(entry: ThreadMessage) -> QuestionView | ReplyView:
    return ReplyView(entry) if entry.message.role is Role.ASSISTANT else QuestionView(entry.message.text)
