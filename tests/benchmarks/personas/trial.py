"""One cell from an empty home to its figures: a person asks, reacts to what comes, and is asked nothing.

The person and the bookkeeping are here and know the model only as a `Subject`, so both can be tested without one.
Unseen questions are asked outside the history: nothing that is measured may teach. Every random choice is drawn from the
cell's own key.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tests.benchmarks.personas.people import Asked, Person
from tests.benchmarks.personas.plan import Cell, Channel, Method

THANKED = 0.5
"""Of the replies that a person likes, the share they say so of: most good replies are passed over in silence."""


@dataclass(frozen=True)
class Reply:
    """What the model said, and where."""

    message: str
    conversation: str
    text: str


@dataclass(frozen=True)
class Learned:
    """What one round came to.

    ``kl`` is the gate's drift on neutral text, None where it measured none; ``failed`` the checks that refused it,
    ``checks`` what all of them measured.
    """

    outcome: str
    seconds: float
    cpu_seconds: float
    units: int
    kl: float | None
    failed: list[str] = field(default_factory=list)
    checks: dict[str, float] = field(default_factory=dict)


class Subject(Protocol):
    """A model with a history, as a person meets it.

    `expect` says what will be asked before anything changes, for a subject that writes replies together.
    """

    def expect(self, questions: Sequence[str]) -> None: ...
    def ask(self, question: str, seed: int) -> Reply: ...
    def say(self, conversation: str, text: str, seed: int) -> None: ...
    def rate(self, message: str, value: int, note: str | None) -> None: ...
    def correct(self, message: str, text: str) -> None: ...
    def remember(self, rule: str) -> None: ...
    def learn(self) -> Learned: ...
    def answer(self, question: str, seed: int) -> str: ...
    def ability(self) -> float: ...


@dataclass(frozen=True)
class Measure:
    """After so many interactions: unseen replies that keep to the rule, exempt ones to which it was applied all the same."""

    interactions: int
    kept: int
    asked: int
    overdone: int
    exempt: int
    ability: float
    learned: Learned | None


@dataclass
class Outcome:
    """A cell's figures. ``satisfied``: of each interaction, whether the first reply kept to the rule."""

    cell: Cell
    satisfied: list[bool] = field(default_factory=list)
    measures: list[Measure] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        return {"key": self.cell.key, **asdict(self)}


def measured(
    person: Person, subject: Subject, interactions: int, asked: int, learned: Learned | None
) -> Measure:
    """Ask what was never taught."""
    unseen = person.unseen[:asked]
    subject.expect([*(each.question for each in unseen), *person.exempt])
    kept = sum(person.holds(each.question, subject.answer(each.question, n)) for n, each in enumerate(unseen))
    overdone = sum(person.holds(each, subject.answer(each, n)) for n, each in enumerate(person.exempt))
    return Measure(interactions, kept, len(unseen), overdone, len(person.exempt), subject.ability(), learned)


class Trial:
    """Carries a cell out on a fresh subject."""

    def __init__(self, cell: Cell, person: Person, subject: Subject) -> None:
        self._cell = cell
        self._person = person
        self._subject = subject
        self._chance = random.Random(cell.key)
        self._last_reply = ""
        self._remembered = False
        self.outcome = Outcome(cell)

    def run(self, told: Callable[[str], None] = lambda _: None) -> Outcome:
        """From the untaught model to the last checkpoint."""
        person, cell = self._person, self._cell
        taught = list(person.taught)
        random.Random(f"{cell.person} {cell.seed}").shuffle(taught)
        self.outcome.measures.append(measured(person, self._subject, 0, cell.asked, None))
        asked = [taught[number % len(taught)] for number in range(max(cell.checkpoints, default=0))]
        for number, each in enumerate(asked):
            if number == 0 or number in cell.checkpoints:
                until = min(step for step in cell.checkpoints if step > number)
                self._subject.expect([other.question for other in asked[number:until]])
            self.interact(each, number)
            done = number + 1
            told(f"{done} interactions")
            if done in cell.checkpoints:
                learned = self._subject.learn() if cell.method.learns else None
                self.outcome.measures.append(measured(person, self._subject, done, cell.asked, learned))
        return self.outcome

    def interact(self, asked: Asked, number: int) -> None:
        """One session: a question, its reply, and what the person does about it."""
        reply = self._subject.ask(asked.question, number)
        satisfied = self._person.holds(asked.question, reply.text)
        self.outcome.satisfied.append(satisfied)
        if self._cell.method is Method.MEMORY:
            if not satisfied and not self._remembered:
                self._subject.remember(self._person.rule)
                self._remembered = True
        elif self._cell.method.learns:
            self._react(asked, reply, satisfied, number)
        self._last_reply = reply.text

    def _react(self, asked: Asked, reply: Reply, satisfied: bool, number: int) -> None:
        method, channel = self._cell.method, self._cell.channel
        wanted = self._person.edited(asked, reply.text)
        if method is Method.SHUFFLED:
            # The same reactions, but of nothing: at random, and with the reply to another question for a text.
            satisfied, wanted = self._chance.random() < 0.5, self._last_reply
        said = self._person.thanks(asked.question) if satisfied else self._person.complaint(asked.question)
        if method is Method.ORACLE:
            self._subject.rate(reply.message, 1 if satisfied else -1, None if satisfied else said)
        elif channel in (Channel.THUMBS, Channel.ALL):
            note = None if satisfied or channel is Channel.THUMBS else said
            self._subject.rate(reply.message, 1 if satisfied else -1, note)
        if channel in (Channel.CORRECTIONS, Channel.ALL) and not satisfied and _differs(wanted, reply.text):
            self._subject.correct(reply.message, wanted)
        if channel in (Channel.IMPLICIT, Channel.ALL) and (not satisfied or self._chance.random() < THANKED):
            self._subject.say(reply.conversation, said, number)


def _differs(wanted: str, reply: str) -> bool:
    return bool(wanted.strip()) and wanted.strip() != reply.strip()


@dataclass
class Lessons:
    """People taught one after another to one model. ``adherence[i][j]``: person j's share after lesson i."""

    people: list[str]
    before: list[float]
    adherence: list[list[float]]
    outcomes: list[str]


def teach_in_turn(
    people: Sequence[Person], subject: Subject, interactions: int, asked: int, seed: int
) -> Lessons:
    """The forgetting matrix: combined, all channels, one lesson for each person."""

    def shares() -> list[float]:
        subject.expect([a.question for each in people for a in each.unseen[:asked]])
        return [
            sum(
                each.holds(a.question, subject.answer(a.question, n))
                for n, a in enumerate(each.unseen[:asked])
            )
            / asked
            for each in people
        ]

    made = Lessons([person.name for person in people], shares(), [], [])
    for person in people:
        cell = Cell(person.name, Method.COMBINED, Channel.ALL, seed, (interactions,), asked)
        trial = Trial(cell, person, subject)
        taught = list(person.taught)
        random.Random(f"{person.name} {seed}").shuffle(taught)
        subject.expect([each.question for each in taught[:interactions]])
        for number, each in enumerate(taught[:interactions]):
            trial.interact(each, number)
        made.outcomes.append(subject.learn().outcome)
        made.adherence.append(shares())
    return made
