"""One conversation on the screen: what is written below, what is answered above.

What is stored is the truth and what is shown follows it: after each reply, rating or switch the thread is read
again and only what differs is redrawn. Replies of conversations that are not shown go on in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.message import Message
from textual.timer import Timer
from textual.widgets import TextArea

from app.host.client import TurnRequest
from app.host.events import Done, Failed, Started
from app.service import Thread, ThreadMessage
from app.tui.background import Background
from app.tui.chat_pane import ChatPane
from app.tui.composer import Composer
from app.tui.drafts import PAUSE, Drafts
from app.tui.keys import CONVERSATION, Command
from app.tui.message_views import MessageView, QuestionView
from app.tui.ports import ChatService
from app.tui.replies import LiveTurn, Replies, TurnProgress
from app.tui.writing import Attachment, quoted, read_file
from store.conversations import Message as StoredMessage
from store.errors import MynahError
from store.types import ErrorClass, FinishReason, MessageStatus, Role, SignalKind

QUIT_WINDOW = 2.0


class ChatView(ChatPane):
    """A conversation and the turns in it. ``incognito``: nothing that is typed here is written anywhere."""

    BINDINGS: ClassVar[list[BindingType]] = [command.binding for command in CONVERSATION if command.keys]
    incognito = False

    @dataclass
    class Changed(Message):
        """The list of conversations, or which of them is open or busy, is no longer what it was."""

    @dataclass
    class Answering(Message):
        """The host spoke: it is up, whatever was thought before."""

    @dataclass
    class HostLost(Message):
        """The host died under a reply. The next one closes what was left open, and is then ready for ^R."""

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
        self._interrupted_at = 0.0
        self.conversation: str | None = None
        self.thread: Thread | None = None
        self.turn: LiveTurn | None = None

    async def on_mount(self) -> None:
        await self.transcript.show([])
        self._drafts.read(None, self._bring_back(None))
        self._background.call(self._service.written, self._remember, lambda _: None)

    def on_unmount(self) -> None:
        if self._editing is None:
            self._drafts.keep_now(self.conversation, self._typed_text)
        self._replies.hang_up()

    @property
    def busy(self) -> frozenset[str]:
        """The conversations in which a reply is being written."""
        return frozenset(turn.conversation for turn in self._replies.live if turn.conversation)

    @property
    def unanswered(self) -> ThreadMessage | None:
        """The owner's last message, where no reply followed it."""
        last = self.thread.messages[-1] if self.thread and self.thread.messages else None
        return last if last is not None and last.message.role is Role.USER else None

    # Conversations

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
                self.composer.put(text)

        return bring

    @on(TextArea.Changed)
    def _draft_changed(self) -> None:
        """Keep what is typed as soon as there is a pause in it."""
        self._typed_text = self.composer.message
        if self._draft_due is not None:
            self._draft_due.stop()
        self._draft_due = self.set_timer(PAUSE, self._keep_draft)

    def _keep_draft(self) -> None:
        if self._editing is None:
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

        self._background.call(work, deliver, self._refused)

    def _opened(self, thread: Thread) -> None:
        self.call_later(self._show, thread)

    def _reloaded(self, thread: Thread) -> None:
        """Only what is known about the messages changed, unless another client went on with the conversation."""
        if self.turn is not None:
            return
        if self.thread is not None and _texts(thread) == _texts(self.thread):
            self.thread = thread
            self.transcript.update_entries(thread.messages)
        else:
            self.call_later(self._show, thread)

    async def _show(self, thread: Thread) -> None:
        if thread.conversation.id != self.conversation:
            return
        self.thread = thread
        turn = self.turn = self._replies.of(thread.conversation.id)
        await self.transcript.show(
            [each for each in thread.messages if turn is None or each.message.id != turn.message]
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

    # Turns

    @on(Composer.Submitted)
    async def _send(self, event: Composer.Submitted) -> None:
        event.stop()
        if self.turn is not None:
            self.tell("Mynah is still answering. Esc stops it; your text stays here.")
            return
        event.composer.accept(event.raw)
        self._written.append(event.text)
        self._drafts.keep(self.conversation, self.composer.message)
        edited = self._editing
        if edited is not None:
            view = self._question(edited)
            if view is not None:
                await self.transcript.drop_from(view)
            self._leave_edit()
        await self.transcript.add_question(event.text)
        request = TurnRequest(text=event.text, conversation=self.conversation, edit=edited)
        await self._begin(LiveTurn(request, self.conversation, question=event.text))

    async def answer_again(self) -> bool:
        """Answer the open question, or the picked reply's question once more; False where there is none."""
        if self.turn is not None:
            self.tell("Mynah is still answering. Esc stops it.")
            return True
        view = self.transcript.picked
        if self.unanswered is not None:
            request = TurnRequest(conversation=self.conversation, continue_from=self.unanswered.message.id)
            await self.transcript.stop_complaining()
        elif view is not None and view.entry is not None:
            request = TurnRequest(conversation=self.conversation, regenerate=view.entry.message.id)
            self._note(view.entry.message, SignalKind.REGENERATE)
            await self.transcript.drop_from(view)
        else:
            return False
        self.composer.focus()
        await self._begin(LiveTurn(request, self.conversation))
        return True

    async def action_go_on(self) -> None:
        """Go on with a reply that was stopped or cut, in a reply beside it."""
        view = self.transcript.picked
        if self.turn is not None or view is None or view.entry is None:
            self.tell("There is no reply to go on with yet")
            return
        message = view.entry.message
        if message.status is MessageStatus.COMPLETE and message.finish_reason is not FinishReason.LENGTH:
            self.tell("This reply ended by itself. ^R answers again.")
            return
        await self.transcript.drop_from(view)
        self.composer.focus()
        await self._begin(
            LiveTurn(TurnRequest(conversation=self.conversation, extend=message.id), self.conversation)
        )

    def action_edit(self) -> None:
        """Take the picked message of the owner's, else the last, back into the composer."""
        view = self.transcript.picked_question
        if self.turn is not None or view is None or view.entry is None:
            self.tell("There is no message of yours to edit yet")
            return
        self._leave_edit()
        self._set_aside = self.composer.message
        self._editing = view.entry.message.id
        self.composer.put(view.text)
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

    @on(MessageView.OpenAsked)
    async def _open_message(self, event: MessageView.OpenAsked) -> None:
        if isinstance(event.view, QuestionView):
            self.action_edit()
        else:
            await self.action_go_on()

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

        self._background.beside(lambda: read_file(path), add, self._refused)

    def _note(self, message: StoredMessage, kind: SignalKind) -> None:
        """Keep what was done to a reply. A fault of the program is no statement about the reply."""
        if message.status is not MessageStatus.FAILED:
            self._background.call(
                lambda: self._service.note(message.id, kind), lambda _: None, lambda _: None
            )

    def stop(self) -> None:
        """Stop the reply on the screen; the text so far stays."""
        if self.turn is None:
            self._leave_edit()
            self.composer.focus()
            return
        self._replies.stop(self.turn)
        self.tick()

    def tick(self) -> None:
        """Let the seconds pass on a reply that has not begun."""
        if self.turn is not None and self.turn.view is not None:
            self.turn.view.say(self.turn.remark)

    async def _begin(self, turn: LiveTurn) -> None:
        self.turn = turn
        turn.view = await self.transcript.add_reply()
        turn.view.say(turn.remark)
        self.transcript.anchor()
        self._replies.start(turn)
        self.post_message(self.Changed())

    @on(TurnProgress)
    async def _progress(self, progress: TurnProgress) -> None:
        turn, event = progress.turn, progress.event
        if event is None:
            await self._turn_over(turn)
            return
        before = len(turn.text)
        turn.hear(event)
        if turn.view is not None:
            turn.view.write(turn.text[before:])
            turn.view.say(turn.remark)
        match event:
            case Started():
                if turn is self.turn:
                    self.conversation = turn.conversation
                self.post_message(self.Answering())
                self.post_message(self.Changed())
            case Done():
                await self._turn_over(turn)
            case Failed():
                await self._turn_failed(turn, event)

    async def _turn_over(self, turn: LiveTurn) -> None:
        self._replies.over(turn)
        self.post_message(self.Changed())
        if turn is not self.turn:
            return
        self.turn = None
        if turn.conversation is None:
            await self.transcript.take_back(turn.view)
            return
        self.conversation = turn.conversation

        def settle(thread: Thread) -> None:
            self.call_later(self._settle, turn, thread)

        self._read(settle)

    async def _settle(self, turn: LiveTurn, thread: Thread) -> None:
        """The reply as it is stored takes the place of the one that was streamed.

        The next question may be on its way already: then only the reply itself is settled.
        """
        if thread.conversation.id != self.conversation:
            return
        entry = next((each for each in thread.messages if each.message.id == turn.message), None)
        if turn.view is not None and entry is not None:
            await turn.view.finish(entry)
            self.transcript.update_entries(thread.messages)
            if turn.stopping and entry.message.status is MessageStatus.STOPPED:
                self._note(entry.message, SignalKind.STOP)
            if self.turn is None:
                self.thread = thread
                self._measure(thread)
        elif self.turn is None:
            await self._show(thread)

    async def _turn_failed(self, turn: LiveTurn, failure: Failed) -> None:
        """No reply, or no whole one. A question that was not saved goes back to where it was written."""
        shown = turn is self.turn
        saved = turn.user_message is not None or turn.question is None
        if saved:
            await self._turn_over(turn)
            if not shown:
                self.tell(failure.message)
            elif turn.message is None:
                await self.transcript.take_back(turn.view, keep_question=True)
                turn.view = None
                await self.transcript.complain(f"{failure.message}. ^R tries again.")
            elif failure.error_class is ErrorClass.HOST_DOWN:
                self.tell(failure.message)
                self.post_message(self.HostLost())
            return
        self._replies.over(turn)
        self.post_message(self.Changed())
        question = turn.question or ""
        if not shown:
            self._drafts.keep(turn.conversation, question)
            self.tell(failure.message)
            return
        self.turn = None
        await self.transcript.take_back(turn.view)
        if not self.composer.text:
            self.composer.put(question)
        if turn.request.edit is not None:
            self._read(self._opened)
        await self.transcript.complain(
            f"{failure.message}. Your text is back below (or behind ↑): Enter sends it."
        )

    @on(Composer.Interrupted)
    def interrupt(self) -> None:
        """Copy what is selected, else stop the reply, else quit at the second time."""
        selected = self.screen.get_selected_text()
        if selected:
            self.app.copy_to_clipboard(selected)
            self.screen.clear_selection()
        elif self.turn is not None:
            self.stop()
        elif monotonic() - self._interrupted_at < QUIT_WINDOW:
            self.app.exit()
        else:
            self._interrupted_at = monotonic()
            self.tell("^C once more quits")

    def go_to_sibling(self, view: MessageView, step: int) -> None:
        """Show the message beside this one, and what follows it."""
        entry = view.entry
        if entry is None or self.turn is not None:
            return
        place = entry.sibling + step
        if 0 <= place < len(entry.siblings):
            self._read(self._opened, before=lambda: self._service.select(entry.siblings[place]))

    def _refused(self, error: MynahError) -> None:
        self.notify(str(error), severity="warning", markup=False)


def _texts(thread: Thread) -> list[tuple[str, str]]:
    return [(each.message.id, each.message.text) for each in thread.messages]
