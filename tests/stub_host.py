"""A host that says what a test tells it to: the client's protocol without a model behind it."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from app.host.events import TurnEvent, to_wire
from store.home import Home

TOKEN = "stub"


class StubHost(ThreadingHTTPServer):
    """Answers every turn with ``events``, and remembers the requests."""

    daemon_threads = True

    def __init__(self, events: list[TurnEvent]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.events = events
        self.turns: list[dict[str, Any]] = []


class _Handler(BaseHTTPRequestHandler):
    server: StubHost

    def do_GET(self) -> None:
        self._answer(json.dumps({"pid": os.getpid(), "model": "stub", "adapter": None}).encode())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or b"{}")
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.send_error(401)
        elif self.path == "/mynah/turn":
            self.server.turns.append(body)
            self._answer(b"".join(f"data: {to_wire(event)}\n\n".encode() for event in self.server.events))
        else:
            self._answer(b"{}")

    def _answer(self, content: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: standard error belongs to the test."""


@contextmanager
def stub_host(home: Home, events: list[TurnEvent]) -> Iterator[StubHost]:
    """Run a stub for the length of the block, where the client looks for the host of ``home``."""
    server = StubHost(events)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    host, port = server.server_address[:2]
    address = {"pid": os.getpid(), "host": host, "port": port, "token": TOKEN, "version": "0", "started": ""}
    home.host_json.write_text(json.dumps(address), encoding="utf-8")
    home.host_json.chmod(0o600)
    try:
        yield server
    finally:
        home.host_json.unlink(missing_ok=True)
        server.shutdown()
        thread.join()
        server.server_close()
