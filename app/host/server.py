"""The host's HTTP interface: our own calls, and the OpenAI interface beside them.

Our own exists because the chat needs what the other cannot say: branches, what was left out, which version
answers, and failures by class. Both admit a question the same way (see core.py). A reply is stopped by hanging
up; the call for it serves clients that want to stop somebody else's.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from app.harness.dressing import Harness
from app.harness.guards import MOST_RETRIES
from app.host import openai_api
from app.host.capture import read
from app.host.core import Ask, Author, Host, Keep
from app.host.door import Access, Door, body_of, status_of
from app.host.events import TurnRequest, to_wire
from app.host.jobs import AtStrength, Exactly, Priority, Serve, Weights
from app.host.openai_wire import error_body
from app.host.replaying import replay
from app.host.requests import limits, text, turn_request
from app.host.sse import EventChannel, EventResponse
from store.errors import HostUnavailable, MynahError, UsageError

Handler = Callable[[Host, Request], Awaitable[Response]]


def application(host: Host, access: Access) -> Starlette:
    """The whole interface of one host, for those that ``access`` lets in."""
    own: list[tuple[str, str, Handler]] = [
        ("POST", "/mynah/turn", _turn),
        ("POST", "/mynah/stop", _stop),
        ("POST", "/mynah/replay", replay),
        ("GET", "/mynah/status", _status),
        ("GET", "/mynah/ping", _ping),
        ("POST", "/mynah/learn", _learn),
        ("POST", "/mynah/shutdown", _shutdown),
    ]
    routes = [Route(path, _plain(host, handler), methods=[method]) for method, path, handler in own]
    routes += [
        Route(path, openai_api.endpoint(host, handler), methods=[method])
        for method, path, handler in openai_api.ROUTES
    ]
    routes.append(Route("/health", _plain(host, _health), methods=["GET"]))
    app = Starlette(routes=routes, exception_handlers={404: _nothing_here, 405: _wrong_method})
    app.add_middleware(Door, host=host, access=access)
    return app


async def _nothing_here(request: Request, _error: Exception) -> Response:
    return JSONResponse(error_body(f"there is no {request.url.path} here", code="unknown_url"), 404)


async def _wrong_method(request: Request, error: Exception) -> Response:
    headers = error.headers if isinstance(error, HTTPException) else None
    message = f"{request.url.path} does not take {request.method}"
    return JSONResponse(error_body(message, code="method_not_allowed"), 405, headers)


def _plain(host: Host, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """A handler whose refusals are our own errors, in JSON that the client turns back into exceptions."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(host, request)
        except MynahError as error:
            return refusal(error)

    return answer


def refusal(error: MynahError) -> JSONResponse:
    """An error as our own clients read it."""
    kind = "UsageError" if isinstance(error, UsageError) else type(error).__name__
    content = {"error": {"kind": kind, "message": str(error), "exit_code": error.exit_code}}
    return JSONResponse(content, status_of(error))


async def _turn(host: Host, request: Request) -> Response:
    turn = turn_request(await body_of(request))
    ask = Ask(
        read=lambda store: read(store, turn),
        limits=limits(turn.sampler or {}),
        client=request.headers.get("x-mynah-client", "unknown"),
        priority=Priority.BACKGROUND if turn.aside else Priority.INTERACTIVE,
        keep=Keep.INCOGNITO if turn.incognito else Keep.RECORD,
        serve=_wanted(turn),
        harness=_harness(turn),
        items=turn.items,
        author=_author(turn),
        pasted=turn.pasted,
        # One that goes on with another has its beginning already: asking anew would be another reply.
        most_retries=0 if turn.extend is not None else MOST_RETRIES,
    )
    channel = EventChannel()
    job = await host.admit(ask, channel.sink)
    lines = (None if event is None else to_wire(event) async for event in channel.events())
    return EventResponse(lines, job.cancelled.set)


def _wanted(turn: TurnRequest) -> Weights:
    if turn.adapter is not None:
        return Exactly(turn.adapter, 1.0 if turn.strength is None else turn.strength)
    if turn.strength is not None:
        return AtStrength(turn.strength)
    return Serve.BASE if turn.base else Serve.ACTIVE


def _author(turn: TurnRequest) -> Author:
    if turn.items is not None or _harness(turn) is not Harness.ALL:
        return Author.PROGRAM
    return Author.OWNER if turn.typed else Author.PIPE


def _harness(turn: TurnRequest) -> Harness:
    """A version that is looked at by itself, and what the chat asks for its own ends, go without the owner's items."""
    if turn.items is not None:
        return Harness.ALL
    if turn.aside or turn.base or turn.adapter is not None:
        return Harness.OFF
    return Harness.RULES if turn.incognito else Harness.ALL


async def _stop(host: Host, request: Request) -> Response:
    handle = text(await body_of(request), "message")
    return JSONResponse({"stopped": handle is not None and host.engine.cancel(handle)})


async def _status(host: Host, _request: Request) -> Response:
    return JSONResponse({"pid": os.getpid(), **host.status()})


async def _ping(host: Host, _request: Request) -> Response:
    if host.ending.is_set():
        raise HostUnavailable("the model host is ending")
    return JSONResponse({"pid": os.getpid()})


async def _learn(host: Host, _request: Request) -> Response:
    host.supervisor.wake()
    return JSONResponse({"woken": True})


async def _shutdown(host: Host, _request: Request) -> Response:
    host.ending.set()
    return JSONResponse({"ending": True})


async def _health(host: Host, _request: Request) -> Response:
    ending = host.ending.is_set()
    return JSONResponse({"status": "ending" if ending else "ok"}, 503 if ending else 200)
