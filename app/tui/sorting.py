"""What the owner does to a conversation as a whole: name, pin, archive, tag, dials, forget.

Like rating, each is a short transaction off the UI loop and one quiet confirmation. Only forgetting asks first: it
says what will be undone, and is the one thing here that no key takes back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from textual.screen import Screen

from app.tui.background import Background
from app.tui.dialogs import LineDialog
from app.tui.ports import ChatService
from app.tui.sidebar import Deed
from store.conversations import Conversation
from store.errors import MynahError

T = TypeVar("T")


class TagsDialog(LineDialog):
    """A line that may be left empty."""

    def answer(self, text: str) -> str | None:
        return text


class Sorting:
    """The commands of one chat screen that concern whole conversations."""

    def __init__(
        self,
        screen: Screen[None],
        service: ChatService,
        background: Background,
        changed: Callable[[], None],
        gone: Callable[[str], None],
    ) -> None:
        self._screen = screen
        self._service = service
        self._background = background
        self._changed = changed
        self._gone = gone

    def do(self, deed: Deed, conversation: Conversation) -> None:
        """Carry out what is wanted."""
        match deed:
            case Deed.RENAME:
                self._rename(conversation)
            case Deed.PIN:
                self._pin(conversation)
            case Deed.ARCHIVE:
                self._archive(conversation)
            case Deed.TAG:
                self._tag(conversation)
            case Deed.DIALS:
                self.dials(conversation.id, conversation.title)
            case Deed.DELETE:
                self._forget(conversation)

    def dials(self, conversation: str, title: str) -> None:
        """Open the privacy dials of a conversation."""
        from app.tui.dials_screen import DialsScreen

        def closed(_: None) -> None:
            self._changed()

        self._screen.app.push_screen(DialsScreen(self._service, conversation, title), closed)

    def _rename(self, conversation: Conversation) -> None:
        def save(title: str | None) -> None:
            if title is not None:
                self._call(lambda: self._service.rename(conversation.id, title), "Renamed")

        self._screen.app.push_screen(
            LineDialog("Rename", conversation.title, "Another title for this conversation."), save
        )

    def _pin(self, conversation: Conversation) -> None:
        if conversation.pinned is None:
            self._call(lambda: self._service.pin_conversation(conversation.id), "Pinned to the top")
        else:
            self._call(lambda: self._service.unpin_conversation(conversation.id), "No longer pinned")

    def _archive(self, conversation: Conversation) -> None:
        if conversation.archived is None:
            said = "Archived. A search still finds it; the last line of the list shows the archive"
            self._call(lambda: self._service.archive(conversation.id), said)
        else:
            self._call(lambda: self._service.unarchive(conversation.id), "Back in the list")

    def _tag(self, conversation: Conversation) -> None:
        def save(text: str | None) -> None:
            if text is not None:
                tags = text.replace(",", " ").split()
                self._call(lambda: self._service.set_tags(conversation.id, tags), "Tags saved")

        known = " ".join(self._known_tags())
        self._screen.app.push_screen(
            TagsDialog(
                "Tags",
                " ".join(conversation.tags),
                f"Words with a blank between; tag:word finds them. {f'In use: {known}' if known else ''}".strip(),
            ),
            save,
        )

    def _known_tags(self) -> list[str]:
        return list(self._service.tags())[:12]

    def _forget(self, conversation: Conversation) -> None:
        from app.tui.forget_screen import ForgetScreen

        def forgotten(done: bool | None) -> None:
            if done:
                self._gone(conversation.id)
                self._changed()

        self._screen.app.push_screen(
            ForgetScreen(self._service, conversation.id, conversation.title), forgotten
        )

    def _call(self, work: Callable[[], T], confirmation: str) -> None:
        def done(_: T) -> None:
            self._screen.notify(confirmation, timeout=3, markup=False)
            self._changed()

        self._background.call(work, done, self._refused)

    def _refused(self, error: MynahError) -> None:
        self._screen.notify(str(error), severity="warning", markup=False)


class OpenConversationActions:
    """Actions of a screen on the conversation that is open in it: what the list's keys do, as commands by name."""

    def sort_open(self, deed: Deed) -> None:
        """Do something to the open conversation."""
        raise NotImplementedError

    def action_rename(self) -> None:
        self.sort_open(Deed.RENAME)

    def action_pin_conversation(self) -> None:
        self.sort_open(Deed.PIN)

    def action_archive(self) -> None:
        self.sort_open(Deed.ARCHIVE)

    def action_tags(self) -> None:
        self.sort_open(Deed.TAG)

    def action_privacy(self) -> None:
        self.sort_open(Deed.DIALS)

    def action_forget(self) -> None:
        self.sort_open(Deed.DELETE)
