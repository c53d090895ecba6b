"""Opens a file of conversations, whatever program wrote it, and turns its entries into drafts one by one.

The format is told by what an entry holds, never by the file's name, and each entry by itself: one that is broken or
unknown is reported and skipped, and says nothing about its neighbours. Files may be JSON, JSON lines, a ZIP with
`conversations.json` in one or several pieces, or the database of the `llm` program.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from store.errors import ExchangeFileError, NotFound
from store.exchange import atif_read, chatgpt, claude, llm_logs, plain
from store.exchange.atif import NAMESPACE
from store.exchange.drafts import BadEntry, Draft, Occurrences, Skipped, Source, one_line

Progress = Callable[[float], None]

_SQLITE = b"SQLite format 3\x00"
_ZIPS = (b"PK\x03\x04", b"PK\x05\x06")
_PIECE = re.compile(r"(?:^|/)conversations[^/]*\.json$")


@dataclass(frozen=True)
class Entry:
    """One entry of a file: what it is called in reports, what it holds, and how far into the file it ends (0 to 1)."""

    label: str
    value: object
    share: float
    fallback: Source | None = None


def drafts(path: Path, source: Source | None, progress: Progress) -> Iterator[Draft | Skipped]:
    """The conversations of a file, and what could not be read. ``source`` forces a format.

    Raises:
        NotFound: there is no such file.
        ExchangeFileError: it cannot be read at all.
    """
    try:
        with path.open("rb") as file:
            start = file.read(len(_SQLITE))
        if start == _SQLITE:
            yield from llm_logs.drafts(path, progress)
        elif start.startswith(_ZIPS):
            yield from _read(_zipped(path), source, progress)
        else:
            yield from _read(_text(path), source, progress)
    except FileNotFoundError:
        raise NotFound(f"there is no file at {path}") from None
    except OSError as error:
        raise ExchangeFileError(f"cannot read {path} ({error.strerror or error}): check its owner") from error


def _read(entries: Iterator[Entry], source: Source | None, progress: Progress) -> Iterator[Draft | Skipped]:
    seen = {each: Occurrences() for each in Source}
    branches: list[Mapping[str, Any]] = []
    for entry in entries:
        value = entry.value
        session = _session(value) if source in (None, Source.ATIF) else None
        if branches and session != branches[0]["session_id"]:
            yield _whole(branches)
            branches = []
        if session is not None and isinstance(value, dict):
            branches.append(value)
        elif isinstance(value, Skipped):
            yield value
        else:
            yield _draft(entry, source, seen)
        progress(entry.share)
    if branches:
        yield _whole(branches)


def _session(value: object) -> str | None:
    """The conversation of ours that an entry is a branch of."""
    return atif_read.ours(value) if isinstance(value, dict) and _kind(value) is Source.ATIF else None


def _whole(branches: list[Mapping[str, Any]]) -> Draft | Skipped:
    try:
        return atif_read.read_branches(branches)
    except BadEntry as error:
        title = one_line(branches[0]["extra"][NAMESPACE].get("title"))
        return Skipped(f"conversation {branches[0]['session_id']}", title, str(error))


def _draft(entry: Entry, source: Source | None, seen: Mapping[Source, Occurrences]) -> Draft | Skipped:
    value = entry.value
    if not isinstance(value, dict):
        return Skipped(entry.label, None, "it is not a conversation but a bare value")
    try:
        match source or _kind(value) or entry.fallback:
            case Source.CHATGPT:
                return chatgpt.read(value)
            case Source.CLAUDE:
                return claude.read(value)
            case Source.ATIF:
                return atif_read.read_foreign(value, seen[Source.ATIF])
            case Source.OPENAI:
                return plain.read_openai(value, seen[Source.OPENAI])
            case Source.SHAREGPT:
                return plain.read_sharegpt(value, seen[Source.SHAREGPT])
            case _:
                raise BadEntry("it is no conversation in a format that is known")
    except BadEntry as error:
        return Skipped(entry.label, _title(value), str(error))
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        # What strangers' programs may write has no end; one odd entry must not keep the others out.
        return Skipped(
            entry.label, _title(value), f"it is not built as it should be ({type(error).__name__})"
        )


def _title(value: Mapping[str, Any]) -> str | None:
    return one_line(value.get("title")) or one_line(value.get("name"))


def _kind(value: object) -> Source | None:
    """The format of an entry, by the one field that only it has."""
    if not isinstance(value, dict):
        return None
    if "mapping" in value:
        return Source.CHATGPT
    if "chat_messages" in value:
        return Source.CLAUDE
    if "steps" in value and ("schema_version" in value or "agent" in value):
        return Source.ATIF
    if isinstance(value.get("messages"), list):
        return Source.OPENAI
    if isinstance(value.get("conversations"), list):
        return Source.SHAREGPT
    return None


def _zipped(path: Path) -> Iterator[Entry]:
    try:
        with zipfile.ZipFile(path) as archive:
            pieces = sorted(
                (info for info in archive.infolist() if _PIECE.search(info.filename)),
                key=lambda info: info.filename,
            )
            if not pieces:
                raise ExchangeFileError(f"there is no conversations.json in {path}: is this a chat export?")
            total = sum(info.file_size for info in pieces) or 1
            before = 0
            for info in pieces:
                where = f"{info.filename}, " if len(pieces) > 1 else ""
                value = _parsed(archive.read(info), f"{info.filename} in {path}")
                for entry in _listed(value):
                    share = (before + entry.share * info.file_size) / total
                    yield Entry(f"{where}{entry.label}", entry.value, share, entry.fallback)
                before += info.file_size
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, NotImplementedError) as error:
        raise ExchangeFileError(
            f"{path} is a damaged or locked ZIP file ({error}): fetch it again"
        ) from error


def _text(path: Path) -> Iterator[Entry]:
    """JSON lines where the first line is an object of its own, else one JSON value."""
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    if not first:
        raise ExchangeFileError(f"{path} is empty")
    if isinstance(_value_or_none(first), dict):
        return _lines(path)
    return _listed(_parsed(path.read_bytes(), str(path)))


def _lines(path: Path) -> Iterator[Entry]:
    size, position = path.stat().st_size or 1, 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            position += len(line)
            if not line.strip():
                continue
            label, share, value = f"line {number}", position / size, _value_or_none(line)
            if value is None:
                yield Entry(label, Skipped(label, None, "it is not JSON"), share)
                continue
            for entry in _listed(value):
                yield Entry(label, entry.value, share)


def _listed(value: object) -> Iterator[Entry]:
    """The entries of a whole JSON value: a list of them, an object that holds such a list, or a single one."""
    if isinstance(value, dict):
        inner = value.get("conversations")
        held = isinstance(inner, list) and any(_kind(each) for each in inner)
        items = inner if held and isinstance(inner, list) else [value]
    elif isinstance(value, list):
        turns = value and all(isinstance(each, dict) and "role" in each for each in value)
        items = [{"messages": value}] if turns else value
    else:
        items = [value]
    fallback = next((kind for each in items if (kind := _kind(each)) is not None), None)
    for number, each in enumerate(items, start=1):
        yield Entry(f"entry {number}", each, number / len(items), fallback)


def _parsed(data: bytes, where: str) -> object:
    try:
        return _json(data)
    except (ValueError, RecursionError) as error:
        raise ExchangeFileError(f"{where} is not JSON, or cut short ({error})") from error


def _value_or_none(line: bytes) -> object:
    try:
        return _json(line)
    except (ValueError, RecursionError):
        return None


def _json(data: bytes) -> object:
    """Strict JSON: NaN and Infinity, which Python would take, cannot be written again."""
    return json.loads(data.decode("utf-8-sig"), parse_constant=_refuse)


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON value")
