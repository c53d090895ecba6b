"""Work off the UI loop, in daemon threads, reported back as messages.

Textual's thread workers run in asyncio's executor, whose threads are joined at exit: a chat that is closed
while the model host loads would stay on the screen until it is done. A daemon thread dies with us, and the
store and the host both stand a client that dies. Short calls share one thread, in the order they were asked
for and on one database connection; a stream has a thread of its own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from textual.message_pump import MessagePump

from store.errors import MynahError

T = TypeVar("T")
_logger = logging.getLogger(__name__)


class Background:
    """Runs calls one after the other, and streams beside them. Results come back through ``owner``."""

    def __init__(self, owner: MessagePump) -> None:
        self._owner = owner
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._started = False

    def call(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[MynahError], None]
    ) -> None:
        """Run ``work`` after the calls before it, then ``then(result)`` or ``failed(error)`` on the UI loop."""
        if not self._started:
            self._started = True
            threading.Thread(target=self._serve, name="mynah-calls", daemon=True).start()
        self._calls.put(lambda: self._run(work, then, failed))

    def beside(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[MynahError], None]
    ) -> None:
        """The same in a thread of its own, for work that may take seconds."""
        threading.Thread(
            target=self._run, args=(work, then, failed), name="mynah-beside", daemon=True
        ).start()

    def _serve(self) -> None:
        while True:
            self._calls.get()()

    def _run(
        self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[MynahError], None]
    ) -> None:
        try:
            result = work()
        except MynahError as error:
            self._deliver(failed, error)
        except Exception as error:
            _logger.exception("the chat failed in the background")
            wrapped = MynahError(f"something failed inside the chat ({type(error).__name__}: {error})")
            self._deliver(failed, wrapped)
        else:
            self._deliver(then, result)

    def _deliver(self, to: Callable[[T], None], what: T) -> None:
        """Post it to the owner, on whose loop it is given to who asked."""

        def give() -> None:
            # Without its result: Textual would wait for one, such as the screen's own dismissal, in the middle of it.
            to(what)

        self._owner.call_later(give)
