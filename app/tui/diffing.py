"""A correction as a difference: what was crossed out and what was put in, word by word.

By words rather than lines, since a reply is prose and a correction often changes three words of a paragraph. A text
so long that a comparison by words would be felt while typing is compared by lines.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from rich.text import Text
from textual.content import Content

GONE = "strike $text-warning"
NEW = "bold $text-success"
BY_WORDS = 4000
"""Characters of both texts up to which words are compared: 20 ms at the most."""

_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_LINE = re.compile(r".*\n|.+")


def difference(before: str, after: str) -> Content:
    """Both texts in one: what is gone struck through, what is new in bold."""
    return Content.assemble(*((piece, style) for piece, style in _pieces(before, after)))


def rich_difference(before: str, after: str, gone: str, new: str) -> Text:
    """The same for a page that is drawn with Rich, in the given styles."""
    text = Text(overflow="fold")
    for piece, style in _pieces(before, after):
        text.append(piece, {GONE: gone, NEW: new}.get(style, ""))
    return text


def summary(before: str, after: str) -> str:
    """The size of a correction in a few words."""
    gone = new = 0
    for piece, style in _pieces(before, after):
        words = len(piece.split())
        gone += words if style == GONE else 0
        new += words if style == NEW else 0
    if not gone and not new:
        return "nothing is changed yet"
    return " · ".join(part for part in (gone and f"−{gone}", new and f"+{new}") if part) + " words"


def _pieces(before: str, after: str) -> list[tuple[str, str]]:
    token = _WORD if len(before) + len(after) <= BY_WORDS else _LINE
    old, new = token.findall(before), token.findall(after)
    pieces: list[tuple[str, str]] = []
    matcher = SequenceMatcher(a=old, b=new, autojunk=False)
    for operation, a_start, a_end, b_start, b_end in matcher.get_opcodes():
        if operation == "equal":
            pieces.append(("".join(old[a_start:a_end]), ""))
            continue
        if a_end > a_start:
            pieces.append(("".join(old[a_start:a_end]), GONE))
        if b_end > b_start:
            pieces.append(("".join(new[b_start:b_end]), NEW))
    return pieces
