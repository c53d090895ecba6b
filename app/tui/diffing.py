"""A correction as a difference: what was crossed out and what was put in, word by word.

By words rather than lines, since a reply is prose and a correction often changes three words of a paragraph. A text
so long that a comparison by words would be felt while typing is compared by lines.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher

from textual.content import Content

GONE = "strike $text-warning"
NEW = "bold $text-success"
BY_WORDS = 4000
"""Characters of both texts up to which words are compared: 20 ms at the most."""

AROUND = 120
"""Characters of what stays the same that are shown on each side of a change."""

_WORD = re.compile(r"\s+|\w+|[^\w\s]")
_LINE = re.compile(r".*\n|.+")


def difference(before: str, after: str) -> Content:
    """Both texts in one: what is gone struck through, what is new in bold, and of the rest what lies around."""
    pieces = _pieces(before, after)
    last = len(pieces) - 1
    shown = [
        (piece, style) if style else (_around(piece, first=place == 0, last=place == last), style)
        for place, (piece, style) in enumerate(pieces)
    ]
    return Content.assemble(*shown)


def _around(text: str, *, first: bool, last: bool) -> str:
    """A stretch that stays the same, cut in the middle or at the end that no change is at."""
    head = "" if first else text[:AROUND]
    tail = "" if last else text[-AROUND:]
    return text if len(text) <= len(head) + len(tail) + AROUND else f"{head} … {tail}"


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
