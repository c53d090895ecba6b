"""Keeps an eye on the host and the learner: a look at the store twice a second, off the UI loop.

The look also tells the host that somebody needs it. The first one is taken only after the first paint, and the
host is started only then: a person sees where to type after 0.3 s, while a model takes seconds to load.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

from textual.message import Message
from textual.message_pump import MessagePump

from app.service import Snapshot
from app.tui.ports import ChatService
from store.errors import MynahError

INTERVAL = 0.5
_logger = logging.getLogger(__name__)


class HostState(StrEnum):
    """What is known of the process that holds the model."""

    ASLEEP = "asleep"
    STARTING = "starting"
    READY = "ready"
    FAILED = "failed"


@dataclass
class Seen(Message):
    """A look succeeded."""

    snapshot: Snapshot


@dataclass
class NotSeen(Message):
    """A look failed, and why."""

    error: MynahError


@dataclass
class HostReady(Message):
    """The host was started, or was there."""


@dataclass
class HostFailed(Message):
    """The host could not be started, and why."""

    error: MynahError


class Watch:
    """Polls the service and starts the host; posts what it learns to ``owner``."""

    def __init__(self, service: ChatService, owner: MessagePump) -> None:
        self._service = service
        self._owner = owner
        self._ended = threading.Event()
        self.state = HostState.ASLEEP
        self._since = 0.0

    def begin(self) -> None:
        """Start looking, and start the host."""
        threading.Thread(target=self._look, name="mynah-watch", daemon=True).start()
        self.wake_host()

    def end(self) -> None:
        """Look no more."""
        self._ended.set()

    def wake_host(self) -> None:
        """Start the host where none runs."""
        if self.state is HostState.STARTING:
            return
        self.state, self._since = HostState.STARTING, monotonic()
        threading.Thread(target=self._start_host, name="mynah-host", daemon=True).start()

    def describe(self, model: str | None) -> str:
        """The host in a word or two, for the status line."""
        match self.state:
            case HostState.STARTING:
                return f"loading model… {monotonic() - self._since:.0f} s"
            case HostState.FAILED:
                return "model not loaded · ^R retries"
            case HostState.ASLEEP:
                return f"{model or 'model'} asleep"
            case HostState.READY:
                return model or "model"

    def _start_host(self) -> None:
        try:
            self._service.host()
        except MynahError as error:
            self._owner.post_message(HostFailed(error))
        except Exception as error:
            _logger.exception("the model host could not be started")
            self._owner.post_message(HostFailed(MynahError(f"the model host did not start: {error}")))
        else:
            self._owner.post_message(HostReady())

    def _look(self) -> None:
        while not self._ended.is_set():
            try:
                self._owner.post_message(Seen(self._service.snapshot()))
            except MynahError as error:
                self._owner.post_message(NotSeen(error))
            except Exception as error:
                _logger.exception("the status could not be read")
                self._owner.post_message(NotSeen(MynahError(f"the status could not be read: {error}")))
            self._ended.wait(INTERVAL)
