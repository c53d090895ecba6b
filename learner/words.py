"""What the learner's log says, as sentences: a person reads it when something went wrong, and no program does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from store.types import RunState


def refused(reasons: Iterable[str]) -> str:
    """How many replies were refused, and why, the most frequent reason first."""
    counted = Counter(reasons)
    told = ", ".join(f"{why} ({number})" if number > 1 else why for why, number in counted.most_common())
    return f"{counted.total()} refused: {told}" if told else "none refused"


def by_step(seconds: Mapping[RunState, float]) -> str:
    """How long each step took, in their order; nothing where there was none."""
    return ", ".join(f"{step} {taken:.0f} s" for step, taken in seconds.items())
