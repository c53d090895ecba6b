"""What can be told of a reply without a judge: empty, looping, running on, a list, longer than before.

Plain counting, because these checks stand in two places where a wrong yes does harm: they decide which of the
teacher's own replies may teach, and they are the health part of the gate. Whatever they cannot see is left to
the held-out units. A hint that names something countable (shorter, no list, another language) is held to it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

LIST_LINE = re.compile(r"^\s*(?:[-*•+]|\d{1,3}[.)])\s+\S", re.MULTILINE)
_LOOP_GRAM = 4
_LOOP_MIN_GRAMS = 20
_LOOP_WINDOW = 48
# Share of distinct four-token runs. SmolLM2's normal replies have 0.85 to 1.0, its loops 0.05 to 0.5.
_LOOP_DISTINCT = 0.5


class Demand(StrEnum):
    """What a hint asks for that can be counted."""

    SHORTER = "shorter"
    LONGER = "longer"
    NO_LIST = "no_list"
    SAME_LANGUAGE = "same_language"


_DEMAND_WORDS: dict[Demand, re.Pattern[str]] = {
    Demand.SHORTER: re.compile(
        r"\b(short(?:er)?|brief(?:ly)?|concise|too long|one or two|less text)\b|짧|간단|간결", re.IGNORECASE
    ),
    Demand.LONGER: re.compile(r"\b(longer|more detail|in detail|too short)\b|길게|자세", re.IGNORECASE),
    Demand.NO_LIST: re.compile(
        r"\b(no|not|without|never|avoid|any)\b[^.]{0,24}\b(lists?|bullets?)\b|목록 없이", re.IGNORECASE
    ),
    Demand.SAME_LANGUAGE: re.compile(r"\bsame language\b", re.IGNORECASE),
}


def demands(hint: str) -> frozenset[Demand]:
    """What of a hint can be checked."""
    return frozenset(demand for demand, words in _DEMAND_WORDS.items() if words.search(hint))


def loops(tokens: Sequence[int]) -> bool:
    """Whether a reply repeats itself anywhere: one token over and over, or too few distinct runs of four.

    Looked at in windows, because a loop that begins after a hundred good words is one all the same.
    """
    if len(tokens) >= _LOOP_MIN_GRAMS:
        common = Counter(tokens).most_common(1)[0][1]
        if common > len(tokens) // 2:
            return True
    grams = [tuple(tokens[start : start + _LOOP_GRAM]) for start in range(len(tokens) - _LOOP_GRAM + 1)]
    if len(grams) < _LOOP_MIN_GRAMS:
        return False
    window = min(len(grams), _LOOP_WINDOW)
    starts = range(len(grams) - window + 1)
    return any(len(set(grams[start : start + window])) < _LOOP_DISTINCT * window for start in starts)


def has_list(text: str) -> bool:
    """Whether a text holds a line that begins like a list item."""
    return LIST_LINE.search(text) is not None


def script(text: str) -> str | None:
    """The writing system of most letters (LATIN, HANGUL, CYRILLIC …), None without letters."""
    names = Counter(unicodedata.name(letter, "?").split()[0] for letter in text if letter.isalpha())
    return names.most_common(1)[0][0] if names else None


def teaches(
    reply: str, tokens: Sequence[int], *, ended: bool, question: str, rejected: str, hint: str
) -> str | None:
    """Why a teacher's reply must not teach, or None where nothing speaks against it."""
    if not reply.strip():
        return "it is empty"
    if not ended:
        return "it did not end"
    if loops(tokens):
        return "it repeats itself"
    if reply.strip() == rejected.strip():
        return "it is the rejected reply again"
    wanted = demands(hint)
    if Demand.SHORTER in wanted and len(reply) > 0.6 * len(rejected):
        return "it is not shorter"
    if Demand.LONGER in wanted and len(reply) < 1.2 * len(rejected):
        return "it is not longer"
    if Demand.NO_LIST in wanted and has_list(reply):
        return "it has a list"
    if Demand.SAME_LANGUAGE in wanted and script(reply) != script(question):
        return "it is in another script than the question"
    return None
