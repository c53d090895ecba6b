"""Replies under way. Each belongs to its conversation, not to what is on the screen.

Switching to another conversation neither stops a reply nor lets its text run into the wrong place: a turn keeps
its own text and is given a view only while its conversation is shown. The thread that reads the stream posts
what it hears and touches nothing; `TurnProgress` handlers own the state.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass, field
from enum import StrEnum
from time import monotonic

from textual.message import Message
from textual.message_pump import MessagePump

from app.host.client import TurnRequest
from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent, failure_of
from app.tui.ports import ChatService, Turn
from app.tui.transcript import ReplyView
from store.errors import MynahError
from store.types import ErrorClass

_logger = logging.getLogger(__name__)


class Stage(StrEnum):
    """How far a turn has come."""

    SENT = "sent"
    QUEUED = "queued"
    STARTED = "started"
    SPEAKING = "speaking"
    OVER = "over"


@dataclass(eq=False)
class LiveTurn:
    """One question on its way to its answer."""

    request: TurnRequest
    conversation: str | None
    question: str | None = None
    stage: Stage = Stage.SENT
    ahead: int = 0
    user_message: str | None = None
    message: str | None = None
    handle: str | None = None
    text: str = ""
    stopping: bool = False
    view: ReplyView | None = None
    stream: Turn | None = None
    began: float = field(default_factory=monotonic)

    def hear(self, event: TurnEvent) -> None:
        """Take in one event."""
        match event:
            case Queued():
                self.stage, self.ahead = Stage.QUEUED, event.ahead
                self.conversation = event.conversation or self.conversation
                self.user_message = event.user_message or self.user_message
            case Started():
                self.stage = Stage.STARTED
                self.conversation = event.conversation or self.conversation
                self.user_message = event.user_message or self.user_message
                self.message = event.message
                self.handle = event.message or event.job
            case Token():
                self.stage = Stage.SPEAKING
                self.text += event.text
            case Done() | Failed():
                self.stage = Stage.OVER

    def show(self, event: TurnEvent) -> None:
        """Take in one event, and let the view follow where the turn is on the screen."""
        before = len(self.text)
        self.hear(event)
        if self.view is not None:
            self.view.write(self.text[before:])
            self.view.say(self.remark)

    @property
    def remark(self) -> str:
        """What the line under the reply says meanwhile."""
        if self.stopping:
            return "stopping…"
        if self.stage is Stage.QUEUED and self.ahead:
            others = "another reply" if self.ahead == 1 else f"{self.ahead} other replies"
            return f"waiting behind {others}"
        if self.stage is Stage.SPEAKING:
            return "Esc stops"
        waited = int(monotonic() - self.began)
        return f"reading… {waited} s" if waited else "reading…"


@dataclass
class TurnProgress(Message):
    """Something was heard of a turn; no event means that its stream ended without a last word."""

    turn: LiveTurn
    event: TurnEvent | None


class Replies:
    """Starts, follows and stops turns."""

    def __init__(self, service: ChatService, owner: MessagePump) -> None:
        self._service = service
        self._owner = owner
        self.live: list[LiveTurn] = []

    def start(self, turn: LiveTurn) -> None:
        """Send a question and follow its answer in a thread of its own."""
        self.live.append(turn)
        threading.Thread(target=self._follow, args=(turn,), name="mynah-reply", daemon=True).start()

    def over(self, turn: LiveTurn) -> None:
        """Forget a turn that has ended."""
        turn.stage = Stage.OVER
        if turn in self.live:
            self.live.remove(turn)

    def of(self, conversation: str | None) -> LiveTurn | None:
        """The turn under way in a conversation."""
        if conversation is None:
            return None
        return next((turn for turn in self.live if turn.conversation == conversation), None)

    def stop(self, turn: LiveTurn) -> None:
        """Stop a turn. The host is asked by name, so that it closes the reply and says so; without one we hang up."""
        turn.stopping = True
        threading.Thread(target=self._stop, args=(turn,), name="mynah-stop", daemon=True).start()

    def hang_up(self) -> None:
        """Close every stream, for when the chat closes: the host keeps the text so far."""
        for turn in self.live:
            if turn.stream is not None:
                turn.stream.close()

    def _stop(self, turn: LiveTurn) -> None:
        try:
            if turn.handle is not None and self._service.stop(turn.handle):
                return
        except MynahError:
            _logger.info("the host did not take a stop; hanging up instead", exc_info=True)
        if turn.stream is not None:
            turn.stream.close()

    def _follow(self, turn: LiveTurn) -> None:
        last: TurnEvent | None = None
        try:
            turn.stream = self._service.chat(turn.request)
            if turn.stopping:
                turn.stream.close()
            for event in turn.stream:
                last = event
                self._owner.post_message(TurnProgress(turn, event))
        except MynahError as error:
            last = failure_of(error)
            self._owner.post_message(TurnProgress(turn, last))
        except Exception as error:
            _logger.exception("a reply could not be followed")
            last = Failed(
                ErrorClass.UNKNOWN, f"the reply could not be followed ({type(error).__name__}: {error})"
            )
            self._owner.post_message(TurnProgress(turn, last))
        if not isinstance(last, Done | Failed):
            self._owner.post_message(TurnProgress(turn, None))
