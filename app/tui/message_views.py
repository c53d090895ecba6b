"""One message on the screen. It can be picked, and shows the way to the others beside it.

A regenerated reply and an edited question stand beside the first one, so both kinds of message carry the same
switch, ``‹ 2/3 ›``: the arrow keys and a click on either side of it go there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Markdown, Static

from app.service import ThreadMessage
from app.tui import wording
from app.tui.markdown import ChatMarkdown, PacedMarkdown
from store.types import MessageStatus

LONG_QUESTION = 1500
BACK, FORTH = "‹", "›"


class MessageView(Widget, can_focus=True, can_focus_children=False):
    """What questions and replies have in common: being picked, and siblings."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "sibling(-1)", show=False),
        Binding("right", "sibling(1)", show=False),
        Binding("escape", "pick(1000000)", show=False),
        Binding("up,shift+tab,k", "pick(-1)", show=False),
        Binding("down,tab,j", "pick(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    @dataclass
    class SiblingAsked(Message):
        """Another message beside this one is wanted."""

        view: MessageView
        step: int

    @dataclass
    class PickAsked(Message):
        """The message before or after this one is wanted."""

        view: MessageView
        step: int

    @dataclass
    class OpenAsked(Message):
        """Enter on a message: edit it, or go on with it."""

        view: MessageView

    @dataclass
    class Typed(Message):
        """A printable key while a message has the focus: it belongs into the composer."""

        key: events.Key

    def __init__(self, entry: ThreadMessage | None, classes: str) -> None:
        super().__init__(classes=classes)
        self.entry = entry

    def refresh_entry(self, entry: ThreadMessage) -> None:
        """The text is the same, what is known about it may have changed."""
        self.entry = entry

    def on_key(self, event: events.Key) -> None:
        if event.is_printable and event.character not in ("j", "k"):
            event.stop()
            self.post_message(self.Typed(event))

    def action_sibling(self, step: int) -> None:
        self.post_message(self.SiblingAsked(self, step))

    def action_pick(self, step: int) -> None:
        self.post_message(self.PickAsked(self, step))

    def action_open(self) -> None:
        self.post_message(self.OpenAsked(self))

    def switch_clicked(self, line: str, cell: int) -> bool:
        """Go where a click on a line with the switch means; False where it means nothing."""
        start, end = line.rfind(BACK), line.rfind(FORTH)
        before = Content(line[:start]).cell_length if start >= 0 else -1
        if start < 0 or end < start or not before <= cell <= before + end - start:
            return False
        self.action_sibling(-1 if cell - before < (end - start + 1) / 2 else 1)
        return True


class QuestionView(MessageView):
    """What the owner wrote. A very long text is shown in part; a click shows the rest."""

    def __init__(self, text: str, entry: ThreadMessage | None = None) -> None:
        super().__init__(entry, "question")
        self.text = text
        self._whole = len(text) <= LONG_QUESTION

    def render(self) -> Content:
        if self._whole:
            shown = Content(self.text)
        else:
            rest = len(self.text) - LONG_QUESTION
            shown = Content(f"{self.text[:LONG_QUESTION]}… ").append_text(
                f"({rest:,} more characters)", "dim"
            )
        switch = self._switch
        return shown + Content("\n") + Content.styled(switch, "$text-muted") if switch else shown

    def on_click(self, event: events.Click) -> None:
        place = event.get_content_offset(self)
        on_switch = place is not None and bool(self._switch) and place.y == self.content_size.height - 1
        if on_switch and place is not None and self.switch_clicked(self._switch, place.x):
            event.stop()
        elif not self._whole:
            self._whole = True
            self.refresh(layout=True)

    @property
    def _switch(self) -> str:
        if self.entry is None or len(self.entry.siblings) < 2:
            return ""
        return f"{BACK} {self.entry.sibling + 1}/{len(self.entry.siblings)} {FORTH}"

    def refresh_entry(self, entry: ThreadMessage) -> None:
        """The text is the same, what stands beside it may have changed."""
        before, self.entry = self._switch, entry
        if self._switch != before:
            self.refresh(layout=True)


class Meta(Static):
    """The line under a reply; a click on its switch goes to another reply."""

    def on_click(self, event: events.Click) -> None:
        view, place = self.parent, event.get_content_offset(self)
        if isinstance(view, ReplyView) and place is not None:
            lines = Content(str(self.render())).wrap(self.content_size.width)
            if place.y < len(lines) and view.switch_clicked(lines[place.y].plain, place.x):
                event.stop()


class ReplyView(MessageView):
    """One reply with the line that says which version gave it and what became of its rating."""

    def __init__(self, entry: ThreadMessage | None, text: str = "") -> None:
        super().__init__(entry, "reply")
        self._body = ChatMarkdown(entry.message.text if entry else "")
        self._meta = Meta("", markup=False, classes="meta")
        self._stream: PacedMarkdown | None = None
        self._said = text
        self._remark = ""

    def compose(self) -> ComposeResult:
        yield self._body
        yield self._meta

    def on_mount(self) -> None:
        if self.entry is not None:
            self._settle(self.entry)
        elif self._said:
            said, self._said = self._said, ""
            self.write(said)

    @property
    def text(self) -> str:
        return self.entry.message.text if self.entry else self._said

    def write(self, text: str) -> None:
        """Add streamed text."""
        if self._stream is None:
            self._stream = PacedMarkdown(self._body)
        self._said += text
        self._stream.write(text)

    def say(self, line: str) -> None:
        """Put a passing remark on the meta line: waiting, thinking."""
        if line != self._remark:
            # Every update lays the whole transcript out again, and this is called with every token.
            self._remark = line
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

    def _settle(self, entry: ThreadMessage) -> None:
        self.entry = entry
        self._said = self._remark = ""
        self.set_class(entry.message.status is MessageStatus.FAILED, "-failed")
        self._meta.update(wording.meta_line(entry))
