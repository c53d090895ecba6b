"""Does a round grow with what is new, or with what was? Whole rounds on histories of ten to ten thousand lessons.

Each history is filled with past lessons of the same kind (corrections of everyday replies), then eight new corrections
are learned by the learner's own round, in this process, on the default model, down to a live version. Printed are the
seconds of each step; the last column compares the whole with the smallest history that is long enough for replay to be
drawn (up to 24 earlier lessons are gone over whole, so a shorter history has less to do, not more).

    python -m tests.benchmarks.round_cost [--past N ...] [--prepare-only]

`--prepare-only` stops when the examples are made: that is what reads the history, and takes seconds instead of minutes.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from unittest.mock import patch

from store import runs, signals
from store.db import Store
from store.home import Home
from store.types import SignalKind, Trigger, UnitState
from tests import seed
from tests.benchmarks.styles import TAUGHT, UNSEEN

PAST = (10, 100, 1_000, 10_000)
REPLAY_FROM = 100
_REPLY = "That depends on a lot of things, and there is much to say about it. First of all you should take your time."


@dataclass(frozen=True)
class Cost:
    """One round: seconds of each step, and of the whole with its claim and its end."""

    past: int
    outcome: str
    steps: dict[str, float]
    seconds: float


def fill(store: Store, past: int) -> None:
    """Past lessons, one in eight held out, as earlier rounds would have left them."""
    with store.write():
        for number in range(past):
            question = f"{UNSEEN[number % len(UNSEEN)]} ({number})"
            unit = seed.corrected(
                store, question, _REPLY, f"In short, it is simple, as I said {number} times."
            )
            state = UnitState.HELD_OUT if number % 8 == 0 else UnitState.USED
            store.conn.execute("UPDATE units SET state = ? WHERE id = ?", (state, unit.id))


def teach(store: Store) -> None:
    """The eight new lessons."""
    for question, answer in TAUGHT.items():
        _, _, reply = seed.say(store, question, f"{_REPLY} {question}")
        signals.record(store, reply, SignalKind.CORRECTION, text=answer)


class _Prepared(Exception):
    """Raised when the examples are made."""


def measure(home: Home, past: int, *, prepare_only: bool) -> Cost:
    """Fill a home, and carry one round out."""
    from learner import judge, requery
    from learner.round import Round
    from learner.yielding import Yielding
    from tests.leases import Free

    def stop(*_: object) -> None:
        raise _Prepared

    with closing(Store.open(home)) as store:
        fill(store, past)
        teach(store)
        runs.request(store, Trigger.MANUAL)
        run = runs.claim(store, os.getpid())
        assert run is not None
        began = time.monotonic()
        judge.judge_waiting(
            store, requery.sentence_similarity, partial(judge.fitted_reader, store), lambda: None
        )
        judged = time.monotonic() - began
        carried = Round(store, run, Yielding(Free()))
        outcome = "prepared"
        if prepare_only:
            with patch.object(Round, "_teach", stop), suppress(_Prepared):
                carried.carry_out()
        else:
            outcome = str(carried.carry_out())
        seconds = time.monotonic() - began
        return Cost(
            past,
            outcome,
            {"judging": judged} | {str(step): taken for step, taken in carried.seconds.items()},
            seconds,
        )


def table(costs: list[Cost]) -> str:
    """In Markdown."""
    names = list(dict.fromkeys(name for cost in costs for name in cost.steps))
    usual = next((cost.seconds for cost in costs if cost.past >= REPLAY_FROM), costs[0].seconds)
    rows = [
        ["past lessons", "outcome", *names, "whole, s", f"against {REPLAY_FROM}"],
        ["---"] * (len(names) + 4),
    ]
    for cost in costs:
        steps = [f"{cost.steps[name]:.2f}" if name in cost.steps else "" for name in names]
        rows.append(
            [f"{cost.past:,}", cost.outcome, *steps, f"{cost.seconds:.2f}", f"{cost.seconds / usual:.2f}"]
        )
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def main() -> None:
    """Measure what was asked for, and print the table."""
    from learner.__main__ import bound_threads

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--past", nargs="+", type=int, default=list(PAST))
    parser.add_argument("--prepare-only", action="store_true")
    given = parser.parse_args()
    bound_threads()
    if not given.prepare_only:
        # What a learner that is warm has in memory already.
        import_module("learner.trainer")
        import_module("peft")
    costs = []
    for past in given.past:
        with tempfile.TemporaryDirectory(prefix="mynah-cost-") as root:
            costs.append(measure(Home(Path(root)).open(), past, prepare_only=given.prepare_only))
            print(table(costs[-1:]), flush=True)
    print(table(costs))


if __name__ == "__main__":
    main()
