"""Who may come in. A server on a local port is reachable by every web page its owner has open.

So the `Host` header must name this machine (a rebound DNS name does not), and a page of a foreign origin is
refused before anything is read; pages of this machine and those on the owner's list may read answers under
/v1, nobody else's. Our own calls need the token of a file that only the owner can read. Where a key is set, and
beyond loopback one must be, everything under /v1 needs it. Whoever is inside keeps the host from going idle.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.host.core import Host
from app.host.openai_wire import error_body
from app.host.requests import FieldError, mapping
from store.addresses import is_loopback
from store.errors import DiskFull, HostUnavailable, MynahError, NotFound

MAX_BODY = 16 * 1024 * 1024
_BODY_SECONDS = 30.0
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_OPEN_PATHS = ("/health",)
_METHODS = "GET, POST, OPTIONS"
_HEADERS = ("authorization", "content-type", "accept", "x-api-key", "x-mynah-learn", "openai-beta")
_PREFIXES = ("x-stainless-", "openai-")


@dataclass(frozen=True)
class Access:
    """Whom a host lets in: the address it listens on, the key of /v1 (None: none), and pages from elsewhere."""

    bound: str = "127.0.0.1"
    key: str | None = None
    origins: frozenset[str] = frozenset()

    @property
    def local(self) -> bool:
        """Whether only this machine can reach it."""
        return is_loopback(self.bound)


class TooLarge(FieldError):
    """A request is larger than any that could be answered."""


class TooSlow(FieldError):
    """The body of a request does not come."""


class Door:
    """Who may come in, and that somebody is in."""

    def __init__(self, app: ASGIApp, host: Host, access: Access) -> None:
        self._app = app
        self._host = host
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        path = scope["path"]
        origin = headers.get("origin")
        if origin is not None and self._may_read(path, origin):
            send = _readable(send, origin)
        refused = self._refused(scope["method"], path, headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        with self._host.needed():
            await self._app(scope, receive, send)

    def _refused(self, method: str, path: str, headers: dict[str, str]) -> Response | None:
        """The refusal of a request, or the answer to a browser's question before one; None lets it in."""
        if self._access.local and not _names_this_machine(f"//{headers.get('host', '')}"):
            return _no(403, "this host answers to local names only", "forbidden_host")
        origin = headers.get("origin")
        # A page can fetch without naming itself, as an image; browsers say that much of it.
        hidden = origin is None and headers.get("sec-fetch-site") == "cross-site"
        if hidden or (origin is not None and not self._welcome(origin)):
            return _no(403, "web pages of other origins may not use this host", "forbidden_origin")
        if origin is not None and method == "OPTIONS" and self._may_read(path, origin):
            return _preflight(headers)
        if not self._admitted(path, headers):
            return _no(401, "the key is missing or wrong", "invalid_api_key")
        return None

    def _welcome(self, origin: str) -> bool:
        return origin in self._access.origins or _names_this_machine(origin)

    def _may_read(self, path: str, origin: str) -> bool:
        return not path.startswith("/mynah/") and self._welcome(origin)

    def _admitted(self, path: str, headers: dict[str, str]) -> bool:
        if path in _OPEN_PATHS:
            return True
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        if path.startswith("/mynah/"):
            return _same(given, self._host.token)
        if self._access.key is None and self._access.local:
            return True
        # Our own programs have the token of this home, whatever key others were given.
        return _same(given, self._host.token) or _same(given, self._access.key or "")


def _same(given: str, wanted: str) -> bool:
    """Equal, in a time that tells nothing; an empty key opens nothing."""
    return bool(wanted) and hmac.compare_digest(given.encode(), wanted.encode())


def _names_this_machine(address: str) -> bool:
    try:
        return urlsplit(address).hostname in _LOCAL_NAMES
    except ValueError:
        return False


def _readable(send: Send, origin: str) -> Send:
    """Answers that a page of this origin may read."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            allowed = [
                (b"access-control-allow-origin", origin.encode("latin-1")),
                (b"access-control-expose-headers", b"retry-after"),
                (b"vary", b"Origin"),
            ]
            message = {**message, "headers": [*message.get("headers", []), *allowed]}
        await send(message)

    return sending


def _preflight(headers: dict[str, str]) -> Response:
    asked = [name.strip() for name in headers.get("access-control-request-headers", "").lower().split(",")]
    allowed = [name for name in asked if name in _HEADERS or name.startswith(_PREFIXES)]
    answer = {
        "Access-Control-Allow-Methods": _METHODS,
        "Access-Control-Allow-Headers": ", ".join(allowed),
        "Access-Control-Max-Age": "600",
    }
    if headers.get("access-control-request-private-network") == "true":
        answer["Access-Control-Allow-Private-Network"] = "true"
    return Response(status_code=204, headers=answer)


def _no(status: int, message: str, code: str) -> Response:
    return JSONResponse(error_body(message, code=code), status)


def status_of(error: MynahError) -> int:
    """The HTTP status that says whose fault an error is: 4xx are never worth a retry."""
    for kind, status in _STATUSES:
        if isinstance(error, kind):
            return status
    return 400


_STATUSES: tuple[tuple[type[MynahError], int], ...] = (
    (TooLarge, 413),
    (TooSlow, 408),
    (NotFound, 404),
    (DiskFull, 507),
    (HostUnavailable, 503),
)


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object a request carries; an empty body is an empty object.

    Raises:
        FieldError: too large, too slow, or no JSON object.
    """
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            data = await _bytes_of(request)
    except TimeoutError:
        raise TooSlow("body", f"the request did not arrive within {_BODY_SECONDS:.0f} s") from None
    try:
        return mapping(json.loads(data or b"{}"))
    except (ValueError, RecursionError) as error:
        raise FieldError("body", f"the request is not valid JSON: {error}") from None


async def _bytes_of(request: Request) -> bytearray:
    data = bytearray()
    announced = request.headers.get("content-length", "0")
    if not announced.isdecimal() or int(announced[:20]) > MAX_BODY:
        raise TooLarge("body", f"the request is larger than {MAX_BODY // 2**20} MiB")
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BODY:
            raise TooLarge("body", f"the request is larger than {MAX_BODY // 2**20} MiB")
    return data
