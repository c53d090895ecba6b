"""Waits until the chat has nothing left to do, instead of until the machine looks idle.

Textual's pilot takes a process that uses little processor time for one that is done, and on a loaded machine every
process uses little: a key then returns before what it leads to is there, and a test fails by chance. At rest means
that no widget has a message left, nothing waits for a refresh, no short call is under way in the background and no
Enter waits to be told from a pasted one. It costs less than the pilot's sleeps (40 ms a key), too.

What has a clock of its own (a search that waits for the typing to end, a look twice a second, a stream) is no part
of it: a test waits for those by name, with ``Chat.until``.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from textual._context import active_app
from textual.app import App
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from app.tui.background import Background
from app.tui.composer import Composer

PATIENCE = 120.0
# A thread's message takes a turn of the event loop to arrive, and what it leads to another.
_TURNS = 3
_BRISK = 100


class _Calls:
    """The short calls that are under way in the background, by whom they are given to."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number: Counter[MessagePump] = Counter()
        self.held = False

    def of(self, pump: MessagePump) -> bool:
        """Whether something under way will be given to a pump. What is for a screen that has gone does not count."""
        return not self.held and self._number[pump] > 0

    def change(self, pump: MessagePump, by: int) -> None:
        with self._lock:
            self._number[pump] += by


_calls = _Calls()


@contextmanager
def calls_held() -> Iterator[None]:
    """Do not wait for calls: for a test that holds one back on purpose."""
    _calls.held = True
    try:
        yield
    finally:
        _calls.held = False


async def rest(app: App[Any]) -> None:
    """Wait until an app is at rest; at once where it has ended.

    Raises:
        TimeoutError: it does not come to rest.
    """
    quiet = turns = 0
    async with asyncio.timeout(PATIENCE):
        while quiet < _TURNS and _lives(app):
            await asyncio.sleep(0 if turns < _BRISK else 0.002)
            turns += 1
            if not _idle(app):
                quiet = 0
            elif _lives(app):
                # What the screen draws at its next tick, at once: laying out sends messages of its own.
                app.screen._on_timer_update()
                quiet += 1


def _lives(app: App[Any]) -> bool:
    return app._running and not app._exit and app._exception is None and bool(app.screen_stack)


def _idle(app: App[Any]) -> bool:
    return all(_waits(pump) and not _calls.of(pump) for pump in _pumps(app)) and not any(
        screen._callbacks or any(box._enter for box in screen.query(Composer)) for screen in app.screen_stack
    )


def _pumps(app: App[Any]) -> Iterator[MessagePump]:
    yield app
    for screen in app.screen_stack:
        yield from screen.walk_children(with_self=True)


def _waits(pump: MessagePump) -> bool:
    """Whether a pump has ended, or has nothing to do but to wait for its next message."""
    queue: Any = pump._message_queue
    waited_for = bool(queue.ready_event._waiters) and queue.empty()
    return pump._closed or (waited_for and not pump._next_callbacks)


def _install() -> None:
    """Let Textual's own pilot wait like this, for the whole run."""
    patch = pytest.MonkeyPatch()
    run = Background._run

    def counted(name: str) -> Callable[..., None]:
        begin = getattr(Background, name)

        def call(background: Background, *given: Any) -> None:
            _calls.change(background._owner, +1)
            begin(background, *given)

        return call

    def ended(background: Background, work: Any, then: Any, failed: Any) -> None:
        try:
            run(background, work, then, failed)
        finally:
            if threading.current_thread().name == "mynah-calls":
                _calls.change(background._owner, -1)

    async def wait_for_screen(pilot: Pilot[Any], timeout: float = PATIENCE) -> bool:
        await rest(pilot.app)
        return True

    async def wait_for_idle(least: float = 0.0, most: float = 0.0) -> None:
        app = active_app.get(None)
        if app is not None:
            await rest(app)
        else:
            await asyncio.sleep(0)

    patch.setattr(Background, "call", counted("call"))
    patch.setattr(Background, "_run", ended)
    patch.setattr(Pilot, "_wait_for_screen", wait_for_screen)
    patch.setattr("textual.app.wait_for_idle", wait_for_idle)
    patch.setattr("textual.pilot.wait_for_idle", wait_for_idle)


_install()
