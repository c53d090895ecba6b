"""Whether a hint says anything to the teacher, measured: a hint that changes nothing it would say teaches nothing.

The teacher is the base with the hint in front of it, and the lesson is the difference the hint makes. Where that is no
more than noise ("...", "hm", a remark about something else), distilling it trains the model to stay as it is while the
round believes it learned. So the difference is measured on the first tokens of the reply as it was given, and a hint
below the limit is left out, on record; what is left is a bare thumb.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from learner.examples import Example
from store import decisions
from store.db import Store
from store.units import Unit

MIN_SHIFT = 0.02
"""Nats per token, KL(with the hint ‖ without it)."""
SHIFT_TOKENS = 8
NO_WORDS = "the hint has no words"
NO_CHANGE = "the hint changes nothing of what would be said ({:.3f} nats per token, below {:g})"

Logits = NDArray[np.float32]


def says_something(hint: str) -> bool:
    """Whether there are two letters in it at least."""
    return sum(letter.isalpha() for letter in hint) >= 2


def shift(hinted: list[Logits], plain: list[Logits]) -> float:
    """Mean KL(hinted ‖ plain) over positions: the logits of each, (V,) twice a position. Raises ValueError for none."""
    if not hinted or len(hinted) != len(plain):
        raise ValueError("the shift needs the same positions on both sides, and one at least")
    return float(np.mean([_kl(with_hint, without) for with_hint, without in zip(hinted, plain, strict=True)]))


def without_hint(example: Example) -> Example:
    """What is left of an example whose hint says nothing."""
    return replace(example, hint=None, hinted=None, accepted=(), opinions=())


def record(store: Store, unit: Unit, reason: str) -> str:
    """Put on record that a unit's hint was left out, and why; returns the decision."""
    inputs = {"unit": unit.id, "content": unit.content_hash}
    return decisions.append(store, "hint", inputs, {"action": "leave the hint out", "reason": reason})


def _kl(one: Logits, other: Logits) -> float:
    first, second = _log_softmax(one), _log_softmax(other)
    return float(np.sum(np.exp(first) * (first - second)))


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    values = logits.astype(np.float64)
    values -= values.max()
    return np.asarray(values - np.log(np.exp(values).sum()))
