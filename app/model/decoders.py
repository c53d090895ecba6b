"""From a stream of pieces to text that may be shown: whole characters, and never a part of a stop string.

A token ends where the tokenizer likes it to: in the middle of an emoji, or after `<|im_`. Both are held back
until it is known what they become, so nothing that was shown is ever taken back.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence


class Utf8Decoder:
    """Bytes in, text out; the bytes of an unfinished character are held back. Broken bytes become U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, data: bytes) -> str:
        """The characters that are complete now."""
        return self._decoder.decode(data)

    def finish(self) -> str:
        """What is left: U+FFFD for a character that was never completed."""
        return self._decoder.decode(b"", final=True)


class StopFilter:
    """Text in, text out, up to the stop string that begins first; a possible beginning of one is held back."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = [stop for stop in stops if stop]
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = False

    def feed(self, text: str) -> str:
        """The text that may be shown now; "" once a stop string was met."""
        if self.stopped:
            return ""
        self._held += text
        possible = self._possible_start()
        met = self._first_met()
        # A stop that is complete still waits for an earlier one that may become complete ("b" in "ab…" before "abc").
        if met is not None and met <= possible:
            return self._stop_at(met)
        shown, self._held = self._held[:possible], self._held[possible:]
        return shown

    def finish(self) -> str:
        """What was held back, at the end of the text."""
        met = None if self.stopped else self._first_met()
        if met is not None:
            return self._stop_at(met)
        shown, self._held = self._held, ""
        return shown

    def _stop_at(self, position: int) -> str:
        shown, self._held, self.stopped = self._held[:position], "", True
        return shown

    def _first_met(self) -> int | None:
        """Where the first complete stop string begins."""
        return min((at for stop in self._stops if (at := self._held.find(stop)) >= 0), default=None)

    def _possible_start(self) -> int:
        """Where the text that may become a stop string begins; the end of the text if nowhere."""
        end = len(self._held)
        for at in range(max(0, end - self._longest + 1), end):
            if any(stop.startswith(self._held[at:]) for stop in self._stops):
                return at
        return end
