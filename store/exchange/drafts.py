"""The neutral form that every reader of a foreign format makes, and the one writer stores.

A message keeps the name the other program gave it (`key`) and its parent's: branches survive, and the same file
read again says the same names, which is how importing twice adds nothing. Readers never touch the store.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from store.types import Role


class Source(StrEnum):
    """The formats that can be read."""

    CHATGPT = "chatgpt"
    CLAUDE = "claude"
    ATIF = "atif"
    OPENAI = "openai"
    SHAREGPT = "sharegpt"
    LLM = "llm"


@dataclass(frozen=True)
class DraftMessage:
    """One message as another program knows it.

    ``record`` holds further columns of our own `messages` table ``signals`` rows of `signals` and ``steps`` rows
    of `events`; only our own exports fill them.
    """

    key: str
    parent: str | None
    role: Role
    text: str
    created: str | None = None
    model: str | None = None
    record: dict[str, Any] = field(default_factory=dict)
    signals: tuple[dict[str, Any], ...] = ()
    steps: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class Draft:
    """One conversation, parents before children.

    ``space`` is the program or format that ``key`` is unique in; ``client`` is where the conversation was held;
    ``wanted`` an id of ours that it should keep if it is free.
    """

    space: str
    key: str
    messages: tuple[DraftMessage, ...]
    client: str
    title: str | None = None
    created: str | None = None
    updated: str | None = None
    head: str | None = None
    wanted: str | None = None


@dataclass(frozen=True)
class Skipped:
    """An entry of a file that could not be read, with the reason. ``entry`` counts from 1."""

    entry: str
    title: str | None
    reason: str


class BadEntry(Exception):
    """One entry cannot be read; the others can."""


TITLE_LENGTH = 200
_SURROGATES = re.compile("[\ud800-\udfff]")
# Seconds since 1970 stay below this until the year 5138; milliseconds passed it in 1973.
_MILLISECONDS_FROM = 1e11


def clean(text: str) -> str:
    """A text that UTF-8 can hold: half of a surrogate pair, which JSON allows, becomes a replacement mark."""
    return _SURROGATES.sub("\ufffd", text)


def moment(value: object) -> str | None:
    """A time as ISO 8601 UTC with microseconds, from seconds or milliseconds since 1970 or ISO text; else None."""
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            if not math.isfinite(value) or value <= 0:
                return None
            seconds = value / 1000 if value >= _MILLISECONDS_FROM else value
            return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="microseconds")
        if isinstance(value, str):
            read = datetime.fromisoformat(value.strip())
            aware = read if read.tzinfo else read.replace(tzinfo=UTC)
            return aware.astimezone(UTC).isoformat(timespec="microseconds")
    except (ValueError, OverflowError, OSError):
        return None
    return None


def text_or_none(value: object) -> str | None:
    """A string that shows something, cleaned; None for anything else."""
    return clean(value) if isinstance(value, str) and value.strip() else None


def one_line(value: object) -> str | None:
    """A title as one line of a sensible length; None where there is none."""
    text = text_or_none(value)
    return None if text is None else " ".join(text.split())[:TITLE_LENGTH]


def digest(*parts: object) -> str:
    """SHA-256 over values as JSON: the identity of what carries no id of its own."""
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True, sort_keys=True).encode()).hexdigest()


class Occurrences:
    """Names for conversations that have none: their content, and the how-manieth of that content it is."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}

    def key(self, *content: object) -> str:
        """The same content in the same file gets another key each time, and the same keys when read again."""
        name = digest(*content)
        count = self._seen[name] = self._seen.get(name, 0) + 1
        return f"{name}:{count}"


def line(
    space: str, key: str, turns: Iterable[tuple[Role, str]], client: str, title: str | None = None
) -> Draft:
    """A conversation without branches, from roles and texts in their order."""
    messages = tuple(_chained(turns))
    if not messages:
        raise BadEntry("it holds no message with text")
    return Draft(space, key, messages, client, title=title)


def _chained(turns: Iterable[tuple[Role, str]]) -> Iterator[DraftMessage]:
    parent = None
    for number, (role, text) in enumerate(turns):
        yield DraftMessage(str(number), parent, role, clean(text))
        parent = str(number)
