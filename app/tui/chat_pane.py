"""The frame of a conversation: what it is made of, and how one moves through it.

Nothing here asks the model for anything. The keys that move (to a message, to one beside it, up a page) mean the
same wherever the focus is, and a letter typed while a message has it goes where it belongs, into the composer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from app.tui.choice_bar import ChoiceBar
from app.tui.composer import Composer
from app.tui.keys import Command
from app.tui.lesson import LessonLine
from app.tui.message_views import MessageView
from app.tui.slash import CommandComposer, CommandList
from app.tui.status_line import StatusLine
from app.tui.transcript import Transcript


class WritingLine(Static):
    """What Enter does just now, where that is not to send a new message."""

    def say(self, line: str | None) -> None:
        """Show a line, or nothing."""
        self.display = line is not None
        self.update(Content(line or ""))


class ChatPane(Vertical):
    """Transcript, choices, composer and status line."""

    def __init__(self, commands: Callable[[], Sequence[Command]]) -> None:
        super().__init__()
        self._commands = commands

    def compose(self) -> ComposeResult:
        yield Transcript()
        yield LessonLine()
        yield ChoiceBar()
        yield WritingLine("", markup=False)
        yield CommandList()
        yield CommandComposer("Write to Mynah", self._commands)
        yield StatusLine()

    @property
    def composer(self) -> Composer:
        return self.query_one(Composer)

    @property
    def transcript(self) -> Transcript:
        return self.query_one(Transcript)

    @property
    def status(self) -> StatusLine:
        return self.query_one(StatusLine)

    @property
    def writing_line(self) -> WritingLine:
        return self.query_one(WritingLine)

    @property
    def lesson_line(self) -> LessonLine:
        return self.query_one(LessonLine)

    def go_to_sibling(self, view: MessageView, step: int) -> None:
        """Show the message beside this one."""
        raise NotImplementedError

    @on(CommandComposer.Offered)
    def _offered(self, event: CommandComposer.Offered) -> None:
        event.stop()
        self.query_one(CommandList).show(event.commands, event.chosen)

    @on(CommandComposer.Names)
    def _names(self, event: CommandComposer.Names) -> None:
        event.stop()
        self.query_one(CommandList).show_names(event.names)

    @on(CommandComposer.Unknown)
    def _unknown(self, event: CommandComposer.Unknown) -> None:
        event.stop()
        self.tell(f"There is no command /{event.name}. With a space before it, it is sent as text.")

    @on(MessageView.Typed)
    def _typed(self, event: MessageView.Typed) -> None:
        self._type(event.key)

    @on(ChoiceBar.Closed)
    def _choices_closed(self, event: ChoiceBar.Closed) -> None:
        self.composer.focus()
        if event.passed_on is not None:
            self._type(event.passed_on)

    def _type(self, key: events.Key) -> None:
        self.composer.focus()
        self.composer.post_message(events.Key(key.key, key.character))

    @on(MessageView.SiblingAsked)
    def _sibling_of(self, event: MessageView.SiblingAsked) -> None:
        self.go_to_sibling(event.view, event.step)

    @on(Composer.SiblingAsked)
    def _sibling_of_picked(self, event: Composer.SiblingAsked) -> None:
        view = self.transcript.picked
        if view is not None:
            self.go_to_sibling(view, event.step)

    @on(Composer.PageAsked)
    def _scroll(self, event: Composer.PageAsked) -> None:
        if event.step < 0:
            self.transcript.scroll_page_up(animate=False)
        else:
            self.transcript.scroll_page_down(animate=False)

    @on(MessageView.PickAsked)
    def _pick(self, event: MessageView.PickAsked) -> None:
        messages = self.transcript.messages
        place = messages.index(event.view) + event.step
        if place >= len(messages):
            self.composer.focus()
        elif place >= 0:
            messages[place].focus()

    @on(Composer.PickAsked)
    def _pick_last(self) -> None:
        messages = self.transcript.messages
        if messages:
            messages[-1].focus()

    def tell(self, line: str) -> None:
        """Say something in passing."""
        self.notify(line, timeout=3, markup=False)
