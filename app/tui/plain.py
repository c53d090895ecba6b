"""The last gate before the terminal: no control character of anybody's text gets through.

A model can write ESC, and so can a title or a file that was imported; Textual hands such characters on, so a
reply could set the window's title, switch modes or colour the rest of the screen. Every line that any widget
draws passes this filter. Control characters have no width, so taking them out moves nothing.
"""

from __future__ import annotations

import re

from rich.segment import Segment
from textual.color import Color
from textual.filter import LineFilter

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class PlainText(LineFilter):
    """Takes control characters out of drawn text."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The same segments, their texts without C0 and C1 characters; sequences of Textual's own are kept."""
        return [
            segment
            if segment.control or not _CONTROL.search(segment.text)
            else Segment(_CONTROL.sub("", segment.text), segment.style)
            for segment in segments
        ]
