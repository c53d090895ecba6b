"""A reply's text taken apart while it streams: what is said, what is only thought, and what is called.

Models write all three as one text, with tags. Clients want three fields, and want them at once: an answer that
sits in a thoughts field is an empty answer to them, and arguments that come in one piece at the end look like a
hang. So text is held back only while it may still become a tag, and the arguments of a call are passed on as
they are written, up to the bracket that closes them. What only looks like a call (no JSON, or a function that
nobody offered) is given out as the text it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto

from app.host.openai_tools import CLOSE, OPEN

_THINK, _THOUGHT = "<think>", "</think>"
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*"(?P<name>[^"\\]*)"\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\S)')
_LONGEST_HEAD = 200


@dataclass(frozen=True)
class Said:
    """Text for the reader."""

    text: str


@dataclass(frozen=True)
class Thought:
    """Text the model wrote for itself."""

    text: str


@dataclass(frozen=True)
class Called:
    """A call begins."""

    index: int
    name: str


@dataclass(frozen=True)
class Arguments:
    """A piece of the arguments of a call, JSON text."""

    index: int
    text: str


Part = Said | Thought | Called | Arguments


class _State(Enum):
    OPENING = auto()
    THINKING = auto()
    SAYING = auto()
    HEAD = auto()
    ARGUMENTS = auto()
    TAIL = auto()
    BETWEEN = auto()


class ReplyParts:
    """Takes one reply apart. ``names`` are the functions that may be called; without any, calls are text."""

    def __init__(self, names: frozenset[str] = frozenset()) -> None:
        self._names = names
        self._state = _State.OPENING
        self._held = ""
        self._tagged = True
        self._depth = 0
        self._quoted = self._escaped = False
        self._thoughts: list[str] = []
        self._spoke = False
        self.calls = 0

    def feed(self, text: str) -> list[Part]:
        """What is certain after this piece of text."""
        self._held += text
        return list(self._advance(last=False))

    def finish(self) -> list[Part]:
        """What was still held back. A reply that was nothing but thoughts is said after all."""
        parts = list(self._advance(last=True))
        if not self._spoke and not self.calls and self._thoughts:
            parts.append(Said("".join(self._thoughts).strip()))
        return parts

    def _advance(self, *, last: bool) -> Iterator[Part]:
        steps = {
            _State.OPENING: self._opening,
            _State.THINKING: self._thinking,
            _State.SAYING: self._saying,
            _State.HEAD: self._head,
            _State.ARGUMENTS: self._arguments,
            _State.TAIL: self._tail,
            _State.BETWEEN: self._between,
        }
        before = None
        # Each step takes from what is held, changes the state, or has to wait for more.
        while before != (self._state, len(self._held)):
            before = (self._state, len(self._held))
            yield from steps[self._state](last)

    def _opening(self, last: bool) -> Iterator[Part]:
        start = self._held.lstrip()
        if start.startswith(_THINK):
            self._held = start.removeprefix(_THINK)
            self._state = _State.THINKING
        elif self._names and start.startswith("{"):
            # A call without its tags: small models forget them.
            self._tagged = False
            self._state = _State.HEAD
        elif last or not _THINK.startswith(start):
            self._held = start if self._thoughts else self._held
            self._state = _State.SAYING
        yield from ()

    def _thinking(self, last: bool) -> Iterator[Part]:
        thought, found, after = self._held.partition(_THOUGHT)
        if found:
            self._held, self._state = after, _State.OPENING
        else:
            keep = 0 if last else _begun(thought, _THOUGHT)
            self._held = thought[len(thought) - keep :]
            thought = thought[: len(thought) - keep]
        if thought:
            self._thoughts.append(thought)
            yield Thought(thought)

    def _saying(self, last: bool) -> Iterator[Part]:
        said, found, after = self._held.partition(OPEN) if self._names else (self._held, "", "")
        if found:
            self._held, self._tagged, self._state = after, True, _State.HEAD
        else:
            keep = 0 if last or not self._names else _begun(said, OPEN)
            self._held = said[len(said) - keep :]
            said = said[: len(said) - keep]
        if self._names and not self._spoke and not said.strip():
            # White space before a call is not for the reader; before a word it is.
            self._held = said + self._held if not found else self._held
        elif said:
            self._spoke = self._spoke or bool(said.strip())
            yield Said(said)

    def _head(self, last: bool) -> Iterator[Part]:
        match = _HEAD.match(self._held[:_LONGEST_HEAD])
        if match is not None and match["name"] in self._names:
            self._held = self._held[match.end() :]
            self._depth, self._quoted, self._escaped = 0, False, False
            self._state = _State.ARGUMENTS
            self.calls += 1
            yield Called(self.calls - 1, match["name"])
        elif last or match is not None or len(self._held) >= _LONGEST_HEAD:
            # What follows may still hold a call, so only its beginning is text for certain.
            brace = 0 if self._tagged else self._held.index("{") + 1
            text, self._held = OPEN if self._tagged else self._held[:brace], self._held[brace:]
            self._spoke, self._state = True, _State.SAYING
            yield Said(text)

    def _arguments(self, last: bool) -> Iterator[Part]:
        """Up to the bracket that closes the arguments; what else is a value ends before the next bracket."""
        for place, character in enumerate(self._held):
            if self._ends_with(character):
                end = place + (self._depth == 0)
                text, self._held = self._held[:end], self._held[end:]
                self._state = _State.TAIL
                break
        else:
            text, self._held = self._held, ""
        if text:
            yield Arguments(self.calls - 1, text)

    def _ends_with(self, character: str) -> bool:
        if self._quoted:
            if self._escaped:
                self._escaped = False
            elif character == "\\":
                self._escaped = True
            elif character == '"':
                self._quoted = False
            return False
        if character == '"':
            self._quoted = True
        elif character in "{[":
            self._depth += 1
        elif character in "}]":
            self._depth -= 1
        return self._depth <= 0 and character in "}]"

    def _tail(self, last: bool) -> Iterator[Part]:
        """What stands between the arguments and the end of a call is not for the reader."""
        tags = [(place, tag) for tag in (OPEN, CLOSE) if (place := self._held.find(tag)) >= 0]
        if tags:
            place, tag = min(tags)
            self._held, self._tagged = self._held[place + len(tag) :], True
            self._state = _State.HEAD if tag == OPEN else _State.BETWEEN
        elif last:
            self._held = ""
        yield from ()

    def _between(self, last: bool) -> Iterator[Part]:
        """White space after a call is not for the reader."""
        self._held = self._held.lstrip()
        if self._held:
            self._state = _State.SAYING
        yield from ()


def _begun(text: str, tag: str) -> int:
    """How many characters at the end of a text may be the beginning of a tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)
