"""Fetching a model file: it goes on where it broke off, and nothing but the right bytes ever gets the file's name.

A model is hundreds of megabytes over lines that break, so what has come is kept in a ``.part`` file beside the
target and the next attempt asks for the rest alone (RFC 9110, ranges, with ``If-Range`` so that a file that was
replaced meanwhile is fetched from its start). A file is trusted by its SHA-256, not by where it came from; one whose
hash nobody gave must at least be a whole GGUF file. Standard library only: this is one GET.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import http.client
import json
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import monotonic
from typing import IO, Any
from urllib.parse import urlsplit

from app.model import gguf_info
from store.addresses import is_loopback
from store.errors import DiskFull, HomeError, Interrupted, ModelFileError, MynahError, UsageError
from store.files import force_to_disk

BLOCK = 1 << 18
SILENCE_SECONDS = 30.0
SPARE_DISK = 256 * 2**20
"""Left free beside the file: a disk that is full to the last byte stops the chat itself."""
_TOLD_SECONDS = 0.1
_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


class PullBroken(MynahError):
    """The file has not come whole; what has come is kept, and the same command goes on from there."""


class Phase(StrEnum):
    """What a pull is doing."""

    FETCHING = "fetching"
    CHECKING = "checking"


@dataclass(frozen=True)
class Wanted:
    """A file to fetch. ``sha256`` and ``size`` (bytes) are None where nobody has said what they must be."""

    url: str
    target: Path
    sha256: str | None = None
    size: int | None = None

    @property
    def part(self) -> Path:
        """Where it grows."""
        return self.target.with_name(f"{self.target.name}.part")


@dataclass(frozen=True)
class Progress:
    """How far a pull is, in bytes; ``total`` is None while the server has not said, ``rate`` is bytes a second."""

    phase: Phase
    have: int
    total: int | None
    rate: float = 0.0

    @property
    def share(self) -> float | None:
        """The part that is done, from 0 to 1."""
        return self.have / self.total if self.total else None


@dataclass(frozen=True)
class _Answer:
    """What a server gave: the bytes from ``start`` on, of ``total``."""

    body: http.client.HTTPResponse
    start: int
    total: int | None
    validator: str | None


def pull(wanted: Wanted, told: Callable[[Progress], None], stop: threading.Event) -> Path:
    """Fetch a file and return its path. ``told`` hears of it ten times a second; ``stop`` breaks it off.

    Raises:
        UsageError: the address is none, or not safe.
        PullBroken: the server cannot be reached, refused, or fell silent.
        ModelFileError: what came is not what was wanted; it is deleted.
        DiskFull, HomeError: it cannot be kept.
        Interrupted: it was stopped; what has come is kept.
    """
    check_url(wanted.url)
    try:
        wanted.target.parent.mkdir(parents=True, exist_ok=True)
        with _alone(wanted) as part:
            if not wanted.target.exists():
                _fetch(wanted, part, told, stop)
                _check(wanted, told, stop)
                force_to_disk(wanted.part)
                wanted.part.replace(wanted.target)
                force_to_disk(wanted.target.parent)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"the disk is full: free some space, and the same command goes on ({wanted.part})"
            ) from error
        raise HomeError(f"cannot write {wanted.part} ({error.strerror or error}): check its owner") from error
    return wanted.target


def check_url(url: str) -> None:
    """Raises UsageError for what is no https address; plain http is for this machine alone."""
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in ("https", "http"):
        raise UsageError(f"{url!r} is no address of a file: it begins with https://")
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        raise UsageError(f"{url} is not encrypted on its way: give its https address")


@contextmanager
def _alone(wanted: Wanted) -> Iterator[IO[bytes]]:
    """The part file, open at its end, for one process at a time."""
    descriptor = os.open(wanted.part, os.O_RDWR | os.O_CREAT, 0o600)
    with os.fdopen(descriptor, "r+b") as part:
        try:
            fcntl.flock(part, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{wanted.target.name} is being fetched already") from None
        try:
            yield part
        finally:
            if part.seek(0, os.SEEK_END) == 0:
                # Nothing has come: an empty part would only puzzle whoever looks.
                with suppress(FileNotFoundError):
                    wanted.part.unlink()
            if not wanted.part.exists():
                _note(wanted).unlink(missing_ok=True)


def _fetch(wanted: Wanted, part: IO[bytes], told: Callable[[Progress], None], stop: threading.Event) -> None:
    """Add to the part until it is whole."""
    have = part.seek(0, os.SEEK_END)
    if wanted.size is not None and have == wanted.size:
        return
    if have and (wanted.size is not None and have > wanted.size):
        have = part.truncate(0)
    answer = _ask(wanted, have)
    if answer is None:
        return
    with answer.body:
        if wanted.size is not None and answer.total not in (None, wanted.size):
            raise ModelFileError(
                f"{wanted.url} is {answer.total:,} bytes, and {wanted.size:,} were expected: it is another file"
            )
        if answer.total is not None:
            _room(wanted, answer.total - answer.start)
        part.truncate(answer.start)
        part.seek(answer.start)
        _remember(wanted, answer)
        _copy(wanted, answer, part, told, stop)


def _copy(
    wanted: Wanted, answer: _Answer, part: IO[bytes], told: Callable[[Progress], None], stop: threading.Event
) -> None:
    have, began, last = answer.start, monotonic(), 0.0
    while True:
        if stop.is_set():
            raise Interrupted(f"stopped at {have:,} bytes; what has come is kept")
        try:
            block = answer.body.read1(BLOCK)
        except (OSError, http.client.HTTPException) as error:
            part.flush()
            raise PullBroken(_broken(wanted, have, _reason(error))) from error
        if not block:
            break
        part.write(block)
        have += len(block)
        now = monotonic()
        if now - last >= _TOLD_SECONDS:
            last = now
            told(Progress(Phase.FETCHING, have, answer.total, (have - answer.start) / max(now - began, 1e-3)))
    part.flush()
    if answer.total is not None and have < answer.total:
        raise PullBroken(_broken(wanted, have, "the connection ended early"))
    told(Progress(Phase.FETCHING, have, have))


def _ask(wanted: Wanted, have: int) -> _Answer | None:
    """The server's answer for what is missing; None where nothing is."""
    headers = {"User-Agent": "mynah", "Accept-Encoding": "identity"}
    validator = _validator(wanted)
    # Without a hash to check the whole by, only a validator says that the rest belongs to what is here.
    if have and (validator is not None or wanted.sha256 is not None):
        headers["Range"] = f"bytes={have}-"
        if validator is not None:
            headers["If-Range"] = validator
    request = urllib.request.Request(wanted.url, headers=headers)
    try:
        body = _OPENER.open(request, timeout=SILENCE_SECONDS)
    except urllib.error.HTTPError as error:
        with error:
            _refuse(wanted, have, error)
            return None
    except (OSError, http.client.HTTPException) as error:
        raise PullBroken(_broken(wanted, have, _reason(error))) from error
    return _answered(body, have)


