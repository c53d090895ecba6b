"""The conversation that is open: what is stored of it on the screen, and what is being written in it.

What is stored is the truth and what is shown follows it: after each reply, rating or switch the thread is read
again and only what differs is redrawn. What was typed stays with the conversation it was typed in.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual import on
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from app.service import Thread, ThreadMessage
from app.tui.background import Background
from app.tui.chat_pane import ChatPane
from app.tui.composer import Composer
from app.tui.drafts import PAUSE, Drafts
from app.tui.keys import Command
from app.tui.message_views import QuestionView
from app.tui.ports import ChatService
from app.tui.replies import LiveTurn, Replies
from app.tui.writing import Attachment, quoted, read_file
from store.errors import MynahError
from store.types import Role


class OpenConversation(ChatPane):
    """A conversation without its turns. ``incognito``: nothing that is typed here is written anywhere."""

    incognito = False

    @dataclass
    class Changed(Message):
        """The list of conversations, or which of them is open or busy, is no longer what it was."""

    def __init__(
        self, service: ChatService, background: Background, commands: Callable[[], Sequence[Command]]
    ) -> None:
        super().__init__(commands)
        self._service = service
        self._background = background
        self._replies = Replies(service, self)
        self._drafts = Drafts(service, background, lambda: not self.incognito)
        self._draft_due: Timer | None = None
        self._written: list[str] = []
        self._editing: str | None = None
        self._set_aside = ""
        self._typed_text = ""
        self.conversation: str | None = None
        self.thread: Thread | None = None
        self.turn: LiveTurn | None = None

    async def on_mount(self) -> None:
        await self.transcript.show([])
        self._drafts.read(self.conversation, self._bring_back(self.conversation))
        self._read(self._opened)
        self._background.call(self._service.written, self._remember, lambda _: None)

    def on_unmount(self) -> None:
        if self._editing is None:
            self._drafts.keep_now(self.conversation, self._typed_text)

    @property
    def editing(self) -> bool:
        """Whether what is in the composer is an earlier message."""
        return self._editing is not None

    @property
    def unanswered(self) -> ThreadMessage | None:
        """The owner's last message, where no reply followed it."""
        last = self.thread.messages[-1] if self.thread and self.thread.messages else None
        return last if last is not None and last.message.role is Role.USER else None

    async def new(self) -> None:
        """An empty conversation; it is stored with its first message."""
        if self.conversation is not None or self.turn is not None:
            self._leave_for(None)
            await self.transcript.show([])
            self.composer.sent.replace(self._written)
        self.composer.focus()

    def _remember(self, written: list[str]) -> None:
        self._written = written
        if self.conversation is None and self.turn is None:
            self.composer.sent.replace(written)

    def open(self, conversation: str) -> None:
        """Show a conversation as soon as it is read."""
        if conversation != self.conversation:
            self._leave_for(conversation)
            self._read(self._opened)
        self.composer.focus()

    def jump(self, conversation: str, message: str) -> None:
        """Show a conversation on the branch of a message, and that message in it."""
        if conversation != self.conversation:
            self._leave_for(conversation)

        def show(thread: Thread) -> None:
            self.call_later(self._show_at, thread, message)

        self._read(show, before=lambda: self._service.bring_into_path(message))
        self.composer.focus()

    async def _show_at(self, thread: Thread, message: str) -> None:
        await self._show(thread)
        places = [each.message.id for each in thread.messages]
        if message in places and not await self.transcript.reveal(len(places) - 1 - places.index(message)):
            self.tell("That message is far up: PgUp goes there.")

    def reload(self) -> None:
        """Bring the lines under the replies up to date."""
        if self.conversation is not None and self.turn is None:
            self._read(self._reloaded)

    def _leave_for(self, conversation: str | None) -> None:
        """What was typed stays with the conversation it was typed in; what waits in the other comes back."""
        self._leave_edit()
        self._drafts.keep(self.conversation, self.composer.message)
        if self.turn is not None:
            self.turn.view = None
        self.conversation, self.thread, self.turn = conversation, None, None
        known = self._drafts.known(conversation)
        self.composer.put(known or "")
        if known is None:
            self._drafts.read(conversation, self._bring_back(conversation))
        self.status.measured(None, None)
        self.post_message(self.Changed())

    def _bring_back(self, conversation: str | None) -> Callable[[str], None]:
        """Put a draft where it was typed, unless something else is being typed there."""

        def bring(text: str) -> None:
            if self.conversation == conversation and not self.composer.text and self.turn is None:
                self.composer.bring_back(text)

        return bring

    @on(TextArea.Changed)
    def _draft_changed(self) -> None:
        """Keep what is typed as soon as there is a pause in it."""
        self._typed_text = self.composer.message
        if self._draft_due is not None:
            self._draft_due.stop()
        self._draft_due = self.set_timer(PAUSE, self._keep_draft)

    def _keep_draft(self) -> None:
        # The timer may come when the composer is gone: what was typed last is kept then by `on_unmount`.
        if self._editing is None and self.query(Composer):
            self._drafts.keep(self.conversation, self.composer.message)

    def _read(self, then: Callable[[Thread], None], before: Callable[[], None] | None = None) -> None:
        conversation = self.conversation
        if conversation is None:
            return

        def work() -> Thread:
            if before is not None:
                before()
            return self._service.thread(conversation)

        def deliver(thread: Thread) -> None:
            if thread.conversation.id == self.conversation:
                then(thread)

        self._background.call(work, deliver, self.refused)

    def _opened(self, thread: Thread) -> None:
        self.call_later(self._show, thread)

    def _reloaded(self, thread: Thread) -> None:
        # Behind a reply that is being settled: before that, what is shown is not yet what is stored.
        self.call_later(self._renew, thread)

    async def _renew(self, thread: Thread) -> None:
        """Only what is known about the messages changed, unless another client went on with the conversation."""
        unsettled = any(view.entry is None for view in self.transcript.replies)
        if self.turn is not None or unsettled or thread.conversation.id != self.conversation:
            # The end of a turn reads the thread again.
            return
        shown, now = _texts(self.thread), _texts(thread)
        if now == shown:
            self.thread = thread
            self.transcript.update_entries(thread.messages)
        else:
            same = (place for place, pair in enumerate(zip(shown, now, strict=False)) if pair[0] != pair[1])
            await self._show(thread, next(same, min(len(shown), len(now))))

    async def _show(self, thread: Thread, kept: int = 0) -> None:
        if thread.conversation.id != self.conversation:
            return
        self.thread = thread
        turn = self.turn = self._replies.of(thread.conversation.id)
        await self.transcript.show(
            [each for each in thread.messages if turn is None or each.message.id != turn.message], kept
        )
        if turn is not None:
            turn.view = await self.transcript.add_reply(turn.text)
            turn.view.say(turn.remark)
        elif self.unanswered is not None:
            await self.transcript.complain("This question has no reply yet. ^R answers it.")
        asked = [each.message.text for each in thread.messages if each.message.role is Role.USER]
        self.composer.sent.replace([*(each for each in self._written if each not in asked), *asked])
        self._measure(thread)
        self.post_message(self.Changed())

    def _measure(self, thread: Thread) -> None:
        last = next((each.message for each in reversed(thread.messages) if each.message.usage), None)
        if last is not None:
            self.status.measured(last.timings.get("tokens_per_second"), last.usage.get("total_tokens"))

    def action_edit(self) -> None:
        """Take the picked message of the owner's, else the last, back into the composer."""
        view = self.transcript.picked_question
        if self.turn is not None or view is None or view.entry is None:
            self.tell("There is no message of yours to edit yet")
            return
        self._leave_edit()
        self._set_aside = self.composer.message
        self._editing = view.entry.message.id
        self.composer.bring_back(view.text)
        self.composer.focus()
        self.writing_line.say("Editing: Enter puts this beside your first message, Esc leaves it as it was.")

    def _leave_edit(self) -> None:
        """Back to what was being written before."""
        if self._editing is not None:
            self._editing = None
            self.composer.put(self._set_aside)
            self.writing_line.say(None)

    def _question(self, message: str) -> QuestionView | None:
        views = self.transcript.query(QuestionView)
        return next((view for view in views if view.entry and view.entry.message.id == message), None)

    def action_quote(self) -> None:
        """Put what is selected, else the picked reply, into the composer as a quotation."""
        selected = self.screen.get_selected_text()
        view = self.transcript.picked
        text = selected or (view.text if view is not None else "")
        if not text.strip():
            self.tell("There is nothing to quote yet")
            return
        self.screen.clear_selection()
        self.composer.add(quoted(text) + "\n")
        self.composer.focus()

    def attach(self, path: str) -> None:
        """Put a text file into the message, as quoted data."""

        def add(file: Attachment) -> None:
            self.composer.add(file.quoted, f"{file.name}: {file.size:,} characters")
            self.composer.focus()

        self._background.beside(lambda: read_file(path), add, self.refused)

    def refused(self, error: MynahError) -> None:
        """Say why something was not done."""
        self.notify(str(error), severity="warning", markup=False)


def _texts(thread: Thread | None) -> list[tuple[str, str]]:
    return [(each.message.id, each.message.text) for each in thread.messages] if thread else []
