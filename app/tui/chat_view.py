"""The turns of the open conversation: what is written below, what is answered above.

A turn belongs to its conversation, not to the screen: replies of conversations that are not shown go on in the
background, and what is shown of one that is over is what was stored of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar

from textual import on
from textual.binding import BindingType
from textual.message import Message

from app.host.client import TurnRequest
from app.host.events import Done, Failed, Started
from app.service import Thread
from app.tui.background import Background
from app.tui.composer import Composer
from app.tui.keys import CONVERSATION, Command
from app.tui.message_views import MessageView, QuestionView
from app.tui.open_conversation import OpenConversation
from app.tui.ports import ChatService
from app.tui.replies import LiveTurn, TurnProgress
from store.conversations import Message as StoredMessage
from store.types import ErrorClass, FinishReason, MessageStatus, SignalKind

QUIT_WINDOW = 2.0


class ChatView(OpenConversation):
    """The open conversation and the turns in it."""

    BINDINGS: ClassVar[list[BindingType]] = [command.binding for command in CONVERSATION if command.keys]

    @dataclass
    class Asked(Message):
        """A reply is wanted: whatever else the model does can wait. It may be over when this is heard."""

    @dataclass
    class Answering(Message):
        """The host spoke: it is up, whatever was thought before."""

    @dataclass
    class Answered(Message):
        """A reply has ended: to which message, and what a guard found wrong with it."""

        message: str | None
        notes: list[str]

    @dataclass
    class HostLost(Message):
        """The host died under a reply. The next one closes what was left open, and is then ready for ^R."""

    def __init__(
        self, service: ChatService, background: Background, commands: Callable[[], Sequence[Command]]
    ) -> None:
        super().__init__(service, background, commands)
        self._interrupted_at = 0.0

    def on_unmount(self) -> None:
        self._replies.hang_up()

    @property
    def busy(self) -> frozenset[str]:
        """The conversations in which a reply is being written."""
        return frozenset(turn.conversation for turn in self._replies.live if turn.conversation)

    @property
    def answering(self) -> bool:
        """Whether a reply is wanted or being written, in a conversation that is stored already or not."""
        return bool(self._replies.live)

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
        request = TurnRequest(
            text=event.text, conversation=self.conversation, edit=edited, pasted=list(event.pasted)
        )
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

    @on(MessageView.OpenAsked)
    async def _open_message(self, event: MessageView.OpenAsked) -> None:
        if isinstance(event.view, QuestionView):
            self.action_edit()
        else:
            await self.action_go_on()

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
        self.post_message(self.Asked())
        self.post_message(self.Changed())

    @on(TurnProgress)
    async def _progress(self, progress: TurnProgress) -> None:
        turn, event = progress.turn, progress.event
        if event is None:
            await self._turn_over(turn)
            return
        turn.show(event)
        match event:
            case Started():
                if turn is self.turn:
                    self.conversation = turn.conversation
                self.post_message(self.Answering())
                self.post_message(self.Changed())
            case Done():
                await self._turn_over(turn)
                self.post_message(self.Answered(turn.user_message, event.notes))
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
