"""A bound on how long a step may be silent: a step that hangs ends its run with a reason, not the learner's evening.

Built on the process's alarm clock, because what hangs is a call into a library that no flag of ours is looked at in. It
rings in the main thread only, where the learner works; anywhere else there is nobody to wake, and nothing is bounded.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from store.errors import LearnerError


@contextmanager
def bounded(seconds: float, reason: str) -> Iterator[Callable[[], None]]:
    """Raise LearnerError with ``reason`` when the block is silent for so long; it calls what it is given to be heard.

    What waits for the owner's reply to end must call it after the wait: that wait is no hanging.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: None
        return

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise LearnerError(reason)

    def heard() -> None:
        signal.setitimer(signal.ITIMER_REAL, seconds)

    before = signal.signal(signal.SIGALRM, ring)
    heard()
    try:
        yield heard
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