def _answered(body: Any, have: int) -> _Answer:
    given = _RANGE.fullmatch(body.headers.get("Content-Range", ""))
    etag = body.headers.get("ETag")
    strong = etag if etag and not etag.startswith("W/") else None
    validator = strong or body.headers.get("Last-Modified")
    if body.status == 206 and given is not None and int(given[1]) == have:
        return _Answer(body, have, None if given[2] == "*" else int(given[2]), validator)
    length = body.headers.get("Content-Length")
    return _Answer(body, 0, int(length) if length and length.isdigit() else None, validator)


def _refuse(wanted: Wanted, have: int, error: urllib.error.HTTPError) -> None:
    if error.code == 416 and have:
        # Nothing lies behind what is here: it is whole, or it is wrong and its hash will say so.
        return
    hint = {401: "it asks for an account", 403: "it asks for an account", 404: "there is no such file"}
    said = hint.get(error.code, error.reason or "no reason given")
    raise PullBroken(_broken(wanted, have, f"{error.code}, {said}"))


def _broken(wanted: Wanted, have: int, reason: str) -> str:
    host = urlsplit(wanted.url).hostname
    kept = f"; {have / 1e6:,.0f} MB are kept, and the same command goes on from there" if have else ""
    return f"{wanted.target.name} could not be fetched from {host} ({reason}){kept}"


def _reason(error: BaseException) -> str:
    inner = getattr(error, "reason", error)
    if isinstance(inner, TimeoutError):
        return f"nothing came for {SILENCE_SECONDS:.0f} seconds"
    return str(getattr(inner, "strerror", None) or inner or type(error).__name__)


def _room(wanted: Wanted, missing: int) -> None:
    free = shutil.disk_usage(wanted.target.parent).free
    if missing + SPARE_DISK > free:
        raise DiskFull(
            f"{missing / 1e9:.1f} GB are missing and {free / 1e9:.1f} GB are free at {wanted.target.parent}: "
            "free some space first"
        )


def _check(wanted: Wanted, told: Callable[[Progress], None], stop: threading.Event) -> None:
    """Refuse and delete what is not the file that was wanted."""
    total, done, digest = wanted.part.stat().st_size, 0, hashlib.sha256()
    with wanted.part.open("rb") as file:
        while wanted.sha256 is not None and (block := file.read(BLOCK * 16)):
            if stop.is_set():
                raise Interrupted("stopped; what has come is kept")
            digest.update(block)
            done += len(block)
            told(Progress(Phase.CHECKING, done, total))
    try:
        if wanted.sha256 is not None and digest.hexdigest() != wanted.sha256.lower():
            raise ModelFileError(
                f"what came from {wanted.url} has another SHA-256 ({digest.hexdigest()[:12]}…) than it must have "
                f"({wanted.sha256[:12]}…): nothing of it was kept"
            )
        gguf_info.read(wanted.part)
    except ModelFileError as error:
        wanted.part.unlink(missing_ok=True)
        # The part's name means nothing to the owner, and it is gone.
        raise ModelFileError(str(error).replace(str(wanted.part), wanted.url)) from error


def _note(wanted: Wanted) -> Path:
    return wanted.target.with_name(f"{wanted.target.name}.part.json")


def _remember(wanted: Wanted, answer: _Answer) -> None:
    _note(wanted).write_text(json.dumps({"url": wanted.url, "validator": answer.validator}))


def _validator(wanted: Wanted) -> str | None:
    """What the server called the version that the part is of."""
    try:
        noted = json.loads(_note(wanted).read_text())
        return str(noted["validator"]) if noted["url"] == wanted.url and noted["validator"] else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


class _SafeRedirects(urllib.request.HTTPRedirectHandler):
    """Follows where a server sends us, but not from an encrypted address to a plain one."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        try:
            check_url(newurl)
        except UsageError as error:
            raise urllib.error.URLError(str(error)) from error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SafeRedirects)
