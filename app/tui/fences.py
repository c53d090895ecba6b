"""Code blocks in a text: those of a whole reply, and a long one cut into parts while it streams.

Drawing a code block anew costs as much as it is long, so a block that grows token by token costs the square of its
length. Cut every ``PART`` lines by a fence that closes and opens again, only the last part is ever drawn anew. The
cuts are made between lines, marked in the info string of what follows, and never reach anything that is stored or
copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

PART = 24
GOES_ON = "\u2063"
"""Ends the info string of a part that continues the one above: an invisible separator, which no language's name has."""

_OPENING = re.compile(r"( {0,3})(`{3,}(?=[^`]*$)|~{3,})(.*)")
_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True)
class CodeBlock:
    """One fenced block of a reply."""

    language: str
    code: str


class _Fences:
    """Follows a text line by line and knows the fence that is open."""

    def __init__(self) -> None:
        self.indent = ""
        self.fence = ""
        self.info = ""

    def take(self, line: str) -> bool:
        """Take in a whole line; whether it opens or closes a fence."""
        if not self.fence:
            opening = _OPENING.fullmatch(line)
            if opening is not None:
                self.indent, self.fence, self.info = opening[1], opening[2], opening[3].strip()
            return opening is not None
        closing = line.strip()
        indented = len(line) - len(line.lstrip(" "))
        if indented <= 3 and len(closing) >= len(self.fence) and not closing.strip(self.fence[0]):
            self.fence = ""
            return True
        return False


class FenceSplitter:
    """Text in, text out, with long code blocks cut into parts. The text may come in pieces of any size."""

    def __init__(self) -> None:
        self._fences = _Fences()
        self._line = ""
        self._lines = 0

    def feed(self, text: str) -> str:
        """The text to append for this piece."""
        out: list[str] = []
        for piece in _LINE.findall(text):
            if not self._line and self._lines >= PART and self._is_code(piece):
                fences = self._fences
                out.append(f"{fences.indent}{fences.fence}\n\n")
                out.append(f"{fences.indent}{fences.fence}{fences.info} {GOES_ON}\n")
                self._lines = 0
            out.append(piece)
            self._line += piece
            if piece.endswith("\n"):
                bounds = self._fences.take(self._line[:-1])
                self._lines = 0 if bounds or not self._fences.fence else self._lines + 1
                self._line = ""
        return "".join(out)

    def _is_code(self, beginning: str) -> bool:
        """Whether a line that begins like this cannot be the end of the block."""
        text = beginning.lstrip(" ")
        deep = len(beginning) - len(text) > 3
        return deep or (bool(text) and text[0] != self._fences.fence[0])


def code_blocks(text: str) -> list[CodeBlock]:
    """The fenced blocks of a text, the last one also where its end is missing."""
    return [CodeBlock(info.split()[0] if info else "", "\n".join(lines)) for info, lines in _blocks(text)]


def fenced(text: str, info: str) -> str:
    """A text as a fenced block whose fence is longer than any in it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{info}\n{text.removesuffix(chr(10))}\n{fence}"


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    fences, lines, info = _Fences(), list[str](), ""
    for line in text.split("\n"):
        was_open = bool(fences.fence)
        if fences.take(line):
            if was_open:
                yield info, lines
            info, lines = fences.info, []
        elif was_open:
            lines.append(line.removeprefix(fences.indent))
    if fences.fence:
        yield info, lines
