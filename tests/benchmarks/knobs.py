"""Is a controller with four knobs better than any of them alone? The simulated people, one knob or all of them.

An arm is a set of knobs that may be turned, the others being set to `never`, and nothing else differs: the same people
(`personas.people`), questions, reactions and host. A trial ends when three replies in a row satisfy, since nothing that
comes later is asked for. Learning is asked for as soon as enough lessons wait, without the pause that the host leaves a
person to go on rating. Results are one line a trial, and the same command goes on where it was cut off.

    python -m tests.benchmarks.knobs [--arms NAME ...] [--people NAME ...] [--sessions N] [--seeds N] [--out FILE]
        [--report]
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import fmean
from typing import Protocol

from store.control import Approval, Knob
from tests.benchmarks.personas import figures
from tests.benchmarks.personas.people import PEOPLE, Person
from tests.benchmarks.personas.trial import Reply


class Arm(StrEnum):
    """What may be changed."""

    NONE = "none"
    MEMORY = "memory"
    INSTRUCTION = "instruction"
    GUARD = "guard"
    WEIGHTS = "weights"
    CONTROLLER = "controller"

    @property
    def knobs(self) -> frozenset[Knob]:
        """The knobs that turn by themselves."""
        match self:
            case Arm.NONE:
                return frozenset()
            case Arm.CONTROLLER:
                return frozenset(Knob)
            case _:
                return frozenset({Knob(self.value)})

    @property
    def approvals(self) -> dict[Knob, Approval]:
        """The setting of each knob."""
        return {knob: Approval.AUTOMATIC if knob in self.knobs else Approval.NEVER for knob in Knob}


SINGLE = (Arm.MEMORY, Arm.INSTRUCTION, Arm.GUARD, Arm.WEIGHTS)
WORST = 1.1
"""What the controller may need of the best single knob's sessions, on any person."""


@dataclass(frozen=True)
class Trial:
    """One person and one arm. ``satisfied``: of each session, in order; ``changes``: what was decided, as knob names.

    ``prompt_tokens``: tokens read for all replies, those included that a guard had made again; ``cpu_seconds``: of the
    host and of the learner.
    """

    person: str
    arm: Arm
    seed: int
    sessions: int
    satisfied: tuple[bool, ...]
    prompt_tokens: int
    cpu_seconds: float
    changes: tuple[str, ...]

    @property
    def key(self) -> str:
        """What was asked for, in one line."""
        return key(self.person, self.arm, self.seed, self.sessions)

    @property
    def content(self) -> bool:
        """Whether the person became content."""
        return figures.sessions_until_content(self.satisfied) is not None


@dataclass(frozen=True)
class Spent:
    """What a trial took."""

    prompt_tokens: int
    cpu_seconds: float
    changes: tuple[str, ...]


class Agent(Protocol):
    """What a person talks to."""

    def ask(self, question: str, seed: int) -> Reply: ...
    def rate(self, message: str, value: int, note: str | None) -> None: ...
    def correct(self, message: str, text: str) -> None: ...
    def settle(self) -> None: ...
    def spent(self) -> Spent: ...


def key(person: str, arm: Arm, seed: int, sessions: int) -> str:
    """A trial's name."""
    return f"{person}/{arm}/s{seed}/n{sessions}"


def talk(person: Person, arm: Arm, seed: int, sessions: int, agent: Agent) -> Trial:
    """Ask until content, at most so many sessions; whoever is not content says why, and how it should have been."""
    asked = list(person.taught)
    random.Random(f"{person.name} {seed}").shuffle(asked)
    satisfied: list[bool] = []
    for number in range(sessions):
        each = asked[number % len(asked)]
        reply = agent.ask(each.question, number)
        kept = person.holds(each.question, reply.text)
        satisfied.append(kept)
        if figures.sessions_until_content(satisfied) is not None:
            break
        agent.rate(reply.message, 1 if kept else -1, None if kept else person.complaint(each.question))
        wanted = person.edited(each, reply.text).strip()
        if not kept and wanted and wanted != reply.text.strip():
            agent.correct(reply.message, wanted)
        agent.settle()
    spent = agent.spent()
    return Trial(
        person.name,
        arm,
        seed,
        sessions,
        tuple(satisfied),
        spent.prompt_tokens,
        spent.cpu_seconds,
        spent.changes,
    )


class Results:
    """A file of trials, one a line; a line that was only half written is left out and its trial made again."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Trial]:
        """What is there, by key."""
        found: dict[str, Trial] = {}
        lines = self._path.read_text(encoding="utf-8").splitlines() if self._path.exists() else []
        for line in lines:
            try:
                made = json.loads(line)
            except ValueError:
                continue
            trial = Trial(
                **{
                    **made,
                    "arm": Arm(made["arm"]),
                    "satisfied": tuple(made["satisfied"]),
                    "changes": tuple(made["changes"]),
                }
            )
            found[trial.key] = trial
        return found

    def add(self, trial: Trial) -> None:
        """Append one; a half line of a run that died is ended first."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        torn = self._path.exists() and not self._path.read_bytes().endswith(b"\n")
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(asdict(trial)) + "\n")


