"""Memories into the prompt: the few that fit the question, as quoted lines right before it, within a token budget.

As data and near the end, because a small model heeds what it read last, and because a memory must not be able to
give orders: each is one quoted line under a heading that says what it is. They stand in the last message alone and
are not saved with it, so that the next turn has its own. What fits is told by words: BM25 over word stems and, for
scripts without spaces, pairs of characters; where an embedding of the question is at hand, its cosine counts too.
There is no index on disk: the memories of a person are some hundreds of lines, which are scored faster than a table
is asked, and an index would be one place more to forget them from. Preferences hold whatever the question is, so they
come in when there is room.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from store.items import Item

HEADING = "Facts about me, quoted from earlier chats:"
"""Of eight wordings, nine questions each on SmolLM2, this and one other were answered best: 7 right, the worst 4."""

BUDGET = 256
"""Tokens at the most, and never more than a sixteenth of the window."""

PREFERENCE, FACT = "preference", "fact"
_K1, _B = 1.2, 0.75
_SIMILAR = 0.3
"""Cosine from which an embedding alone says that a memory is about the question. Of 64 questions about 8 facts, words
alone find the memory of 66 %; with this limit it is 94 %, and every fourth question about the world gets one that does
not belong to it (tests/benchmarks/recalling.py). At 0.4 it would be 78 % and every seventh."""

_WORD = re.compile(r"[^\W_]+")
_JOINED = re.compile(r"[\u1100-\u11ff\u3040-\u30ff\u3130-\u318f\u3400-\u9fff\uac00-\ud7af]+")
_BLOCK = re.compile(re.escape(HEADING) + r"\n(?:> [^\n]*\n)+\n")
_ENDINGS = ("ings", "ing", "ies", "ied", "ers", "ed", "es", "er", "ic", "s", "y")
_COMMON = frozenset(
    "a an and are as at be but by can could did do does for from had has have how i if in is it its me my of on or "
    "our please should so some tell that the their them then there these they this to too us was we were what when "
    "where which who whom why will with would you your".split()
)

Count = Callable[[str], int]


def features(text: str) -> list[str]:
    """What a text is found by: stems of its words, and pairs of characters where a script writes none."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        if _JOINED.fullmatch(word[0]):
            found += [word[at : at + 2] for at in range(max(len(word) - 1, 1))]
        elif word not in _COMMON:
            found.append(_stem(word))
    return found


def ranked(
    question: str, memories: Sequence[Item], similarity: Mapping[str, float] | None = None
) -> list[Item]:
    """The memories that are about a question, the nearest first; then preferences, the newest first."""
    wanted = set(features(question))
    documents = [features(f"{memory.topic.replace('-', ' ')} {memory.text}") for memory in memories]
    scores = _bm25(wanted, documents)
    near = similarity or {}
    for place, memory in enumerate(memories):
        closeness = near.get(memory.id, 0.0)
        scores[place] += closeness if closeness >= _SIMILAR else 0.0
    about = sorted(
        (place for place, score in enumerate(scores) if score > 0.0),
        key=lambda place: (-scores[place], -place),
    )
    rest = [
        place
        for place in reversed(range(len(memories)))
        if scores[place] <= 0.0 and memories[place].body.get("value_type") == PREFERENCE
    ]
    return [memories[place] for place in (*about, *rest)]


def within(memories: Sequence[Item], budget: int, count: Count) -> list[Item]:
    """As many of them as fit a budget of tokens, best first; one that is too long leaves room for shorter ones."""
    kept: list[Item] = []
    for memory in memories:
        if count(block([*kept, memory])) <= budget:
            kept.append(memory)
    return kept


def block(memories: Sequence[Item]) -> str:
    """Memories as they stand before a question; empty where there are none."""
    if not memories:
        return ""
    lines = (f"> {' '.join(memory.text.split())}" for memory in memories)
    return "\n".join((HEADING, *lines)) + "\n\n"


def without_block(text: str) -> str:
    """A message as it was typed."""
    return _BLOCK.sub("", text, count=1)


def budget_of(window: int) -> int:
    """How many tokens memories may take in a window."""
    return min(BUDGET, window // 16)


def _bm25(wanted: set[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """Robertson and Zaragoza 2009, eq. 3.15, with the inverse document frequency that is never negative."""
    if not wanted or not documents:
        return [0.0] * len(documents)
    holding = Counter(term for document in documents for term in wanted.intersection(document))
    mean = sum(map(len, documents)) / len(documents) or 1.0
    scores = []
    for document in documents:
        counts, norm = Counter(document), _K1 * (1 - _B + _B * len(document) / mean)
        scores.append(
            sum(
                math.log(1 + (len(documents) - holding[term] + 0.5) / (holding[term] + 0.5))
                * counts[term]
                * (_K1 + 1)
                / (counts[term] + norm)
                for term in wanted
                if counts[term]
            )
        )
    return scores


def _stem(word: str) -> str:
    """Cut so that ``allergies``, ``allergic`` and ``allergy`` meet: the forms need not be words."""
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 4:
            return word[: -len(ending)]
    return word
