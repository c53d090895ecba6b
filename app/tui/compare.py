"""Before and after: the same question answered by two versions side by side, made on demand and kept nowhere.

Both replies are incognito turns at temperature 0, so nothing of them is stored or learned from, and what differs
between them is what was learned. They are made one after the other: the model answers one question at a time.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.message_pump import MessagePump
from textual.widgets import Input, Static

from app.host.client import TurnRequest
from app.host.events import Done, Failed, Queued, Token, TurnEvent, failure_of
from app.tui.ports import ChatService, Turn
from store.adapters import Adapter
from store.errors import MynahError
from store.types import ErrorClass

LONGEST = 300
_logger = logging.getLogger(__name__)


NOT_ASKED = "not asked yet: C asks both"


@dataclass
class Heard(Message):
    """Something was heard of one side of a comparison."""

    run: int
    side: int
    event: TurnEvent


class Comparison:
    """Asks one question of several versions, in a thread; posts what it hears to ``owner``."""

    def __init__(self, service: ChatService, owner: MessagePump) -> None:
        self._service = service
        self._owner = owner
        self._stream: Turn | None = None
        self._guard = threading.Lock()
        self.run = 0

    def start(self, question: str, sides: list[Adapter | None]) -> None:
        """Begin; one that is under way is broken off."""
        self.stop()
        threading.Thread(
            target=self._ask, args=(self.run, question, sides), name="mynah-compare", daemon=True
        ).start()

    def stop(self) -> None:
        """Break off, and let nothing more be heard of it."""
        with self._guard:
            self.run += 1
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    def _ask(self, run: int, question: str, sides: list[Adapter | None]) -> None:
        for side, adapter in enumerate(sides):
            request = TurnRequest(
                text=question,
                incognito=True,
                base=adapter is None,
                adapter=None if adapter is None else adapter.id,
                sampler={"temperature": 0.0, "max_tokens": LONGEST},
            )
            try:
                stream = self._service.chat(request)
                if not self._follow(run, stream):
                    stream.close()
                    return
                for event in stream:
                    if run != self.run:
                        return
                    self._owner.post_message(Heard(run, side, event))
            except MynahError as error:
                self._owner.post_message(Heard(run, side, failure_of(error)))
            except Exception as error:
                _logger.exception("a comparison could not be followed")
                failure = Failed(ErrorClass.UNKNOWN, f"this reply could not be made ({error})")
                self._owner.post_message(Heard(run, side, failure))

    def _follow(self, run: int, stream: Turn) -> bool:
        """Whether this run still counts; then whoever ends it closes its stream."""
        with self._guard:
            if run == self.run:
                self._stream = stream
            return run == self.run


class Side(VerticalScroll):
    """One version's reply."""

    def __init__(self) -> None:
        super().__init__(Static("", markup=False))
        self._text = ""

    def begin(self, adapter: Adapter | None, remark: str = "…") -> None:
        """An empty reply of a version, with a remark in its place."""
        self.border_title = "base" if adapter is None else f"v{adapter.version}"
        self._text = ""
        self._say(remark)

    def hear(self, event: TurnEvent) -> None:
        """Take in one event."""
        match event:
            case Token():
                self._text += event.text
                self._say(self._text)
            case Queued() if event.ahead:
                self._say("waiting behind another reply")
            case Done():
                self._text = event.text
                self._say(event.text or "(an empty reply)")
            case Failed():
                self.query_one(Static).update(Content.styled(event.message, "$text-warning"))

    @property
    def text(self) -> str:
        return self._text

    def _say(self, text: str) -> None:
        self.query_one(Static).update(Content(text))


class CompareView(Vertical):
    """A question, and the replies of the version before and the one after."""

    def __init__(self, service: ChatService) -> None:
        super().__init__()
        self._comparison = Comparison(service, self)
        self._before: Adapter | None = None
        self._after: Adapter | None = None

    def compose(self) -> ComposeResult:
        yield Input(placeholder="a question to both; Enter asks", compact=True)
        with Horizontal():
            yield Side()
            yield Side()
        yield Static("Nothing of this is kept or learned from.", classes="note", markup=False)

    def on_unmount(self) -> None:
        self._comparison.stop()

    def choose(self, before: Adapter | None, after: Adapter | None, question: str) -> None:
        """Compare other versions, with a question to begin from."""
        if (before, after) == (self._before, self._after) and self.question:
            return
        self._comparison.stop()
        self._before, self._after = before, after
        self.query_one(Input).value = question
        for side, adapter in zip(self.query(Side), (before, after), strict=True):
            side.begin(adapter, NOT_ASKED)

    @property
    def question(self) -> str:
        return self.query_one(Input).value.strip()

    def ask(self) -> None:
        """Put the question to both."""
        if not self.question:
            self.query_one(Input).focus()
            return
        for side, adapter in zip(self.query(Side), (self._before, self._after), strict=True):
            side.begin(adapter)
        self._comparison.start(self.question, [self._before, self._after])

    @on(Input.Submitted)
    def _asked(self, event: Input.Submitted) -> None:
        event.stop()
        self.ask()

    @on(Heard)
    def _heard(self, event: Heard) -> None:
        event.stop()
        if event.run == self._comparison.run:
            list(self.query(Side))[event.side].hear(event.event)
