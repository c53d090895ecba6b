"""How every other process reaches the host, starting one where none runs. Standard library only.

`mynah ask` imports this and little else: http.client costs 20 ms where httpx costs 200. A host may have died
a moment ago, with its address still on disk, so an address is believed only when the process behind it
answers to the right token; and a request that dies before its first piece of text is sent once more to a new
host, as "answer that message" when the host had already saved it, so that nothing is said twice.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from app.host.events import Failed, Queued, Started, Token, TurnEvent, TurnRequest, failure_of, from_wire
from app.host.processes import end, holder
from store import cipher
from store.errors import (
    ContextOverflow,
    DiskFull,
    EncryptionError,
    HomeError,
    HostUnavailable,
    MynahError,
    NotFound,
    UsageError,
)
from store.home import Home
from store.types import ErrorClass

__all__ = [
    "Endpoint",
    "HostClient",
    "TurnRequest",
    "TurnStream",
    "ensure_host",
    "failed",
    "holder",
    "host_command",
    "running_host",
    "stop_host",
    "stop_learner",
]

START_SECONDS = 300.0
"""A first start may convert the model (15 s for 135M parameters on two busy cores) on a slow disk."""

_CALL_SECONDS = 20.0
_SILENCE_SECONDS = 60.0
"""The host sends a comment line every 10 s at the least while a client waits."""

_PROBE_SECONDS = 5.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Endpoint:
    """Where a host listens, as `host.json` has it."""

    pid: int
    host: str
    port: int
    token: str
    version: str = ""
    started: str = ""

    @classmethod
    def read(cls, home: Home) -> Endpoint | None:
        """The endpoint on disk, which may be of a dead host; None where there is none."""
        try:
            fields = json.loads(home.host_json.read_text(encoding="utf-8"))
            return cls(**{name: fields[name] for name in cls.__dataclass_fields__ if name in fields})
        except (OSError, ValueError, TypeError, AttributeError):
            return None


class HostClient:
    """One host, reached over loopback. Safe to use from several threads: each call has its own connection."""

    def __init__(self, home: Home, endpoint: Endpoint) -> None:
        self.home = home
        self.endpoint = endpoint

    def turn(self, request: TurnRequest) -> TurnStream:
        """Ask for a reply; iterate over the result for its events, close it to stop the reply."""
        return TurnStream(self, request)

    def status(self) -> dict[str, Any]:
        """What the host is doing; also counts as a sign that somebody needs it."""
        return self._call("GET", "/mynah/status")

    def stop(self, handle: str) -> bool:
        """Stop a reply by its message or job; False if it had already ended."""
        return bool(self._call("POST", "/mynah/stop", {"message": handle})["stopped"])

    def learn(self) -> None:
        """Have the host look now whether there is something to learn."""
        self._call("POST", "/mynah/learn", {})

    def shutdown(self) -> None:
        """Ask the host to end; it says yes before it goes."""
        self._call("POST", "/mynah/shutdown", {})

    def alive(self) -> bool:
        """Whether the process behind the endpoint is this host, and answers."""
        try:
            return bool(self._call("GET", "/mynah/ping", seconds=_PROBE_SECONDS)["pid"] == self.endpoint.pid)
        except (MynahError, KeyError):
            return False

    def _call(
        self, method: str, path: str, body: dict[str, Any] | None = None, seconds: float = _CALL_SECONDS
    ) -> dict[str, Any]:
        connection = self.connect(seconds)
        try:
            response = self.send(connection, method, path, body)
            answer: dict[str, Any] = json.loads(response.read() or b"{}")
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HostUnavailable(_unreachable(self.home)) from error
        finally:
            connection.close()
        return answer

    def connect(self, seconds: float) -> http.client.HTTPConnection:
        """A connection that is not open yet, silent for ``seconds`` at the most."""
        return http.client.HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=seconds)

    def send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: dict[str, Any] | None
    ) -> http.client.HTTPResponse:
        """Send a request and read the head of its answer.

        Raises:
            MynahError: the host refused, in its words.
        """
        headers = {
            "Authorization": f"Bearer {self.endpoint.token}",
            "Content-Type": "application/json",
            "X-Mynah-Client": str(os.getpid()),
        }
        connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
        response = connection.getresponse()
        if response.status >= 400:
            raise _refusal(response.status, response.read())
        return response


class TurnStream:
    """The events of one reply. Iterate in one thread; `close` from any other ends it, and stops the reply."""

    def __init__(self, client: HostClient, request: TurnRequest) -> None:
        self._client = client
        self._request = request
        self._connection: http.client.HTTPConnection | None = None
        self._closed = False
        self._saved: Queued | Started | None = None
        self._spoke = False

    def __iter__(self) -> Iterator[TurnEvent]:
        try:
            yield from self._attempts()
        finally:
            self.close()

    def _attempts(self) -> Iterator[TurnEvent]:
        try:
            yield from self._events()
            return
        except HostUnavailable:
            if self._closed:
                return
            if self._spoke:
                raise
        self._client = ensure_host(self._client.home)
        self._request = self._request.resumed(self._saved)
        try:
            yield from self._events()
        except HostUnavailable:
            if not self._closed:
                raise

    def _events(self) -> Iterator[TurnEvent]:
        connection = self._connection = self._client.connect(_SILENCE_SECONDS)
        try:
            try:
                response = self._client.send(connection, "POST", "/mynah/turn", asdict(self._request))
            except HostUnavailable:
                raise
            except MynahError as error:
                yield failure_of(error)
                return
            for line in response:
                if not line.startswith(b"data:"):
                    continue
                event = from_wire(line[5:].decode())
                if self._closed:
                    break
                if event is None:
                    continue
                self._note(event)
                yield event
                if not isinstance(event, Queued | Started | Token):
                    return
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise HostUnavailable(_unreachable(self._client.home)) from error
        finally:
            connection.close()
        raise HostUnavailable(_unreachable(self._client.home))

    def _note(self, event: TurnEvent) -> None:
        if isinstance(event, Queued | Started):
            self._saved = event
        elif isinstance(event, Token):
            self._spoke = True
        elif isinstance(event, Failed) and event.error_class is ErrorClass.HOST_DOWN and not self._spoke:
            # A host that is ending says so; the next one answers.
            raise HostUnavailable(event.message)

    def close(self) -> None:
        """Hang up. The host takes that as a stop, and keeps the text so far."""
        self._closed = True
        connection = self._connection
        peer = None if connection is None else connection.sock
        if peer is not None:
            # Shut down rather than closed: that wakes a reader in another thread.
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> TurnStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def running_host(home: Home) -> HostClient | None:
    """The host that runs on a home, or None; never starts one."""
    endpoint = Endpoint.read(home)
    if endpoint is None:
        return None
    client = HostClient(home, endpoint)
    return client if client.alive() else None


def ensure_host(home: Home) -> HostClient:
    """The host of a home, started where none runs.

    Raises:
        HostUnavailable: it did not start; the message is the host's own where it gave one.
        MynahError: the kind the host named, such as a model file that is not one.
    """
    found = running_host(home)
    if found is not None:
        return found
    home.open()
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        answer = _spawn(home, deadline)
        if "ready" in answer:
            return HostClient(home, Endpoint(**answer["ready"]))
        if not answer["error"].get("locked"):
            raise _named_error(answer["error"])
        # Another process was first. It may be loading still, or ending: wait for one of the two.
        found = _wait_for_other(home, deadline)
        if found is not None:
            return found
    raise HostUnavailable(
        f"the model host did not start within {START_SECONDS:.0f} s: see {home.logs / 'host.log'}"
    )


def stop_host(home: Home) -> bool:
    """End the host of a home, and with it its learner; False if none ran.

    Raises:
        HostUnavailable: it is still there after being asked and then told.
    """
    pid = holder(home.host_lock)
    if pid is None:
        return False
    client = running_host(home)
    if client is not None:
        with contextlib.suppress(HostUnavailable):
            client.shutdown()
    return end(pid, home.host_lock, asked=client is not None)


def stop_learner(home: Home) -> bool:
    """End a learner that no host looks after; False if none ran. Its run is taken up again later."""
    pid = holder(home.learner_lock)
    return False if pid is None else end(pid, home.learner_lock, asked=False)


def _spawn(home: Home, deadline: float) -> dict[str, Any]:
    """Start a detached host and read the one line it says about itself."""
    with _log(home) as log, cipher.handed_down(home.db) as (environment, descriptors):
        process = subprocess.Popen(
            host_command(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            env={**environment, "MYNAH_HOME": str(home.root)},
            pass_fds=descriptors,
            cwd=Path(__file__).resolve().parents[2],
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout as pipe:
        line = _first_line(pipe, deadline)
    if not line:
        _reap(process)
        return {"error": {"message": f"the model host ended at its start: see {home.logs / 'host.log'}"}}
    answer: dict[str, Any] = json.loads(line)
    if "ready" in answer:
        # The host outlives us; whoever adopts it reaps it.
        process.returncode = 0
    else:
        _reap(process)
    return answer


def host_command() -> list[str]:
    """The command line of a host; tests put a host of their own here."""
    return [sys.executable, "-m", "app.host"]


def _log(home: Home) -> IO[bytes]:
    descriptor = os.open(home.logs / "host.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    return os.fdopen(descriptor, "ab")


def _first_line(pipe: IO[bytes], deadline: float) -> bytes:
    import select

    collected = b""
    while not collected.endswith(b"\n"):
        ready, _, _ = select.select([pipe], [], [], max(0.0, deadline - time.monotonic()))
        piece = os.read(pipe.fileno(), 65536) if ready else b""
        if not piece:
            return b""
        collected += piece
    return collected


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_for_other(home: Home, deadline: float) -> HostClient | None:
    """The host another process started, once it answers; None as soon as nobody holds the lock."""
    while time.monotonic() < deadline:
        found = running_host(home)
        if found is not None:
            return found
        if holder(home.host_lock) is None:
            return None
        time.sleep(_POLL_SECONDS)
    return None


_KINDS: dict[str, type[MynahError]] = {
    kind.__name__: kind
    for kind in (ContextOverflow, DiskFull, EncryptionError, HomeError, HostUnavailable, NotFound, UsageError)
}


def _named_error(fields: dict[str, Any]) -> MynahError:
    kind = _KINDS.get(str(fields.get("kind")), HostUnavailable)
    return kind(str(fields.get("message", "the model host failed without a word")))


def _refusal(status: int, body: bytes) -> MynahError:
    try:
        fields = json.loads(body)["error"]
        return _named_error(fields)
    except (ValueError, KeyError, TypeError):
        return HostUnavailable(f"the model host answered {status}: stop it with `mynah stop` and try again")


def _unreachable(home: Home) -> str:
    return f"the model host went away: try again, or see {home.logs / 'host.log'} for why"


def failed(event: TurnEvent) -> MynahError | None:
    """The error a `Failed` event stands for, None for any other event."""
    if not isinstance(event, Failed):
        return None
    kinds = {"context_overflow": ContextOverflow, "disk_full": DiskFull, "host_down": HostUnavailable}
    for kind in (NotFound, UsageError):
        if event.exit_code == kind.exit_code:
            return kind(event.message)
    return kinds.get(event.error_class.value, MynahError)(event.message)
