"""Which units a round trains on, which it only tests on, and which earlier ones it goes over again.

Pure choices over the ledger, seeded by the run, so a run that is begun again makes the same ones. An eighth of the
new units is held out, at least one once there are two: a unit that was trained on can no longer tell whether the
lesson carries over. With fewer there is no evidence, and the round waits for more. A round starts from the bare
base, so everything learned before must be in it: all earlier units come along while they are few, a sample of
them once they are many.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from store.types import UnitState
from store.units import Unit

HELD_OUT_SHARE = 8
MIN_UNITS = 2
MAX_HELD_OUT = 6
REPLAY_ALL_UP_TO = 24
REPLAY_SHARE = 0.25


@dataclass(frozen=True)
class Split:
    """New units to train on, units to test on, earlier units to go over again. No unit is in two of them."""

    train: list[Unit]
    held_out: list[Unit]
    replay: list[Unit]


def split(waiting: Sequence[Unit], learned: Sequence[Unit], seed: int) -> Split:
    """Divide the ledger. Units held out once stay held out, and test later rounds too."""
    choice = random.Random(seed)
    earlier_tests = [unit for unit in learned if unit.state is UnitState.HELD_OUT]
    earlier = [unit for unit in learned if unit.state is UnitState.USED]
    count = 0 if len(waiting) < MIN_UNITS else max(1, len(waiting) // HELD_OUT_SHARE)
    # A unit with the owner's own text, or a hint, tells more than a bare thumb: test on those first.
    ranked = sorted(waiting, key=lambda unit: (unit.target is None, unit.hint is None, choice.random()))
    tests = {unit.id for unit in ranked[: min(count, MAX_HELD_OUT)]}
    fresh = [unit for unit in waiting if unit.id not in tests]
    held_out = [unit for unit in waiting if unit.id in tests] + earlier_tests[-MAX_HELD_OUT:]
    return Split(fresh, held_out, _replayed(earlier, len(fresh), choice))


def _replayed(earlier: Sequence[Unit], fresh: int, choice: random.Random) -> list[Unit]:
    if len(earlier) <= REPLAY_ALL_UP_TO:
        return list(earlier)
    count = max(REPLAY_ALL_UP_TO, round(fresh * REPLAY_SHARE))
    picked = {unit.id for unit in choice.sample(list(earlier), min(count, len(earlier)))}
    return [unit for unit in earlier if unit.id in picked]
