"""The life of a host: take the lock, load, listen, tell where, and leave nothing behind.

A host announces itself only when it can answer: one line of JSON on the standard output of whoever started it,
and `host.json` in the data directory. From then on both standard streams go to the log, so that neither Python
nor native code can write where a terminal program draws. It ends when nobody needs it any more, on SIGTERM and
SIGINT, and when asked; a reply under way is stopped and saved first. A host that was killed leaves replies marked
as being written: the next one closes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

import uvicorn

from app import __version__
from app.host.client import Endpoint
from app.host.core import Host
from app.host.door import Access
from app.host.engine import Engine
from app.host.rehearsals import Rehearsals
from app.host.runtime import Runtime
from app.host.server import application
from app.host.supervisor import LEARNER_COMMAND, Supervisor
from store import consent, conversations, discreet, ids, settings
from store.addresses import is_loopback
from store.db import Store
from store.errors import HomeError, HomeLocked, Interrupted, MynahError, UsageError
from store.home import PRIVATE_FILE, Home, locked

log = logging.getLogger("mynah.host")

IDLE_VARIABLE = "MYNAH_HOST_IDLE"
KEY_VARIABLE = "MYNAH_API_KEY"
_KEY_LENGTH = 16
_KEY = re.compile(rf"[!-~]{{{_KEY_LENGTH},}}")
_LOG_BYTES = 1_000_000
_ENGINE_SECONDS = 10.0
_GRACE_SECONDS = 3.0
_LOOK_SECONDS = 0.5


class Mode(StrEnum):
    """Who looks at a host: nobody, or a person at a terminal."""

    DETACHED = "detached"
    FOREGROUND = "foreground"


@dataclass(frozen=True)
class Options:
    """How a host is run. ``key`` opens /v1, and is needed where others can reach it; ``origins``: web pages that
    may use it beside those of this machine. ``learner`` is the command of its learner; tests put a script there.
    """

    address: str = "127.0.0.1"
    port: int = 0
    mode: Mode = Mode.DETACHED
    key: str | None = None
    origins: frozenset[str] = frozenset()
    learner: tuple[str, ...] = LEARNER_COMMAND

    def checked(self) -> Options:
        """Itself, if nobody can come in who should not.

        Raises:
            UsageError: it would listen beyond this machine without a key, or with one that can be guessed.
        """
        if self.key is None and not is_loopback(self.address):
            raise UsageError(
                f"listening on {self.address} lets others in: put a key of at least {_KEY_LENGTH} characters "
                f"into a file and name it with --key-file, or set {KEY_VARIABLE}"
            )
        if self.key is not None and not _KEY.fullmatch(self.key):
            raise UsageError(
                f"the key must have at least {_KEY_LENGTH} characters: letters, digits and signs, no spaces"
            )
        return self


Load = Callable[[Store], Runtime]


def key_of(file: Path | None) -> str | None:
    """The key of /v1, from a file or the environment, and not handed on to other programs.

    It is never taken from a command line, which every user of the machine can read.

    Raises:
        OSError: the file cannot be read.
    """
    from_environment = os.environ.pop(KEY_VARIABLE, None)
    if file is not None:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    return from_environment or None


def run(home: Home, options: Options, load: Load) -> int:
    """Be the host of a home until it ends; returns the exit code. Failures to start are said in one line."""
    try:
        options.checked()
        home.open()
        with locked(home.host_lock, "host"):
            _log_to_stderr(options.mode)
            _serve(home, options, load)
    except MynahError as error:
        _say_failed(error, options.mode)
        return error.exit_code
    except OSError as error:
        _say_failed(HomeError(f"the model host could not start: {error}"), options.mode)
        return HomeError.exit_code
    except KeyboardInterrupt:
        return Interrupted.exit_code
    return 0


def _serve(home: Home, options: Options, load: Load) -> None:
    with contextlib.ExitStack() as undo:
        with Store.open(home) as store:
            recovered = conversations.recover(store)
            if recovered:
                log.info("closed %d replies that a dead host had left open", recovered)
            consent.sweep(store)
            idle_limit = _idle_limit(store, options.mode)
            runtime = load(store)
        engine = Engine(runtime, home)
        listener = undo.enter_context(_listener(options))
        try:
            asyncio.run(_live(home, options, runtime, engine, listener, idle_limit))
        finally:
            # Nobody is talking any more: what was not to be kept need not wait for its hour.
            with Store.open(home) as store:
                consent.sweep(store, idle_seconds=0.0)


async def _live(
    home: Home, options: Options, runtime: Runtime, engine: Engine, listener: socket.socket, idle_limit: float
) -> None:
    supervisor = Supervisor(
        home,
        lambda: host.quiet_seconds(),
        options.learner,
        lambda wake: Rehearsals(runtime, engine.submit, wake),
    )
    host = Host(home, runtime, engine, supervisor, secrets.token_urlsafe(32))
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(discreet.log_fault)
    for signal_ in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(signal_, host.ending.set)
    server = _Server(_config(host, options))
    serving = asyncio.ensure_future(server.serve(sockets=[listener]))
    engine.start()
    supervisor.start()
    address, port = listener.getsockname()[:2]
    endpoint = Endpoint(os.getpid(), str(address), int(port), host.token, __version__, ids.now())
    try:
        with _announced(home, endpoint):
            _say_ready(home, endpoint, options.mode, runtime)
            await _until_unneeded(host, serving, idle_limit)
            host.ending.set()
            # Replies first: their streams end by themselves, and then the server has nobody left to wait for.
            await loop.run_in_executor(None, engine.close, _ENGINE_SECONDS)
            server.should_exit = True
            await serving
    finally:
        await loop.run_in_executor(None, supervisor.close)
        await loop.run_in_executor(None, engine.close, _ENGINE_SECONDS)
        host.close()
    log.info("the host ended")


async def _until_unneeded(host: Host, serving: asyncio.Future[None], idle_limit: float) -> None:
    while not host.ending.is_set() and not serving.done():
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(host.ending.wait(), _LOOK_SECONDS)
        if host.idle_seconds() > idle_limit:
            log.info("nobody has needed the host for %.0f s", idle_limit)
            return


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling: it would raise the signal again before anything is saved."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the host."""
        yield


