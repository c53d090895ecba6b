"""Whether a text quotes one that is to be forgotten: any run of its characters that is long enough, at any place.

What was said can turn up where nobody thinks of it: in the reason of a decision, a note of a run, a line of a log.
Comparing whole texts would miss an excerpt, so windows are compared: every eighth window of a forgotten text is kept
in a set, and a run of 23 characters or more, wherever it is cut from, holds one of them whole. A shorter text is
looked for as a whole; a single word or a few letters are found in everything and say nothing, so they are not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from store.causes import keys_of

WINDOW = 16
STRIDE = 8
LEAST = 8
FORGOTTEN = "(forgotten)"


class Quotes:
    """The texts that are to be forgotten, ready to be recognised."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._windows: set[str] = set()
        self._whole: set[str] = set()
        whole_texts = list(texts)
        # What a failure was about is named by words of the question it followed.
        self._keys = tuple(sorted(key for text in whole_texts for key in keys_of(text)))
        for text in {line.strip() for each in whole_texts for line in each.splitlines()}:
            if len(text) >= WINDOW:
                self._windows.update(
                    text[start : start + WINDOW] for start in range(0, len(text) - WINDOW + 1, STRIDE)
                )
            elif len(text) >= LEAST and not text.isalpha():
                self._whole.add(text)

    def __bool__(self) -> bool:
        return bool(self._windows or self._whole)

    def in_(self, text: str) -> bool:
        """Whether a text holds a piece of any of them."""
        if any(whole in text for whole in self._whole) or text.endswith(self._keys):
            return True
        windows = self._windows
        return any(text[start : start + WINDOW] in windows for start in range(len(text) - WINDOW + 1))

    def without(self, value: Any) -> Any:
        """A JSON value with every string that quotes replaced; the value itself where none does."""
        if isinstance(value, str):
            return FORGOTTEN if self.in_(value) else value
        if isinstance(value, list):
            return [self.without(each) for each in value]
        if isinstance(value, dict):
            return {key: self.without(each) for key, each in value.items()}
        return value

    def without_json(self, text: str) -> str:
        """A JSON document with every string that quotes replaced; unchanged to the byte where none does."""
        value = json.loads(text)
        cleaned = self.without(value)
        if cleaned == value:
            return text
        return json.dumps(cleaned, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
