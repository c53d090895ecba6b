"""The numbers of the table: shares with intervals, differences in pairs, sessions until content, backward transfer.

Intervals are given because a dozen questions answered differently is noise: Wilson's for a share, and for a mean over
people a bootstrap that draws whole people, since the questions of one person are not independent of each other.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

IN_A_ROW = 3
_DRAWS = 2000
_Z = 1.959964


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def clear_of_zero(self) -> bool:
        """Whether zero lies outside."""
        return self.low > 0.0 or self.high < 0.0

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def wilson(hits: int, of: int) -> Interval:
    """A share's interval (Wilson 1927), which stays within 0 and 1 also at the ends. Raises ValueError for none."""
    if of <= 0:
        raise ValueError("a share of nothing has no interval")
    share = hits / of
    centre = (share + _Z**2 / (2 * of)) / (1 + _Z**2 / of)
    reach = _Z / (1 + _Z**2 / of) * math.sqrt(share * (1 - share) / of + _Z**2 / (4 * of**2))
    low = 0.0 if hits == 0 else max(0.0, centre - reach)
    return Interval(share, low, 1.0 if hits == of else min(1.0, centre + reach))


def mean(groups: Sequence[Sequence[float]]) -> Interval:
    """The mean of all values, with a percentile bootstrap over the groups (people), each taken whole.

    With one group there is nothing to draw: the interval is infinite. Raises ValueError where there is no value.
    """
    filled = [list(group) for group in groups if group]
    if not filled:
        raise ValueError("a mean of nothing has no interval")
    value = statistics.fmean(each for group in filled for each in group)
    if len(filled) == 1:
        return Interval(value, -math.inf, math.inf)
    chance = random.Random(len(filled))
    draws = sorted(
        statistics.fmean(each for group in chance.choices(filled, k=len(filled)) for each in group)
        for _ in range(_DRAWS)
    )
    return Interval(value, draws[int(0.025 * _DRAWS)], draws[int(0.975 * _DRAWS) - 1])


def sessions_until_content(satisfied: Sequence[bool]) -> int | None:
    """How many sessions it takes until three in a row satisfy, the three included; None where it never comes to that."""
    run = 0
    for number, each in enumerate(satisfied, start=1):
        run = run + 1 if each else 0
        if run == IN_A_ROW:
            return number
    return None


def backward_transfer(adherence: Sequence[Sequence[float]]) -> float:
    """Mean of what each lesson but the last gained or lost by the end: last row less the diagonal.

    Raises ValueError for fewer than two lessons or a matrix that is not square.
    """
    count = len(adherence)
    if count < 2 or any(len(row) != count for row in adherence):
        raise ValueError("backward transfer needs a square matrix of at least two lessons")
    return statistics.fmean(adherence[-1][place] - adherence[place][place] for place in range(count - 1))