def _config(host: Host, options: Options) -> uvicorn.Config:
    return uvicorn.Config(
        application(host, Access(options.address, options.key, options.origins)),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        timeout_graceful_shutdown=int(_GRACE_SECONDS),
        timeout_keep_alive=30,
        http="h11",
        ws="none",
        loop="none",
    )


@contextlib.contextmanager
def _listener(options: Options) -> Iterator[socket.socket]:
    family = socket.AF_INET6 if ":" in options.address else socket.AF_INET
    # The protocol by name: asyncio turns off Nagle's delay (40 ms an answer) only where it reads it there.
    with socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.address, options.port))
        except OSError as error:
            raise MynahError(
                f"cannot listen on {options.address} port {options.port} ({error.strerror}): choose another port"
            ) from error
        listener.listen(128)
        yield listener


@contextlib.contextmanager
def _announced(home: Home, endpoint: Endpoint) -> Iterator[None]:
    """`host.json`, whole or not there at all."""
    draft = home.host_json.with_suffix(f".{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(asdict(endpoint), file)
    draft.replace(home.host_json)
    try:
        yield
    finally:
        home.host_json.unlink(missing_ok=True)


def _idle_limit(store: Store, mode: Mode) -> float:
    if mode is Mode.FOREGROUND:
        return float("inf")
    chosen = os.environ.get(IDLE_VARIABLE)
    try:
        return float(chosen) if chosen else float(settings.get(store, settings.HOST_IDLE_SECONDS))
    except ValueError:
        raise MynahError(f"{IDLE_VARIABLE} must be a number of seconds, not {chosen!r}") from None


def _log_to_stderr(mode: Mode) -> None:
    """Standard error is the log of a detached host, and a person's terminal otherwise."""
    detached = mode is Mode.DETACHED
    discreet.set_up(
        logging.INFO if detached else logging.WARNING,
        "%(asctime)s %(levelname)s %(name)s: %(message)s" if detached else "%(message)s",
    )
    for library in ("uvicorn", "gguf"):
        logging.getLogger(library).setLevel(logging.WARNING)
    logging.getLogger("mynah.llama").setLevel(logging.WARNING if detached else logging.ERROR)


def _say_ready(home: Home, endpoint: Endpoint, mode: Mode, runtime: Runtime) -> None:
    url = f"http://{_in_url(endpoint.host)}:{endpoint.port}/v1"
    if mode is Mode.FOREGROUND:
        _write_line(url)
        sys.stderr.write(f"serving {runtime.info.name} at {url} (Ctrl-C ends it)\n")
        return
    _write_line(json.dumps({"ready": asdict(endpoint)}))
    log.info("process %d serves %s at %s", endpoint.pid, runtime.info.name, url)
    _streams_to(home.logs / "host.log")


def _say_failed(error: MynahError, mode: Mode) -> None:
    if mode is Mode.FOREGROUND:
        sys.stderr.write(f"mynah: {error}\n")
        return
    fields = {
        "message": str(error),
        "exit_code": error.exit_code,
        "kind": type(error).__name__,
        "locked": isinstance(error, HomeLocked),
    }
    _write_line(json.dumps({"error": fields}))
    log.error("the host did not start: %s", error)


def _write_line(line: str) -> None:
    # Whoever started us may have gone away meanwhile: then there is nobody to tell.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, line.encode() + b"\n")


def _streams_to(path: Path) -> None:
    """Standard output and error into the log; what the last hosts wrote is kept once more under another name."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _LOG_BYTES:
            path.replace(path.with_suffix(".old.log"))
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, PRIVATE_FILE)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address
