"""What every test shares: a data directory of its own, no network, and no process left behind.

A test starts real hosts and learners, which detach themselves by design. They inherit ``MYNAH_HOME``, so
whatever still carries a test's home in its environment when the test ends is stopped, however it was started.
Weights derived from the default model take a while to make and hold nothing personal: they go to one cache in
the working tree, which all tests and later runs share.
"""

from __future__ import annotations

import ipaddress
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import psutil
import pytest

from store.db import Store
from store.home import Home

if TYPE_CHECKING:
    from tests.scripted_service import ScriptedService

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache" / "mynah"
_STOP_SECONDS = 5.0

# A busy machine is slow, not wrong; and where nobody watches, the same examples every time.
_PARENT = hypothesis.settings.get_profile("ci" if os.environ.get("CI") else "default")
hypothesis.settings.register_profile("mynah", parent=_PARENT, deadline=None)
hypothesis.settings.load_profile("mynah")

os.environ["MYNAH_CACHE"] = str(CACHE)
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["NO_COLOR"] = "1"
os.environ["TZ"] = "UTC"
# Child processes cannot be watched from here: a proxy that is not there stops those that try all the same.
for _name in ("http_proxy", "https_proxy", "all_proxy"):
    os.environ[_name] = os.environ[_name.upper()] = "http://127.0.0.1:9"
os.environ["no_proxy"] = os.environ["NO_PROXY"] = "127.0.0.1,localhost,::1"


class NetworkRefused(RuntimeError):
    """A test tried to leave the machine."""


@pytest.fixture(autouse=True, scope="session")
def _loopback_only() -> Iterator[None]:
    """Refuse every connection that leaves the machine, and say who asked for it."""
    patch = pytest.MonkeyPatch()
    for name in ("connect", "connect_ex"):
        patch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))
    real_lookup = socket.getaddrinfo

    def lookup(host: str | bytes | None, *args: Any, **named: Any) -> object:
        _refuse_unless_local(host)
        return real_lookup(host, *args, **named)

    patch.setattr(socket, "getaddrinfo", lookup)
    yield
    patch.undo()


def _guarded(real: object) -> object:
    assert callable(real)

    def connect(self: socket.socket, address: object) -> object:
        if self.family in (socket.AF_INET, socket.AF_INET6) and isinstance(address, tuple):
            _refuse_unless_local(address[0])
        return real(self, address)

    return connect


def _refuse_unless_local(host: object) -> None:
    if isinstance(host, bytes):
        host = host.decode()
    if host in (None, "", "localhost"):
        return
    try:
        if ipaddress.ip_address(str(host)).is_loopback:
            return
    except ValueError:
        pass
    raise NetworkRefused(f"tests reach no network, and this one asked for {host}")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    """A fresh data directory, in ``MYNAH_HOME`` for this process and its children, all stopped afterwards."""
    root = tmp_path / "home"
    monkeypatch.setenv("MYNAH_HOME", str(root))
    mask = os.umask(0o077)
    yield Home(root).open()
    os.umask(mask)
    stop_processes_of(root)


@pytest.fixture
def store(home: Home) -> Iterator[Store]:
    """The database of the test's own data directory."""
    with Store.open(home) as opened:
        yield opened


@pytest.fixture
def service(home: Home) -> Iterator[ScriptedService]:
    """A service on the test's own data directory whose model is a script; see ``tests.scripted_service``."""
    from tests.scripted_service import ScriptedService

    scripted = ScriptedService(home)
    yield scripted
    scripted.close()


def stop_processes_of(root: Path) -> None:
    """End every other process that has ``root`` as its ``MYNAH_HOME``: asked first, then killed."""
    left = [process for process in psutil.process_iter() if _belongs_to(process, root)]
    for process in left:
        _ignoring_the_dead(process.terminate)
    _, stubborn = psutil.wait_procs(left, timeout=_STOP_SECONDS)
    for process in stubborn:
        _ignoring_the_dead(process.kill)
    psutil.wait_procs(stubborn, timeout=_STOP_SECONDS)


def _belongs_to(process: psutil.Process, root: Path) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        # A helper of multiprocessing belongs to this process for its whole life, and ends with it.
        helper = any("multiprocessing" in word for word in process.cmdline())
        return not helper and process.environ().get("MYNAH_HOME") == str(root)
    except (psutil.Error, OSError):
        return False


def _ignoring_the_dead(action: object) -> None:
    assert callable(action)
    try:
        action()
    except psutil.NoSuchProcess:
        return
