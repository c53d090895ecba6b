"""Server-sent events over ASGI: a stream that says it is alive, and notices at once when nobody listens.

A client that goes away is how a reply is stopped, also while its prompt is still being evaluated and nothing is
being sent. Starlette's own streaming response learns of that only from a failed send, so this one watches for
the disconnect beside the stream. Comment lines every ten seconds keep proxies and clients from giving up.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.host.events import Done, Failed, TurnEvent

PING_SECONDS = 10.0
_PING = b": ping\n\n"


class EventChannel:
    """Events of one job, from the engine's thread into the server's loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._events: deque[TurnEvent] = deque()
        self._waiting: asyncio.Future[None] | None = None

    def sink(self, event: TurnEvent) -> None:
        """Hand over an event; may be called in any thread, also when the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._put, event)

    def _put(self, event: TurnEvent) -> None:
        self._events.append(event)
        self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    async def next(self, seconds: float) -> TurnEvent | None:
        """The next event, or None after so many seconds without one."""
        if not self._events:
            # A plain future: a queue with a timeout around it costs three times as much, and this is every token.
            self._waiting = self._loop.create_future()
            alarm = self._loop.call_later(seconds, self._wake)
            try:
                await self._waiting
            finally:
                alarm.cancel()
        return self._events.popleft() if self._events else None

    async def events(self) -> AsyncIterator[TurnEvent | None]:
        """All events up to the last; None whenever nothing came for ten seconds."""
        while True:
            event = await self.next(PING_SECONDS)
            yield event
            if isinstance(event, Done | Failed):
                return


class EventResponse(Response):
    """Streams what an iterator of data lines yields; None becomes a comment. ``hung_up`` is called on disconnect."""

    media_type = "text/event-stream"

    def __init__(self, lines: AsyncIterator[str | None], hung_up: Callable[[], None]) -> None:
        self.lines = lines
        self.hung_up = hung_up
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-store", "X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream; ends early, and calls ``hung_up``, when the client goes away."""
        stream = asyncio.ensure_future(self._stream(send))
        watch = asyncio.ensure_future(_disconnected(receive))
        try:
            await asyncio.wait({stream, watch}, return_when=asyncio.FIRST_COMPLETED)
            if stream.done():
                await stream
        finally:
            if not stream.done() or stream.cancelled() or stream.exception() is not None:
                self.hung_up()
            for task in (stream, watch):
                task.cancel()
            await asyncio.gather(stream, watch, return_exceptions=True)

    async def _stream(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for line in self.lines:
            body = _PING if line is None else f"data: {line}\n\n".encode()
            await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextlib.asynccontextmanager
async def hung_up(receive: Receive, then: Callable[[], None]) -> AsyncIterator[None]:
    """Within the block, call ``then`` if the client goes away. The request's body must have been read."""
    watch = asyncio.ensure_future(_disconnected(receive))
    watch.add_done_callback(lambda task: None if task.cancelled() else then())
    try:
        yield
    finally:
        watch.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
