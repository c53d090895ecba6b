"""Reads what the owner did after a reply: asked again, wanted it otherwise, put a fact right, thanked, went on.

The phrases of `requery` are certain and few; most dissatisfaction is a plain sentence ("in km", "it's Canberra").
A small linear classifier over sentence embeddings, character runs and a dozen comparisons with the question and
the reply reads those. It is fitted in a second from labelled examples that come with Mynah (`next_states.txt`) and
from the owner's own verdicts, which count more. A wrong reward teaches, so it speaks only above a threshold at
which it was right 97 times in 100 on writers it was not fitted on, and abstains otherwise. Embeddings see no
Korean: there the character runs carry it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import resources
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learner.likeness import letter_similarity, words
from store.verdicts import OTHERWISE, PUT_RIGHT

Array = NDArray[np.float64]
Embed = Callable[[Sequence[str]], NDArray[np.float32]]
"""Texts to unit vectors, one row for each."""

PRECISION = 0.97
"""Wanted of the verdicts that are used, on writers not fitted on; 0.95 is promised, the rest is margin."""
OWNER_WEIGHT = 4.0
"""Of one verdict of the owner's against one shipped example: their own way of putting things decides."""

_REGULARISATION = 5.0
_EMBEDDING_SCALE, _SURFACE_SCALE, _LETTERS_SCALE = 2.0, 2.0, 2.0
_LONG = 30
_FOLDS = 4
_FUNCTION_WORDS = frozenset(
    "a an and are as at be by can did do does for how i in is it me my no not of on or so that the this to was what "
    "when where which who why with would you your".split()
)
_ASKS = re.compile(
    r"^\W*(?:and|so|ok|okay|but|then|wait)?\W*(?:how|what|why|when|where|who|which|can|could|would|does|do|is|are)\b",
    re.IGNORECASE,
)
# Thanks that go on to want something are no thanks: "thank you, but", "next time", "고마워요, 근데".
_RESERVED = re.compile(
    r"\b(?:but|though|although|however|nevertheless|next time|from now on|in (?:the )?future|instead|rather|"
    r"i guess|too|less|more|without|prefer)\b|근데|그런데|그러나|하지만|지만|다만|다음부터|앞으로|말고|더\s|[?？]",
    re.IGNORECASE,
)


class NextState(StrEnum):
    """What a person did next, as far as a message shows it."""

    AGAIN = "again"
    CHANGE = "change"
    FACT = "fact"
    THANKS = "thanks"
    FOLLOW_UP = "follow"
    NEW_TOPIC = "new"
    OTHER = "other"


DISSATISFIED = frozenset({NextState.AGAIN, NextState.CHANGE, NextState.FACT})
"""A change request counts as dissatisfaction, never as a neutral new instruction."""

WORDING: dict[NextState, str] = {
    NextState.AGAIN: "asked again",
    NextState.CHANGE: OTHERWISE,
    NextState.FACT: PUT_RIGHT,
    NextState.THANKS: "thanked",
    NextState.FOLLOW_UP: "asked on",
    NextState.NEW_TOPIC: "went on to something else",
    NextState.OTHER: "said something else",
}


@dataclass(frozen=True)
class Pair:
    """A question, the reply, and what its writer said next."""

    question: str
    reply: str
    following: str


@dataclass(frozen=True)
class Labelled:
    """A pair with what it was. ``writer`` groups pairs of one hand, so that no one is tested on their own style."""

    pair: Pair
    state: NextState
    writer: str
    weight: float = 1.0


@dataclass(frozen=True)
class Reading:
    """What a message says of the reply before it. ``reward`` is -1, +1, or 0 where the reader abstains.

    ``dissatisfied`` is the calibrated probability that the reply was found wanting; ``confidence`` that of the verdict.
    """

    state: NextState
    reward: int
    confidence: float
    dissatisfied: float


def shipped() -> list[Labelled]:
    """The examples that come with Mynah: 554, in English and Korean, by twelve writers."""
    return parse(resources.files(__package__).joinpath("next_states.txt").read_text(encoding="utf-8"))


