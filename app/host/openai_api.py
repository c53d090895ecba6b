"""The OpenAI chat interface over the same engine: existing programs talk to Mynah, and what they say teaches it.

A refusal comes before the first byte of a stream, with a status: a client that is sent an empty stream takes it
for an empty answer. So the head of a response waits for the engine's first word, ten seconds at the most; then
it is sent, and comments keep the line open. User errors are never 5xx, which clients send again twice. Once a
stream has begun, a failure is an error event, and no `[DONE]` follows it.
"""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.host import openai_wire as wire
from app.host.capture import Question, match
from app.host.core import Ask, Host, Keep, Window
from app.host.door import body_of, status_of
from app.host.events import Done, Failed, Queued, Started, Token, TurnEvent, failure_of
from app.host.jobs import Job, Priority
from app.host.requests import FieldError, number, text
from app.host.sse import PING_SECONDS, EventChannel, EventResponse, hung_up
from store import signals, units
from store.db import Store
from store.errors import MynahError
from store.types import ErrorClass, SignalKind

Handler = Callable[[Host, Request], Awaitable[Response]]

_STATUS = {
    ErrorClass.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorClass.HOST_DOWN: (503, "unavailable_error", "host_ending"),
    ErrorClass.DISK_FULL: (507, "server_error", "disk_full"),
    ErrorClass.CANCELLED: (409, "invalid_request_error", "cancelled"),
}
_OWN_FAULT = (500, "server_error", None)


def endpoint(host: Host, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose refusals have the form clients of this interface parse."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(host, request)
        except FieldError as error:
            return JSONResponse(wire.error_body(str(error), param=error.field), 400)
        except MynahError as error:
            failure = failure_of(error)
            if failure.error_class in _STATUS:
                return _failure_response(failure)
            return JSONResponse(wire.error_body(str(error)), status_of(error))

    return answer


async def _chat(host: Host, request: Request) -> Response:
    call = wire.call_of(await body_of(request))
    name = host.runtime.info.name
    if call.model not in (None, name):
        return _unknown_model(str(call.model))
    ask = Ask(
        read=lambda store: match(store, call.turns) if call.stored else Question(call.turns),
        limits=call.limits,
        client=call.client or request.headers.get("authorization") or request.headers.get("user-agent", ""),
        priority=Priority.PROGRAM,
        keep=Keep.RECORD if call.stored else Keep.INCOGNITO,
        window=Window.REFUSE,
        stops=call.stops,
    )
    channel = EventChannel()
    job = await host.admit(ask, channel.sink)
    if not call.stream:
        return await _whole(host, request, job, channel)
    first = await _first(channel)
    if isinstance(first, Failed):
        return _failure_response(first)
    lines = _lines(host, job, call, first, channel.events())
    return EventResponse(lines, job.cancelled.set)


async def _first(channel: EventChannel) -> TurnEvent | None:
    """The first word of the engine after "queued", or None when it keeps a client waiting."""
    deadline = time.monotonic() + PING_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        event = await channel.next(left)
        if not isinstance(event, Queued):
            return event
    return None


async def _whole(host: Host, request: Request, job: Job, channel: EventChannel) -> Response:
    head = _head(host, job, None)
    async with hung_up(request.receive, job.cancelled.set):
        async for event in channel.events():
            if isinstance(event, Started):
                head = _head(host, job, event)
            elif isinstance(event, Done):
                return JSONResponse(wire.completion(head, event))
            elif isinstance(event, Failed):
                return _failure_response(event)
    raise AssertionError("a stream of events ends with Done or Failed")


async def _lines(
    host: Host, job: Job, call: wire.Call, first: TurnEvent | None, rest: AsyncIterator[TurnEvent | None]
) -> AsyncIterator[str | None]:
    head = _head(host, job, None)
    async for event in _chain(first, rest):
        if isinstance(event, Started):
            head = _head(host, job, event)
            opening = {"role": "assistant", "content": ""}
            yield _json(wire.chunk(head, opening, None, call.include_usage))
        elif isinstance(event, Token):
            yield _json(wire.chunk(head, {"content": event.text}, None, call.include_usage))
        elif isinstance(event, Done):
            yield _json(wire.chunk(head, {}, wire.finish_reason(event.finish_reason), call.include_usage))
            if call.include_usage:
                yield _json(wire.usage_chunk(head, event))
            yield "[DONE]"
        elif isinstance(event, Failed):
            _, kind, code = _STATUS.get(event.error_class, _OWN_FAULT)
            yield _json(wire.error_body(event.message, kind=kind, code=code))
        elif event is None:
            yield None


async def _chain(
    first: TurnEvent | None, rest: AsyncIterator[TurnEvent | None]
) -> AsyncIterator[TurnEvent | None]:
    yield first
    async for event in rest:
        yield event


def _head(host: Host, job: Job, started: Started | None) -> wire.Head:
    """What all parts of the completion share; the version is known once the reply has started."""
    adapter = None if started is None else started.adapter
    message = job.id if started is None else started.message
    info = host.runtime.info
    return wire.Head(
        # A reply that is not kept has no message, and can be given no feedback.
        id=f"chatcmpl-{message or job.id}",
        created=int(time.time()),
        model=info.name,
        fingerprint=f"mynah-{info.base_hash[:8]}-{adapter or 'base'}",
        mynah={"message": message, "conversation": job.recorder.conversation, "adapter": adapter},
    )


async def _models(host: Host, _request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [_model_object(host)]})


async def _model(host: Host, request: Request) -> Response:
    name = request.path_params["name"]
    return JSONResponse(_model_object(host)) if name == host.runtime.info.name else _unknown_model(name)


def _model_object(host: Host) -> dict[str, Any]:
    return wire.model_object(host.runtime.info.name, host.started_at)


def _unknown_model(name: str) -> Response:
    message = f"there is no model called {name!r} here: ask /v1/models for the name"
    return JSONResponse(wire.error_body(message, param="model", code="model_not_found"), 404)


async def _feedback(host: Host, request: Request) -> Response:
    fields = await body_of(request)
    message, kind = text(fields, "message"), text(fields, "kind")
    if not message:
        raise FieldError("message", "message must be the id of a reply")
    value, words = number(fields, "value", None), text(fields, "text")
    if kind == SignalKind.THUMB:
        if value not in (-1, 0, 1):
            raise FieldError("value", "value must be 1, -1, or 0 to take a rating back")
    elif kind == SignalKind.CORRECTION:
        value = None
        if not words or not words.strip():
            raise FieldError("text", "text must be what the reply should have been")
    else:
        raise FieldError("kind", "kind must be thumb or correction")

    def record(store: Store) -> dict[str, str | None]:
        signal = signals.record(store, message, SignalKind(kind), value=value, text=words)
        fate = units.fate(store, message)
        return {"signal": signal.id, "message": message, "fate": None if fate is None else fate.text}

    answer = await host.in_store(record)
    host.supervisor.wake()
    return JSONResponse(answer)


def _failure_response(failure: Failed) -> Response:
    status, kind, code = _STATUS.get(failure.error_class, _OWN_FAULT)
    # Clients send 409 and 5xx again by themselves; none of ours is better the second time.
    return JSONResponse(
        wire.error_body(failure.message, kind=kind, code=code), status, {"x-should-retry": "false"}
    )


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/chat/completions", _chat),
    ("GET", "/v1/models", _models),
    ("GET", "/v1/models/{name:path}", _model),
    ("POST", "/v1/feedback", _feedback),
]
