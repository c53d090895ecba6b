"""Who runs on a home, and how a process is ended: by the lock it holds, never by a file that names a number.

A process id on disk may be of a program that died and whose number was given to another. The kernel drops a lock
with its holder, so a lock that is held names a living process, and one that is free says there is none.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import time

from store.errors import HostUnavailable

_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05


def holder(lock: os.PathLike[str]) -> int | None:
    """The process that holds a lock file of ours, or None where nobody does."""
    try:
        descriptor = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except BlockingIOError:
        text = os.pread(descriptor, 32, 0).strip()
        return int(text) if text.isdigit() else None
    finally:
        os.close(descriptor)


def end(pid: int, lock: os.PathLike[str], asked: bool) -> bool:
    """End the holder of a lock: waited for if it was ``asked`` to go, then told, then killed; True once it is gone.

    Raises:
        HostUnavailable: it is still there.
    """
    for step in ([None] if asked else []) + [signal.SIGTERM, signal.SIGKILL]:
        if step is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, step)
        deadline = time.monotonic() + _STOP_SECONDS
        while time.monotonic() < deadline:
            if holder(lock) != pid:
                return True
            time.sleep(_POLL_SECONDS)
    raise HostUnavailable(f"process {pid} does not end: stop it by hand (`kill -9 {pid}`)")
