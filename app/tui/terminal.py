"""Gives the terminal back as it was found, on every way out, and keeps native output off the screen.

Textual 8.2.8 restores the terminal after a quit, an exception and an interrupt, but SIGTERM and SIGHUP kill it
in the alternate screen with mouse reporting on, so that the owner's shell prints ``35;42;18M`` at each move.
We turn those signals into an ordinary exit, and where the event loop does not get there in ``GRACE`` seconds
(it may be stuck writing to a terminal that is gone) a second thread writes the restore sequences and ends
the process.

Textual draws on ``sys.__stderr__``, the very descriptor that native libraries print warnings on. While the
app runs, descriptor 2 is the log file and Textual gets a private copy of the terminal.
"""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

from store.errors import UsageError
from store.home import PRIVATE_FILE

GRACE = 1.5
LOG_LIMIT = 1_000_000
CAUGHT = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

# In the order Textual itself uses: what belongs to the alternate screen goes before leaving it.
RESTORE = (
    "\x1b[?2004l"  # bracketed paste
    "\x1b[?7h"  # line wrap
    "\x1b[?2048l"  # resize reports in band
    "\x1b[?1000l\x1b[?1003l\x1b[?1015l\x1b[?1006l\x1b[?1016l"  # mouse
    "\x1b[<u"  # kitty keyboard protocol, one level
    "\x1b[?1049l"  # alternate screen
    "\x1b[?25h"  # cursor
    "\x1b[?1004l"  # focus reports
)


@contextmanager
def taken(log: Path) -> Iterator[TerminalState]:
    """Move descriptor 2 to ``log`` and hand Textual the terminal itself, for the length of the block.

    Raises:
        UsageError: neither stdout nor stderr is a terminal, or stdin is not.
    """
    screen = _screen_descriptor()
    state = TerminalState(screen)
    saved_stderr = os.dup(2)
    saved_stream = sys.__stderr__
    log_descriptor = _open_log(log)
    private = os.fdopen(os.dup(screen), "w", encoding="utf-8", errors="replace")
    try:
        sys.stderr.flush()
        os.dup2(log_descriptor, 2)
        sys.__stderr__ = private  # type: ignore[misc]
        yield state
    finally:
        sys.__stderr__ = saved_stream  # type: ignore[misc]
        with suppress(OSError):
            sys.stderr.flush()
        os.dup2(saved_stderr, 2)
        for descriptor in (log_descriptor, saved_stderr):
            os.close(descriptor)
        with suppress(OSError):
            private.close()


class TerminalState:
    """What the terminal was like before us, kept for the exits that skip every ``finally``."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        self._attributes = None
        with suppress(termios.error):
            self._attributes = termios.tcgetattr(self._descriptor)

    def force(self) -> None:
        """Restore modes and screen with plain system calls. Never raises, never blocks on a lock."""
        with suppress(OSError):
            os.set_blocking(self._descriptor, False)
            os.write(self._descriptor, RESTORE.encode())
        if self._attributes is not None:
            with suppress(termios.error, OSError):
                termios.tcsetattr(self._descriptor, termios.TCSANOW, self._attributes)


@contextmanager
def signals_leave_cleanly(state: TerminalState, ask_to_exit: Callable[[int], None]) -> Iterator[None]:
    """Turn SIGTERM, SIGHUP and SIGINT into ``ask_to_exit(128 + signal)``; the second one ends at once.

    ``ask_to_exit`` runs in the main thread, between two byte codes, and must only schedule the exit.
    """
    asked = threading.Event()

    def end_now(code: int) -> None:
        state.force()
        os._exit(code)

    def handle(number: int, _frame: FrameType | None) -> None:
        code = 128 + number
        if asked.is_set():
            end_now(code)
        asked.set()
        watchdog = threading.Timer(GRACE, end_now, (code,))
        watchdog.daemon = True
        watchdog.start()
        ask_to_exit(code)

    previous = {number: signal.signal(number, handle) for number in CAUGHT}
    try:
        yield
    finally:
        # Once asked to end, the watchdog stays armed: a thread that will not join must not keep us alive.
        for number, handler in previous.items():
            signal.signal(number, handler)


def _screen_descriptor() -> int:
    if not os.isatty(0):
        raise UsageError("the chat needs a terminal to read keys from: use `mynah ask -` for piped input")
    for descriptor in (1, 2):
        if os.isatty(descriptor):
            return descriptor
    raise UsageError(
        "the chat needs a terminal to draw on: use `mynah ask TEXT` when the output is redirected"
    )


def _open_log(path: Path) -> int:
    """The log for whatever native code prints; started afresh when it passed ``LOG_LIMIT`` bytes."""
    with suppress(OSError):
        if path.stat().st_size > LOG_LIMIT:
            path.unlink()
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