def parse(text: str) -> list[Labelled]:
    """Labelled pairs from lines of state, language, writer, question, reply, next message, divided by tabs."""
    labelled = []
    for line in text.splitlines():
        state, language, writer, question, reply, following = line.split("\t")
        labelled.append(Labelled(Pair(question, reply, following), NextState(state), f"{language} {writer}"))
    return labelled


class Reader:
    """The fitted classifier. Deterministic for the same examples."""

    def __init__(self, examples: Sequence[Labelled], embed: Embed) -> None:
        self._embed = embed
        features = self._features([example.pair for example in examples])
        states = np.array([example.state.value for example in examples])
        weights = np.array([example.weight for example in examples])
        self._model = _Linear(features, [e.pair.following for e in examples], states, weights)
        unseen = _unseen(examples, features, states, weights)
        truths = [example.state for example in examples]
        self._negative = _Scale.of(unseen, truths, DISSATISFIED)
        self._positive = _Scale.of(unseen, truths, frozenset({NextState.THANKS}))

    def read(self, pairs: Sequence[Pair]) -> list[Reading]:
        """What each message says of the reply before it."""
        if not pairs:
            return []
        scores = self._model.scores(self._features(pairs), [pair.following for pair in pairs])
        return [self._reading(pair, row) for pair, row in zip(pairs, scores, strict=True)]

    def _reading(self, pair: Pair, scores: dict[NextState, float]) -> Reading:
        negative = sum(scores[state] for state in DISSATISFIED)
        positive = scores[NextState.THANKS]
        wanting = self._negative.calibrated(negative)
        if negative >= self._negative.threshold:
            worst = max(DISSATISFIED, key=lambda state: (scores[state], state))
            return Reading(worst, -1, wanting, wanting)
        if positive >= self._positive.threshold and not _RESERVED.search(pair.following):
            return Reading(NextState.THANKS, 1, self._positive.calibrated(positive), wanting)
        likely = max(scores, key=lambda state: scores[state])
        return Reading(likely, 0, scores[likely], wanting)

    def _features(self, pairs: Sequence[Pair]) -> Array:
        count = len(pairs)
        texts = [p.question for p in pairs] + [p.reply for p in pairs] + [p.following for p in pairs]
        vectors = np.asarray(self._embed(texts), dtype=np.float64)
        asked, said, after = vectors[:count], vectors[count : 2 * count], vectors[2 * count :]
        alike = np.stack([(asked * after).sum(1), (said * after).sum(1)], axis=1)
        surface = np.array([_surface(pair) for pair in pairs])
        return np.hstack([after * _EMBEDDING_SCALE, np.hstack([alike, surface]) * _SURFACE_SCALE])


def hint_from(following: str) -> str:
    """The owner's own words as a hint: the first three sentences, without the thanks before them."""
    text = re.sub(
        r"^\W*(?:thanks|thank you|thx|고마워요?|감사합니다)\b[^,.!;]*[,.!;]\s*",
        "",
        following,
        flags=re.IGNORECASE,
    )
    sentences = re.split(r"(?<=[.!?。])\s+", text.strip() or following.strip())
    return " ".join(sentences[:3])


class _Linear:
    """Logistic regression over dense features and the character runs of the next message."""

    def __init__(self, features: Array, texts: Sequence[str], states: Any, weights: Any) -> None:
        from scipy import sparse
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from threadpoolctl import threadpool_limits

        self._stack = sparse.hstack
        self._letters = TfidfVectorizer(
            analyzer="char_wb", ngram_range=(1, 4), min_df=2, sublinear_tf=True, lowercase=True
        )
        self._letters.fit(texts)
        self._regression = LogisticRegression(C=_REGULARISATION, max_iter=500, class_weight="balanced")
        # Small products on two spinning threads beside other work took 100 times as long as on one (38 s to 0.3 s).
        with threadpool_limits(1):
            self._regression.fit(self._joined(features, texts), states, sample_weight=weights)

    def scores(self, features: Array, texts: Sequence[str]) -> list[dict[NextState, float]]:
        """Probability of each state, one mapping per text; states that no example shows have none."""
        rows = self._regression.predict_proba(self._joined(features, texts))
        named = [NextState(name) for name in self._regression.classes_]
        return [
            dict.fromkeys(NextState, 0.0) | {state: float(p) for state, p in zip(named, row, strict=True)}
            for row in rows
        ]

    def _joined(self, features: Array, texts: Sequence[str]) -> Any:
        return self._stack([features, self._letters.transform(texts) * _LETTERS_SCALE]).tocsr()