def ratios(counts: Mapping[tuple[str, Arm], float]) -> dict[str, float]:
    """The controller's sessions over those of the best single knob, for each person who has been through all arms."""
    people = {person for person, _ in counts}
    return {
        person: counts[person, Arm.CONTROLLER] / min(counts[person, arm] for arm in SINGLE)
        for person in sorted(people)
        if all((person, arm) in counts for arm in (Arm.CONTROLLER, *SINGLE))
    }


def means(trials: Iterable[Trial], value: Callable[[Trial], float]) -> dict[tuple[str, Arm], float]:
    """A figure of each person and arm, the mean over seeds."""
    found: dict[tuple[str, Arm], list[float]] = {}
    for trial in trials:
        found.setdefault((trial.person, trial.arm), []).append(value(trial))
    return {each: fmean(values) for each, values in found.items()}


def table(trials: Sequence[Trial]) -> str:
    """Sessions by person and arm in Markdown, ≥ where one was never content, then what each arm took per person."""
    sessions = means(trials, lambda each: len(each.satisfied))
    tokens = means(trials, lambda each: each.prompt_tokens)
    cpu = means(trials, lambda each: each.cpu_seconds)
    never = {(each.person, each.arm) for each in trials if not each.content}
    arms = [arm for arm in Arm if any(each.arm is arm for each in trials)]
    people = [name for name in PEOPLE if any(each.person == name for each in trials)]
    against = ratios(sessions)
    rows = [["person", *arms, "controller / best single"], ["---"] * (len(arms) + 2)]
    for name in people:
        cells = [
            ("≥ " if (name, arm) in never else "") + f"{sessions[name, arm]:.0f}"
            if (name, arm) in sessions
            else ""
            for arm in arms
        ]
        rows.append([name, *cells, f"{against[name]:.2f}" if name in against else ""])
    whole = [name for name in people if all((name, arm) in sessions for arm in arms)]
    for title, figure in (("sessions", sessions), ("prompt tokens", tokens), ("CPU s", cpu)):
        if whole:
            average = {arm: fmean(figure[name, arm] for name in whole) for arm in arms}
            best = [average[arm] for arm in SINGLE if arm in average]
            complete = Arm.CONTROLLER in average and len(best) == len(SINGLE)
            ratio = f"{average[Arm.CONTROLLER] / min(best):.2f}" if complete else ""
            rows.append([f"mean {title} of {len(whole)}", *(f"{average[arm]:.0f}" for arm in arms), ratio])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n" + verdict(against)


def verdict(against: Mapping[str, float]) -> str:
    """Whether the aim is met by those who have been through all arms."""
    if not against:
        return "nobody has been through all arms yet\n"
    over = [name for name, ratio in against.items() if ratio > WORST]
    return f"over {WORST} of the best single knob: {', '.join(over) if over else 'nobody'}\n"


def run(person: str, arm: Arm, seed: int, sessions: int) -> Trial:
    """One trial in a data directory of its own."""
    from tests.benchmarks.knobs_agent import Mynah

    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mynah-knobs-") as root, Mynah(Path(root), arm) as agent:
        trial = talk(PEOPLE[person], arm, seed, sessions, agent)
    seen = "".join("+" if each else "-" for each in trial.satisfied)
    print(
        f"{trial.key}: {seen} {' '.join(trial.changes) or 'no change'} in {time.monotonic() - began:.0f} s",
        file=sys.stderr,
        flush=True,
    )
    return trial


def arguments() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", nargs="+", type=Arm, choices=list(Arm), default=list(Arm))
    parser.add_argument("--people", nargs="+", choices=list(PEOPLE), default=list(PEOPLE))
    parser.add_argument("--sessions", type=int, default=16, help="the most a person has")
    parser.add_argument("--seeds", type=int, default=1, help="orders of the questions")
    parser.add_argument("--out", type=Path, default=Path(".cache/knobs.jsonl"))
    parser.add_argument("--report", action="store_true", help="only the table of what is there")
    given = parser.parse_args()
    if given.sessions < figures.IN_A_ROW or given.seeds < 1:
        parser.error(f"at least {figures.IN_A_ROW} sessions and one seed")
    return given


def main() -> None:
    """Run what is left of what was asked for, then print all of it."""
    given = arguments()
    results = Results(given.out)
    wanted = [
        (name, arm, seed, given.sessions)
        for seed in range(given.seeds)
        for name in given.people
        for arm in given.arms
    ]
    if not given.report:
        for each in wanted:
            if key(*each) not in results.read():
                results.add(run(*each))
    found = results.read()
    made = [found[key(*each)] for each in wanted if key(*each) in found]
    if not made:
        sys.exit(f"{given.out} holds none of what was asked for: run it without --report")
    print(table(made), end="")


if __name__ == "__main__":
    main()
