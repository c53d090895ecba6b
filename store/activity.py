"""The lease by which a reply keeps the learner off the processor, in sixteen bytes of shared memory.

The host holds it while it evaluates a prompt or writes tokens; the learner looks at it between micro-batches
and between transformer layers. A message through the database would cost a query per layer, and a signal such
as SIGSTOP could stop the learner inside a transaction and block the host in turn; reading two doubles from a
mapped file costs under a microsecond. A lease ends by itself: a host that is killed in the middle of a reply
leaves a stale time, not a stuck learner.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct
import time
from types import TracebackType

from store.home import PRIVATE_FILE, Home

LEASE_SECONDS = 2.0
"""Longest time one prompt batch takes on the slowest supported model, with room: 64 tokens at 85/s are 0.75 s."""

_FORMAT = struct.Struct("<dd")
_POLL_SECONDS = 0.01


class Activity:
    """Shared view of ``<home>/activity``: (held until, last released), both in ``time.monotonic`` seconds."""

    def __init__(self, home: Home) -> None:
        descriptor = os.open(home.activity, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
        try:
            if os.fstat(descriptor).st_size < _FORMAT.size:
                os.ftruncate(descriptor, _FORMAT.size)
            self._map = mmap.mmap(descriptor, _FORMAT.size)
        finally:
            os.close(descriptor)

    def hold(self) -> None:
        """Say that a reply is being made; to be repeated at each token and prompt batch."""
        _, released = _FORMAT.unpack(self._map[:])
        self._map[:] = _FORMAT.pack(time.monotonic() + LEASE_SECONDS, released)

    def release(self) -> None:
        """Say that the reply ended."""
        self._map[:] = _FORMAT.pack(0.0, time.monotonic())

    @property
    def held(self) -> bool:
        """Whether a reply is being made now."""
        until, _ = _FORMAT.unpack(self._map[:])
        # The upper bound matters after a reboot, when the clock starts again below an old lease.
        return bool(0.0 < until - time.monotonic() <= LEASE_SECONDS)

    @property
    def signal(self) -> int:
        """Address of a byte that is not 0 while the lease is held, for code that cannot ask Python.

        It is the last of the time's eight, with the sign and the top of the exponent: 0 for 0.0 alone. A holder that
        died leaves it as it was, so it only says that it is worth while to look at `held`.
        """
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        return start + ctypes.sizeof(ctypes.c_double) - 1

    def wait_until_free(self, max_wait: float) -> float:
        """Sleep while a reply is being made, ``max_wait`` seconds at the longest; returns the seconds slept."""
        if not self.held:
            return 0.0
        began = time.monotonic()
        while self.held and time.monotonic() - began < max_wait:
            time.sleep(_POLL_SECONDS)
        return time.monotonic() - began

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def __enter__(self) -> Activity:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
