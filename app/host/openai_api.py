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
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from app.harness.dressing import Harness
from app.host import model_names, sse
from app.host import openai_wire as wire
from app.host.capture import Learn, Question, match
from app.host.core import Ask, Host, Keep, Window, prompt_of
from app.host.door import body_of, status_of
from app.host.events import Done, Failed, Queued, Scored, Started, Token, TurnEvent, failure_of
from app.host.jobs import Job, Priority, Serve
from app.host.model_names import Served, UnknownModel
from app.host.openai_request import Call, call_of
from app.host.openapi import description
from app.host.reply_parts import ReplyParts, Said
from app.host.requests import FieldError, number, text
from app.host.sse import EventChannel, EventResponse, hung_up
from app.model.renderer import Turn
from store import settings, signals, units
from store.db import Store
from store.errors import MynahError, UsageError
from store.types import ErrorClass, Role, SignalKind

Handler = Callable[[Host, Request], Awaitable[Response]]

_STATUS = {
    ErrorClass.CONTEXT_OVERFLOW: (400, "invalid_request_error", "context_length_exceeded"),
    ErrorClass.HOST_DOWN: (503, "unavailable_error", "host_ending"),
    ErrorClass.DISK_FULL: (507, "server_error", "disk_full"),
    ErrorClass.CANCELLED: (409, "invalid_request_error", "cancelled"),
}
_OWN_FAULT = (500, "server_error", None)
_COMPLETION = "chatcmpl-"
LEARN_HEADER = "x-mynah-learn"
MAX_WAITING = 64
"""Replies that wait for the model; more would wait for minutes, and their clients have given up by then."""


@dataclass(frozen=True)
class _Reply:
    """One reply under way, as its client asked for it."""

    host: Host
    call: Call
    served: Served
    job: Job
    channel: EventChannel

    def parts(self) -> ReplyParts:
        """What takes its text apart."""
        toolbox = self.call.toolbox
        return ReplyParts(frozenset() if toolbox is None else toolbox.names)

    def head(self, started: Started | None) -> wire.Head:
        """What all parts of the completion share; the version is known once the reply has started."""
        adapter = None if started is None else started.adapter
        # A reply that is not kept has no message, and can be given no feedback.
        message = self.job.id if started is None else started.message
        handle = message or self.job.id
        return wire.Head(
            id=f"{_COMPLETION}{handle}",
            created=int(time.time()),
            model=self.served.name,
            fingerprint=f"mynah-{self.host.runtime.info.base_hash[:8]}-{adapter or 'base'}",
            handle=handle,
            mynah={
                "message": message,
                "conversation": self.job.recorder.conversation,
                "adapter": adapter,
            },
        )


