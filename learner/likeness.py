"""How alike two short texts are, by their letters and words: what needs no model and knows every language."""

from __future__ import annotations

import re

WORD = re.compile(r"\w+", re.UNICODE)
_NAME_OR_NUMBER = re.compile(r"\b(?:\d[\d.,]*|[A-Z][\w'-]+)\b")
_SENTENCE_START = re.compile(r"(?:^|[.!?]\s+)\W*([A-Z])")


def words(text: str) -> list[str]:
    """The words of a text, case folded, in order."""
    return [word.casefold() for word in WORD.findall(text)]


def names(text: str) -> set[str]:
    """Names and numbers of a text; a sentence's first word is no name for being capitalised."""
    starts = {match.start(1) for match in _SENTENCE_START.finditer(text)}
    return {match[0].casefold() for match in _NAME_OR_NUMBER.finditer(text) if match.start() not in starts}


def letter_similarity(one: str, other: str) -> float:
    """Dice coefficient of the two texts' character pairs, 0 to 1."""
    first, second = _pairs(one), _pairs(other)
    total = len(first) + len(second)
    return 2 * len(first & second) / total if total else 0.0


def _pairs(text: str) -> set[str]:
    letters = "".join(words(text))
    return {letters[index : index + 2] for index in range(len(letters) - 1)}
