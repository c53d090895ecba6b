"""Does it learn from a person, and faster than by other means? People with hidden rules, channels, methods, one table.

A trial asks ordinary questions, reacts to each reply as its person would, learns at the checkpoints and is measured on
questions that are never taught. Results are appended to a file, one line a cell: the same command goes on where it was
cut off, the most telling cells first. A cell of 16 interactions takes two minutes on two cores with the default model, ten
through the host (`--way host`), where everything is as for an owner; what the two ways differ in stands in `direct`.

    python -m tests.benchmarks.personas [--personas NAME ...] [--methods NAME ...] [--channels NAME ...] [--way WAY]
        [--interactions N ...] [--questions N] [--seeds N] [--model NAME] [--out FILE] [--report] [--in-turn]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from tests.benchmarks.personas import report
from tests.benchmarks.personas.people import PEOPLE
from tests.benchmarks.personas.plan import Cell, Channel, Method, Way, cells
from tests.benchmarks.personas.results import Results
from tests.benchmarks.personas.trial import Outcome, Subject, Trial, teach_in_turn

CHECKPOINTS = (4, 8, 16, 32)


Opened = Callable[[Path, Method], AbstractContextManager[Subject]]
"""Makes the subject of a trial in a data directory, for a method."""


@contextmanager
def subjects(way: Way, model: str | None, memo: Path) -> Iterator[Opened]:
    """What the trials of a run have in common; ``memo`` keeps what the bare model says."""
    if way is Way.HOST:
        from tests.benchmarks.personas.subject import Mynah

        yield lambda root, method: Mynah(root, method, model)
    else:
        from learner.__main__ import bound_threads

        bound_threads()
        from tests.benchmarks.personas.direct import Bench

        with Bench(model, memo) as bench:
            yield bench.subject


def run(cell: Cell, opened: Opened) -> Outcome:
    """One cell in a data directory of its own."""
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="mynah-persona-") as root,
        opened(Path(root), cell.method) as subject,
    ):
        outcome = Trial(cell, PEOPLE[cell.person], subject).run()
    last = outcome.measures[-1]
    learned = "" if last.learned is None else f" ({last.learned.outcome} {', '.join(last.learned.failed)})"
    print(
        f"{cell.key}: {last.kept}/{last.asked}{learned} in {time.monotonic() - began:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return outcome


def in_turn(names: list[str], interactions: int, asked: int, opened: Opened) -> str:
    """The forgetting matrix."""
    with (
        tempfile.TemporaryDirectory(prefix="mynah-persona-") as root,
        opened(Path(root), Method.COMBINED) as subject,
    ):
        return report.matrix(teach_in_turn([PEOPLE[name] for name in names], subject, interactions, asked, 0))


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--personas", nargs="+", choices=list(PEOPLE), default=list(PEOPLE))
    parser.add_argument("--methods", nargs="+", type=Method, choices=list(Method), default=list(Method))
    parser.add_argument("--channels", nargs="+", type=Channel, choices=list(Channel), default=list(Channel))
    parser.add_argument("--interactions", nargs="+", type=int, default=list(CHECKPOINTS), help="checkpoints")
    parser.add_argument("--questions", type=int, default=16, help="unseen questions asked at each checkpoint")
    parser.add_argument("--seeds", type=int, default=1, help="orders of the taught questions")
    parser.add_argument("--way", type=Way, choices=list(Way), default=Way.DIRECT)
    parser.add_argument("--model", help="as `mynah models use` takes it")
    parser.add_argument("--out", type=Path, default=Path(".cache/personas.jsonl"))
    parser.add_argument("--report", action="store_true", help="only the table and plot of what is there")
    parser.add_argument("--in-turn", action="store_true", help="teach the people one after another instead")
    given = parser.parse_args()
    if min(given.interactions) < 1 or given.questions < 1 or given.seeds < 1:
        parser.error("checkpoints, questions and seeds are counted from 1")
    return given


def main() -> None:
    """Run what is left of what was asked for, then print all of it."""
    given = arguments()
    memo = given.out.with_suffix(".said.jsonl")
    if given.in_turn:
        with subjects(given.way, given.model, memo) as opened:
            print(in_turn(given.personas, max(given.interactions), given.questions, opened))
        return
    wanted = cells(
        given.personas,
        given.methods,
        given.channels,
        range(given.seeds),
        sorted(set(given.interactions)),
        given.questions,
        given.model,
        given.way,
    )
    results = Results(given.out)
    if not given.report:
        with subjects(given.way, given.model, memo) as opened:
            for cell in results.left(wanted):
                results.add(run(cell, opened))
    keys = {cell.key for cell in wanted}
    found = [outcome for outcome in results.read() if outcome.cell.key in keys]
    if not found:
        sys.exit(f"{given.out} holds none of what was asked for: run it without --report")
    print(report.table(found))
    print(report.plot(found))


if __name__ == "__main__":
    main()
