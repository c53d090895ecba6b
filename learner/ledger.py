"""Which units a round trains on, which it only tests on, and which earlier ones it goes over again.

Pure choices over what the ledger says, never over ids, times or chance: a lesson without a unit is the lesson of a
ledger that never held it, which is what makes forgetting one provable, and a run that is begun again makes the same
choices. An eighth of the new units is held out, at least one once there are two: a unit that was trained on can no
longer tell whether the lesson carries over. With fewer there is no evidence, and the round waits for more. A round
starts from the bare base, so everything learned before must be in it: all earlier units come along while they are
few, a sample of them once they are many: a round takes as long as what is new, not as what was.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from store.types import UnitState
from store.units import FEWEST, Unit

HELD_OUT_SHARE = 8
MAX_HELD_OUT = 6
REPLAY_ALL_UP_TO = 24
REPLAY_SHARE = 0.25


@dataclass(frozen=True)
class Split:
    """New units to train on, units to test on, earlier units to go over again. No unit is in two of them."""

    train: list[Unit]
    held_out: list[Unit]
    replay: list[Unit]


def digest(waiting: Sequence[Unit], learned: Sequence[Unit]) -> str:
    """Hash of a lesson's content: what is new and what was learned or held out before, in the ledger's order."""
    lines = [f"new {unit.content_hash}" for unit in waiting]
    lines += [f"{unit.state} {unit.content_hash}" for unit in learned]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def seed(content: str, attempt: int) -> int:
    """31 bits from a lesson's `digest`; another ``attempt`` at a lesson that the gate has refused starts elsewhere."""
    made = hashlib.sha256(f"{content} {attempt}".encode()).digest()
    return int.from_bytes(made[:4], "big") & 0x7FFFFFFF


def split(
    waiting: Sequence[Unit],
    learned: Sequence[Unit],
    seed: int,
    usable: Callable[[Unit], bool] = lambda _: True,
) -> Split:
    """Divide the ledger. Units held out once stay held out, and test later rounds too.

    ``usable``: whether an earlier unit can be made into an example. It is asked only of those that are picked, because
    making one takes milliseconds and there may be ten thousand.
    """
    earlier_tests = [unit for unit in learned if unit.state is UnitState.HELD_OUT]
    earlier = [unit for unit in learned if unit.state is UnitState.USED]
    tests = tested(waiting)
    fresh = [unit for unit in waiting if unit.id not in tests]
    newest = list(islice(filter(usable, reversed(earlier_tests)), MAX_HELD_OUT))
    held_out = [unit for unit in waiting if unit.id in tests] + newest[::-1]
    return Split(fresh, held_out, _replayed(earlier, len(fresh), random.Random(seed), usable))


def tested(waiting: Sequence[Unit]) -> Collection[str]:
    """The ids of the new units to hold out: by their content, as good as by chance."""
    # That one answer was left for another is too weak to prove anything: it is learned on the side, and no test.
    telling = [unit for unit in waiting if not unit.kind.compares]
    count = 0 if len(telling) < FEWEST else max(1, len(telling) // HELD_OUT_SHARE)
    # A unit with the owner's own text, or a hint, tells more than a bare thumb: test on those first.
    ranked = sorted(telling, key=lambda unit: (unit.target is None, unit.hint is None, unit.content_hash))
    return {unit.id for unit in ranked[: min(count, MAX_HELD_OUT)]}


@dataclass(frozen=True)
class Again:
    """The last round of a history that is played over: its number, its new units, and what it knew before."""

    number: int
    waiting: list[Unit]
    learned: list[Unit]


def play_over(history: Sequence[tuple[Unit, int]]) -> Again | None:
    """The last round as it would have been, had what is no longer in the history never been there.

    ``history``: units in the ledger's order with the number of the round each came in with. Each round is divided
    anew; one that is too small now waits for the next one, as it would have then. None where no round is left.
    """
    known: dict[str, UnitState] = {}
    pool: set[str] = set()
    last = None
    for number in sorted({number for _, number in history}):
        pool |= {unit.id for unit, when in history if when == number}
        new = [replace(unit, state=UnitState.QUEUED) for unit, _ in history if unit.id in pool]
        tests = tested(new)
        if not tests:
            continue
        learned = [replace(unit, state=known[unit.id]) for unit, _ in history if unit.id in known]
        last = Again(number, new, learned)
        known |= {unit.id: UnitState.HELD_OUT if unit.id in tests else UnitState.USED for unit in new}
        pool = set()
    return last


def _replayed(
    earlier: Sequence[Unit], fresh: int, choice: random.Random, usable: Callable[[Unit], bool]
) -> list[Unit]:
    if len(earlier) <= REPLAY_ALL_UP_TO:
        return list(filter(usable, earlier))
    count = max(REPLAY_ALL_UP_TO, round(fresh * REPLAY_SHARE))
    drawn = choice.sample(list(earlier), len(earlier))
    picked = {unit.id for unit in islice(filter(usable, drawn), count)}
    return [unit for unit in earlier if unit.id in picked]
