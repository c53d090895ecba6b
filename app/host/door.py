"""Who may come in. A server on a local port is reachable by every web page its owner has open.

So the `Host` header must name this machine (a rebound DNS name does not), a foreign `Origin` is refused before
anything is read, no cross-origin header is ever sent, and our own calls need the token of a file that only the
owner can read. Beyond loopback everything needs that token. Whoever is inside keeps the host from going idle.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
from typing import Any
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from app.host.core import Host
from app.host.openai_wire import error_body
from app.host.requests import FieldError, mapping
from store.errors import DiskFull, HostUnavailable, MynahError, NotFound

MAX_BODY = 16 * 1024 * 1024
_LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


class Door:
    """Who may come in, and that somebody is in."""

    def __init__(self, app: ASGIApp, host: Host, bound: str) -> None:
        self._app = app
        self._host = host
        self._loopback = _is_loopback(bound)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refused(scope["path"], headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        with self._host.needed():
            await self._app(scope, receive, send)

    def _refused(self, path: str, headers: dict[str, str]) -> Response | None:
        if self._loopback and not _names_this_machine(f"//{headers.get('host', '')}"):
            return _no(403, "this host answers to local names only", "forbidden_host")
        origin = headers.get("origin")
        if origin is not None and not _names_this_machine(origin):
            return _no(403, "web pages may not use this host", "forbidden_origin")
        own = path.startswith("/mynah/")
        if (own or (not self._loopback and path != "/health")) and not self._knows_token(headers):
            return _no(401, "the token is missing or wrong", "invalid_api_key")
        return None

    def _knows_token(self, headers: dict[str, str]) -> bool:
        given = headers.get("authorization", "").removeprefix("Bearer ") or headers.get("x-api-key", "")
        return hmac.compare_digest(given.encode(), self._host.token.encode())


def _is_loopback(name: str) -> bool:
    try:
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def _names_this_machine(address: str) -> bool:
    try:
        return urlsplit(address).hostname in _LOCAL_NAMES
    except ValueError:
        return False


def _no(status: int, message: str, code: str) -> Response:
    return JSONResponse(error_body(message, code=code), status)


def status_of(error: MynahError) -> int:
    """The HTTP status that says whose fault an error is: 4xx are never worth a retry."""
    for kind, status in ((NotFound, 404), (DiskFull, 507), (HostUnavailable, 503)):
        if isinstance(error, kind):
            return status
    return 400


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object a request carries; an empty body is an empty object.

    Raises:
        FieldError: too large, or no JSON object.
    """
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MAX_BODY:
            raise FieldError("body", f"the request is larger than {MAX_BODY // 2**20} MiB")
    try:
        return mapping(json.loads(data or b"{}"))
    except (ValueError, RecursionError) as error:
        raise FieldError("body", f"the request is not valid JSON: {error}") from None
