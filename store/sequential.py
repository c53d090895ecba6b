"""Whether objections have become more frequent, decided reply by reply: Wald's sequential probability ratio test.

A test with a fixed number of replies either waits for a hundred or cries wolf; this one ends as soon as the evidence
does, after nine replies where each is objected to and after some thirty where as many are as before. Its error rates
are chosen beforehand and hold although it is looked at after every reply (Wald 1945; the bounds are his
approximations). Pure functions of counts: what was decided can be decided again from the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

FALSE_ALARM = 0.001
"""How often a version that is as good as the one before would be taken back. Low: the owner may be teaching."""
MISSED = 0.1
LEAST_RISE = 0.2
NO_ROOM = 0.75
"""Where three in four replies were objected to before, a rise cannot be told from an owner who teaches."""


class Finding(StrEnum):
    """What the evidence says so far."""

    UNDECIDED = "undecided"
    RISEN = "risen"
    NOT_RISEN = "not risen"
    UNTESTABLE = "untestable"


@dataclass(frozen=True)
class Watched:
    """One state of the test. ``usual``: the rate of objections before, ``risen``: the one that counts as a rise."""

    finding: Finding
    replies: int
    objections: int
    usual: float
    risen: float
    evidence: float

    def as_dict(self) -> dict[str, Any]:
        """For the record of a decision."""
        return {
            **asdict(self),
            "usual": round(self.usual, 4),
            "risen": round(self.risen, 4),
            "evidence": round(self.evidence, 3),
        }


def rate(objections: int, replies: int) -> float:
    """An estimate of a rate from few replies: one objection and one content reply are put to them (Laplace)."""
    return (objections + 1) / (replies + 2)


def watch(before: tuple[int, int], objected: Sequence[bool]) -> Watched:
    """Test replies in their order against the rate before. ``before``: objections, replies.

    Ends at the first bound that is reached: what came after it does not count any more.
    """
    usual = rate(*before)
    risen = min(0.95, usual + max(LEAST_RISE, usual))
    if usual >= NO_ROOM:
        return Watched(Finding.UNTESTABLE, len(objected), sum(objected), usual, risen, 0.0)
    upper, lower = math.log((1 - MISSED) / FALSE_ALARM), math.log(MISSED / (1 - FALSE_ALARM))
    worse, better = math.log(risen / usual), math.log((1 - risen) / (1 - usual))
    evidence, objections = 0.0, 0
    for number, each in enumerate(objected, start=1):
        evidence += worse if each else better
        objections += each
        if evidence >= upper:
            return Watched(Finding.RISEN, number, objections, usual, risen, evidence)
        if evidence <= lower:
            return Watched(Finding.NOT_RISEN, number, objections, usual, risen, evidence)
    return Watched(Finding.UNDECIDED, len(objected), objections, usual, risen, evidence)


def next_beyond(values: Sequence[float], limit: float, least: int = 3) -> bool:
    """Whether a series that has risen over its last values would go beyond its limit with the next one.

    Over the last four at most; the step is the mean one. Fewer than ``least`` values are no series.
    """
    last = list(values[-4:])
    if len(last) < least:
        return False
    step = (last[-1] - last[0]) / (len(last) - 1)
    rising = all(later > earlier for earlier, later in pairwise(last))
    return rising and last[-1] + step > limit
