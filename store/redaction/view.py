"""The text as detectors see it: look-alike characters made plain, and everything already claimed reduced to one mark.

Detectors work on this view so that none of them has to know full-width digits, typographic dashes or placeholders.
A claimed span and a placeholder that was there before look alike, one mark each: so a redacted text shows its
detectors exactly the view on which they last found nothing, and redacting it again changes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from store.redaction.placeholders import PLACEHOLDER

MARK: Final = "\ufffc"
"""Stands for one claimed span. No detector's pattern can match it."""

_PLAIN: Final[dict[int, str]] = {
    **{0xFF01 + offset: chr(0x21 + offset) for offset in range(94)},
    **dict.fromkeys([0x2010, 0x2011, 0x2012, 0x2013, 0x2014, 0x2015, 0x2212], "-"),
    **dict.fromkeys([0x00A0, *range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000, 0x0009], " "),
    **dict.fromkeys([0x2018, 0x2019, 0x201A, 0x2032], "'"),
    **dict.fromkeys([0x201C, 0x201D, 0x201E, 0x2033], '"'),
}


def plain(text: str) -> str:
    """A text of the same length, with full-width forms, dashes, spaces and quotes in their ASCII form."""
    return text if text.isascii() and "\t" not in text else text.translate(_PLAIN)


class View:
    """A text with some spans claimed. Offsets into ``text`` are mapped back to the original by `original`."""

    def __init__(self, text: str, claimed: Iterable[tuple[int, int]] = ()) -> None:
        """``claimed`` are spans of ``text`` that do not overlap each other or any placeholder in it."""
        taken = sorted([*claimed, *(match.span() for match in PLACEHOLDER.finditer(text))])
        pieces: list[str] = []
        self._seen: list[int] = [0]
        self._real: list[int] = [0]
        length = position = 0
        for start, end in taken:
            pieces += (text[position:start], MARK)
            length += start - position + 1
            position = end
            self._seen.append(length)
            self._real.append(position)
        pieces.append(text[position:])
        self.text: str = plain("".join(pieces))

    def original(self, start: int, end: int) -> tuple[int, int]:
        """Where a span of the view, which holds no mark, lies in the text."""
        at = bisect_right(self._seen, start) - 1
        shift = self._real[at] - self._seen[at]
        return start + shift, end + shift
