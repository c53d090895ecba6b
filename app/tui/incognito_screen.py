"""A conversation that is kept nowhere, on a screen that cannot be taken for any other.

It is a screen of its own rather than a mode of the chat: what is said here lives in this object and goes when it
closes, there is no code on it that could store, rate or learn anything, and its colours leave no doubt where one is.
The replies come from the version that answers now; the host keeps nothing of them either.
"""

from __future__ import annotations

from time import monotonic
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Static

from app.host.client import TurnRequest
from app.host.events import Done, Failed
from app.service import ThreadMessage
from app.tui.composer import Composer
from app.tui.key_line import Key, KeyLine
from app.tui.ports import ChatService
from app.tui.replies import LiveTurn, Replies, TurnProgress
from app.tui.transcript import Transcript
from store.conversations import Message
from store.types import FinishReason, MessageStatus, Role

BANNER = "INCOGNITO · nothing of this is kept, nothing is learned · Esc twice ends it for good"
KEYS = (
    Key("Esc", "stop, or leave", "leave"),
    Key("^S", "copy", "copy_reply"),
    Key("F1", "help", "app.help"),
    Key("^Q", "quit", "app.quit"),
)
LEAVE_WINDOW = 2.0


class IncognitoScreen(Screen[None]):
    """One conversation in memory."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", priority=True, show=False),
        Binding("alt+i", "leave", priority=True, show=False),
        Binding("ctrl+s", "copy_reply", priority=True, show=False),
        Binding("f1", "app.help", priority=True, show=False),
    ]
    AUTO_FOCUS = "Composer"

    def __init__(self, service: ChatService) -> None:
        super().__init__()
        self._service = service
        self._replies = Replies(service, self)
        self._turns: list[dict[str, str]] = []
        self._turn: LiveTurn | None = None
        self._asked_to_leave = 0.0

    def compose(self) -> ComposeResult:
        yield Static(BANNER, classes="banner", markup=False)
        with Vertical(id="unkept"):
            yield Transcript()
            yield Composer("Nothing you write here is kept")
        yield KeyLine(KEYS)

    async def on_mount(self) -> None:
        self.query_one("#unkept").border_title = "INCOGNITO"

    def on_unmount(self) -> None:
        self._replies.hang_up()

    @property
    def _transcript(self) -> Transcript:
        return self.query_one(Transcript)

    def action_leave(self) -> None:
        """Stop the reply; with none running, leave, at the second time where something was said."""
        if self._turn is not None:
            self._replies.stop(self._turn)
        elif not self._turns or monotonic() - self._asked_to_leave < LEAVE_WINDOW:
            self.dismiss()
        else:
            self._asked_to_leave = monotonic()
            self.notify(
                "Esc once more ends it: all of this is gone then.", timeout=LEAVE_WINDOW, markup=False
            )

    @on(Composer.Interrupted)
    def _interrupted(self) -> None:
        self.action_leave()

    def action_copy_reply(self) -> None:
        replies = self._transcript.replies
        if replies:
            self.app.copy_to_clipboard(replies[-1].text)
            self.notify("Reply copied", timeout=3, markup=False)

    @on(Composer.PageAsked)
    def _scroll(self, event: Composer.PageAsked) -> None:
        if event.step < 0:
            self._transcript.scroll_page_up(animate=False)
        else:
            self._transcript.scroll_page_down(animate=False)

    @on(Composer.Submitted)
    async def _send(self, event: Composer.Submitted) -> None:
        event.stop()
        if self._turn is not None:
            self.notify("Mynah is still answering. Esc stops it.", timeout=3, markup=False)
            return
        event.composer.accept(event.raw)
        await self._transcript.add_question(event.text)
        request = TurnRequest(text=event.text, incognito=True, incognito_turns=list(self._turns))
        turn = self._turn = LiveTurn(request, None, question=event.text)
        turn.view = await self._transcript.add_reply()
        turn.view.say(turn.remark)
        self._replies.start(turn)

    @on(TurnProgress)
    async def _progress(self, progress: TurnProgress) -> None:
        progress.stop()
        turn, event = progress.turn, progress.event
        if event is None:
            await self._over(turn, None)
            return
        turn.show(event)
        if isinstance(event, Done):
            await self._over(turn, event)
        elif isinstance(event, Failed):
            await self._failed(turn, event)

    async def _over(self, turn: LiveTurn, done: Done | None) -> None:
        """The reply joins what the next question is asked after."""
        self._replies.over(turn)
        self._turn = None
        text = turn.text if done is None else done.text
        if turn.view is None or not text:
            await self._transcript.take_back(turn.view, keep_question=True)
            return
        self._turns += [
            {"role": "user", "content": turn.question or ""},
            {"role": "assistant", "content": text},
        ]
        await turn.view.finish(self._unkept(text, done))

    async def _failed(self, turn: LiveTurn, failure: Failed) -> None:
        self._replies.over(turn)
        self._turn = None
        await self._transcript.take_back(turn.view)
        composer = self.query_one(Composer)
        if not composer.text:
            composer.put(turn.question or "")
        await self._transcript.complain(f"{failure.message}. Your text is back below: Enter sends it.")

    def _unkept(self, text: str, done: Done | None) -> ThreadMessage:
        """A reply in the form in which replies are shown; it has no row and no id."""
        stopped = done is None or done.finish_reason == FinishReason.CANCELLED
        message = Message(
            id="",
            conversation="",
            parent=None,
            role=Role.ASSISTANT,
            text=text,
            status=MessageStatus.STOPPED if stopped else MessageStatus.COMPLETE,
            created="",
            finish_reason=None if done is None else FinishReason(done.finish_reason),
            timings={} if done is None else done.timings,
        )
        return ThreadMessage(message, self._version(done), None, False, None, 0, [])

    def _version(self, done: Done | None) -> int | None:
        if done is None or done.adapter is None:
            return None
        serving = self._service.serving().adapter
        return serving.version if serving is not None and serving.id == done.adapter else None