@dataclass(frozen=True)
class _Scale:
    """From a raw score to a probability (Platt, 1999), and the score from which on verdicts are used."""

    slope: float
    offset: float
    threshold: float

    def calibrated(self, score: float) -> float:
        return 1.0 / (1.0 + math.exp(-(self.slope * _logit(score) + self.offset)))

    @classmethod
    def of(
        cls, rows: Sequence[dict[NextState, float]], states: Sequence[NextState], wanted: frozenset[NextState]
    ) -> _Scale:
        from sklearn.linear_model import LogisticRegression

        scores = np.array([sum(row[state] for state in wanted) for row in rows])
        truths = np.array([state in wanted for state in states])
        fitted = LogisticRegression().fit(np.array([[_logit(score)] for score in scores]), truths)
        return cls(float(fitted.coef_[0, 0]), float(fitted.intercept_[0]), _threshold(scores, truths))


def _threshold(scores: Array, truths: NDArray[np.bool_]) -> float:
    """The lowest score above which the share of right verdicts is never again below `PRECISION`; never under 0.5."""
    order = np.argsort(-scores, kind="stable")
    right = np.cumsum(truths[order]) / np.arange(1, len(order) + 1)
    good = np.flatnonzero(right >= PRECISION)
    return max(0.5, float(scores[order[good[-1]]])) if len(good) else 1.01


def _unseen(
    examples: Sequence[Labelled], features: Array, states: Any, weights: Any
) -> list[dict[NextState, float]]:
    """Scores of each example by a model that was fitted without its writer; writers go in a few folds together."""
    writers = sorted({example.writer for example in examples})
    fold_of = {writer: number % _FOLDS for number, writer in enumerate(writers)}
    folds = np.array([fold_of[example.writer] for example in examples])
    texts = np.array([example.pair.following for example in examples], dtype=object)
    scores: dict[int, dict[NextState, float]] = {}
    for fold in sorted(set(folds)):
        out = folds == fold
        model = _Linear(features[~out], list(texts[~out]), states[~out], weights[~out])
        mine = model.scores(features[out], list(texts[out]))
        scores |= dict(zip(np.flatnonzero(out).tolist(), mine, strict=True))
    return [scores[index] for index in range(len(examples))]


def _surface(pair: Pair) -> list[float]:
    """What comparing the three texts tells: overlaps, lengths, numbers that are new, whether it asks."""
    asked, said, after = (
        set(words(text)) - _FUNCTION_WORDS for text in (pair.question, pair.reply, pair.following)
    )
    asks = float("?" in pair.following or _ASKS.search(pair.following) is not None)
    numbers = set(re.findall(r"\d+", pair.following)) - set(
        re.findall(r"\d+", f"{pair.question} {pair.reply}")
    )
    from_question = _share(asked, after)
    return [
        from_question,
        _share(said, after),
        _share(after, asked),
        letter_similarity(pair.question, pair.following),
        letter_similarity(pair.reply, pair.following),
        asks,
        min(len(words(pair.following)), _LONG) / _LONG,
        float(bool(numbers)),
        float("!" in pair.following),
        float(pair.following.isascii()),
        float(bool(after - asked - said)),
        from_question * (1.0 - asks),
    ]


def _share(of: set[str], among: set[str]) -> float:
    return len(of & among) / len(among) if among else 0.0


def _logit(score: float) -> float:
    bounded = min(max(score, 1e-6), 1.0 - 1e-6)
    return math.log(bounded / (1.0 - bounded))