def endpoint(host: Host, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose refusals have the form clients of this interface parse."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(host, request)
        except FieldError as error:
            return JSONResponse(wire.error_body(str(error), param=error.field), status_of(error))
        except UnknownModel as error:
            return JSONResponse(
                wire.error_body(str(error), param="model", code="model_not_found"), status_of(error)
            )
        except MynahError as error:
            failure = failure_of(error)
            if failure.error_class in _STATUS:
                return _failure_response(failure)
            return JSONResponse(wire.error_body(str(error)), status_of(error))

    return answer


async def _chat(host: Host, request: Request) -> Response:
    call = call_of(await body_of(request))
    learn = _learn(request)
    served = await host.in_store(lambda store: model_names.find(store, host.runtime.info, call.model))
    if host.engine.status().queue >= MAX_WAITING:
        message = f"{MAX_WAITING} replies wait for this model already: ask again in a moment"
        return JSONResponse(
            wire.error_body(message, kind="rate_limit_error", code="rate_limit_exceeded"),
            429,
            {"Retry-After": "5"},
        )
    ask = Ask(
        read=lambda store: _question(store, call, learn),
        limits=call.limits,
        client=call.client or request.headers.get("authorization") or request.headers.get("user-agent", ""),
        priority=Priority.PROGRAM,
        keep=Keep.RECORD if call.stored else Keep.INCOGNITO,
        window=Window.REFUSE,
        serve=served.serve,
        likeliest=call.likeliest,
        stops=call.stops,
        grammar=call.grammar,
        grammar_after=call.grammar_after,
        harness=_harness(call, served),
    )
    channel = EventChannel()
    reply = _Reply(host, call, served, await host.admit(ask, channel.sink), channel)
    if not call.stream:
        return await _whole(request, reply)
    first = await _first(channel)
    if isinstance(first, Failed):
        return _failure_response(first)
    return EventResponse(_lines(reply, first), reply.job.cancelled.set)


def _question(store: Store, call: Call, learn: Learn) -> Question:
    turns = _turns(store, call)
    if not call.stored:
        return Question(turns)
    return replace(match(store, call.transcript.turns, call.transcript.ours, learn), turns=turns)


def _harness(call: Call, served: Served) -> Harness:
    """The owner's rules where a program leaves the form of the reply to us; memories are told to no program.

    One with a system prompt, tools or a form of its own has rules of its own, and log-probabilities are those of what
    was drawn, not of what a guard made of it.
    """
    bare = call.toolbox is None and call.grammar is None and call.likeliest is None
    told = any(turn.role is Role.SYSTEM for turn in call.transcript.turns)
    return Harness.RULES if bare and not told and served.serve is Serve.ACTIVE else Harness.OFF


def _turns(store: Store, call: Call) -> list[Turn]:
    return call.for_model(str(settings.get(store, settings.SYSTEM_PROMPT)))


def _learn(request: Request) -> Learn:
    try:
        return Learn(request.headers.get(LEARN_HEADER, Learn.ON).strip().lower())
    except ValueError:
        raise FieldError("X-Mynah-Learn", "the header X-Mynah-Learn must be on or off") from None


async def _first(channel: EventChannel) -> TurnEvent | None:
    """The first word of the engine after "queued", or None when it keeps a client waiting."""
    deadline = time.monotonic() + sse.PING_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        event = await channel.next(left)
        if not isinstance(event, Queued):
            return event
    return None


async def _whole(request: Request, reply: _Reply) -> Response:
    head, parts, spoken = reply.head(None), reply.parts(), wire.Spoken()
    scored: list[Scored] = []
    async with hung_up(request.receive, reply.job.cancelled.set):
        async for event in reply.channel.events():
            if isinstance(event, Started):
                head = reply.head(event)
            elif isinstance(event, Token):
                scored += event.scored
            elif isinstance(event, Done):
                for part in (*parts.feed(event.text), *parts.finish()):
                    spoken.add(part)
                wanted = None if reply.call.likeliest is None else scored
                return JSONResponse(wire.completion(head, event, spoken, wanted))
            elif isinstance(event, Failed):
                return _failure_response(event)
    raise AssertionError("a stream of events ends with Done or Failed")


async def _lines(reply: _Reply, first: TurnEvent | None) -> AsyncIterator[str | None]:
    head, parts, asks_usage = reply.head(None), reply.parts(), reply.call.include_usage
    said = SaidLines(head, asks_usage)
    scored: tuple[Scored, ...] = ()
    async for event in _chain(first, reply.channel.events()):
        if isinstance(event, Started):
            head = reply.head(event)
            said = SaidLines(head, asks_usage)
            yield _json(wire.chunk(head, {"role": "assistant", "content": ""}, None, asks_usage))
        elif isinstance(event, Token):
            scored += event.scored
            for part in parts.feed(event.text):
                if isinstance(part, Said) and not scored:
                    yield said.line(part.text)
                    continue
                yield _json(wire.chunk(head, wire.delta(head, part), None, asks_usage, scored))
                scored = ()
        elif isinstance(event, Done):
            for part in parts.finish():
                yield _json(wire.chunk(head, wire.delta(head, part), None, asks_usage))
            finish = wire.finish_reason(event.finish_reason, parts.calls)
            yield _json(wire.chunk(head, {}, finish, asks_usage, scored))
            if asks_usage:
                yield _json(wire.usage_chunk(head, event))
            yield "[DONE]"
        elif isinstance(event, Failed):
            _, kind, code = _status(event)
            yield _json(wire.error_body(event.message, kind=kind, code=code))
        elif event is None:
            yield None


class SaidLines:
    """The chunks of plain text, of which only the text differs: to write the rest anew costs as much as sending it."""

    def __init__(self, head: wire.Head, asks_usage: bool) -> None:
        line = _json(wire.chunk(head, {"content": ""}, None, asks_usage))
        self._before, empty, self._after = line.partition('"delta":{"content":""')
        self._before += empty[:-2]

    def line(self, text: str) -> str:
        """The line of one piece of text."""
        return f"{self._before}{json.dumps(text, ensure_ascii=False)}{self._after}"


async def _chain(
    first: TurnEvent | None, rest: AsyncIterator[TurnEvent | None]
) -> AsyncIterator[TurnEvent | None]:
    yield first
    async for event in rest:
        yield event


async def _count(host: Host, request: Request) -> Response:
    """How many tokens a request's prompt has, its system prompt and tools included; nothing is kept."""
    call = call_of(await body_of(request))
    await host.in_store(lambda store: model_names.find(store, host.runtime.info, call.model))
    tokens = await host.in_store(
        lambda store: prompt_of(host.runtime, _turns(store, call), 1, Window.REFUSE).tokens
    )
    return JSONResponse({"object": "response.input_tokens", "input_tokens": len(tokens)})


async def _models(host: Host, _request: Request) -> Response:
    served = await host.in_store(lambda store: model_names.all_of(store, host.runtime.info))
    return JSONResponse({"object": "list", "data": [each.as_json(host.started_at) for each in served]})


async def _model(host: Host, request: Request) -> Response:
    name = request.path_params["name"]
    served = await host.in_store(lambda store: model_names.find(store, host.runtime.info, name))
    return JSONResponse(served.as_json(host.started_at))


async def _openapi(_host: Host, _request: Request) -> Response:
    return JSONResponse(description())


async def _feedback(host: Host, request: Request) -> Response:
    fields = await body_of(request)
    kind = text(fields, "kind")
    # The id of the completion will do: clients have that without knowing of us.
    message = (text(fields, "message") or "").removeprefix(_COMPLETION)
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
    status, kind, code = _status(failure)
    # Clients send 409 and 5xx again by themselves; none of ours is better the second time.
    return JSONResponse(
        wire.error_body(failure.message, kind=kind, code=code), status, {"x-should-retry": "false"}
    )


def _status(failure: Failed) -> tuple[int, str, str | None]:
    if failure.exit_code == UsageError.exit_code:
        return 400, "invalid_request_error", None
    return _STATUS.get(failure.error_class, _OWN_FAULT)


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":"))


ROUTES: list[tuple[str, str, Handler]] = [
    ("POST", "/v1/chat/completions", _chat),
    ("POST", "/v1/chat/completions/input_tokens", _count),
    ("GET", "/v1/models", _models),
    ("GET", "/v1/models/{name:path}", _model),
    ("POST", "/v1/feedback", _feedback),
    ("GET", "/openapi.json", _openapi),
]
