"""What a decision of the controller is made from and what it comes to, as plain values that a record can hold.

Everything a rule may look at is in `Inputs` or `RoundInputs`, and both go into the log and come back from it as they
were: that is what makes it possible to make every decision again. The rules themselves are in `store.deciding`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from store.causes import Signature
from store.evidence import Count

RULES = "control-2"
"""Part of every record: other rules have another name, and a record is made again only by those it was made by."""

EVERYTHING, NEW = "everything", "new"
CHANGES = "changes"
"""The cap that holds for every knob."""
LOCKED_AFTER = 2
"""Times a knob may fail on a signature."""


CONTROL, ROUND = "control", "round"
"""The kinds of records that hold a decision made here."""


class Knob(StrEnum):
    """What can be changed, the cheapest first."""

    MEMORY = "memory"
    INSTRUCTION = "instruction"
    GUARD = "guard"
    WEIGHTS = "weights"

    @property
    def is_context(self) -> bool:
        """Whether it changes what surrounds the model, not the model."""
        return self is not Knob.WEIGHTS


class Action(StrEnum):
    """What a decision comes to."""

    NOTHING = "nothing"
    PROPOSE = "propose"
    TRAIN = "train"
    ROLLBACK = "rollback"
    GIVE_UP = "give_up"


class Verdict(StrEnum):
    """Whether a change helped, as far as is known."""

    TOO_EARLY = "too_early"
    HELPED = "helped"
    NOT_HELPED = "not_helped"
    WORSE = "worse"


class Approval(StrEnum):
    """Who has to agree before a knob is turned."""

    AUTOMATIC = "automatic"
    ASK = "ask"
    NEVER = "never"


class Breaker(StrEnum):
    """Whether a knob may be turned at all, after what became of the last turns."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


@dataclass(frozen=True)
class Attempt:
    """A change that was made for a signature and is over. ``item`` it was; ``by_owner``: the owner took it back."""

    knob: Knob
    verdict: Verdict
    item: str
    by_owner: bool = False

    @property
    def failures(self) -> int:
        """How much it counts towards the lock: the owner's own word is enough."""
        if self.by_owner:
            return LOCKED_AFTER
        return 0 if self.verdict is Verdict.HELPED else 1


@dataclass(frozen=True)
class Flight:
    """A change that is not over yet.

    ``applied`` False: it waits for the owner's word. ``stays``: it is not for a rule to take back, since another
    version answers by now, or the owner chose this one.
    """

    decision: str
    knob: Knob
    applied: bool
    before: Count
    after: Count
    stays: bool = False


@dataclass(frozen=True)
class World:
    """What holds for every signature alike.

    ``spent`` and ``caps`` are of one day, by name; ``record``: how many changes of a knob helped, of how many;
    ``trying``: the knobs of changes that are not over.
    """

    frozen: bool = False
    run_open: bool = False
    approvals: Mapping[Knob, Approval] = field(default_factory=dict)
    breakers: Mapping[str, Breaker] = field(default_factory=dict)
    spent: Mapping[str, float] = field(default_factory=dict)
    caps: Mapping[str, float] = field(default_factory=dict)
    record: Mapping[Knob, tuple[int, int]] = field(default_factory=dict)
    trying: tuple[str, ...] = ()

    def approval(self, knob: Knob) -> Approval:
        """Who has to agree."""
        return self.approvals.get(knob, Approval.AUTOMATIC)

    def breaker(self, name: str) -> Breaker:
        """Of a knob by its name, or of all (`EVERYTHING`)."""
        return self.breakers.get(name, Breaker.CLOSED)

    def used_up(self, knob: Knob) -> str | None:
        """The first of the day's caps that is reached and holds for a knob: only learning takes minutes."""
        mine = (name for name in self.caps if name == CHANGES or knob is Knob.WEIGHTS)
        return next((name for name in mine if self.spent.get(name, 0.0) >= self.caps[name]), None)

    def confidence(self, knob: Knob) -> float:
        """How likely a change by this knob helps, from what became of earlier ones (Laplace's rule), 0 to 1."""
        helped, tried = self.record.get(knob, (0, 0))
        return round((helped + 1) / (tried + 2), 3)


@dataclass(frozen=True)
class Inputs:
    """All that a decision on one signature is made from.

    ``offers`` are what can be proposed, by knob: the item that says the same already, or `NEW`; no words and no hashes
    of them, which would outlive what is forgotten. ``said``: the owner put into words what is wanted; ``stated``: what
    is right about the owner was written down by the owner. ``rehearsed``: of recorded questions that were answered
    again with what is offered, how many were wrong all the same. ``samples`` counts what a learning run could be made
    of. ``excluded`` is for the reader: no rule looks at it.
    """

    signature: Signature
    now: Count
    asked: bool = False
    offers: Mapping[Knob, str] = field(default_factory=dict)
    samples: int = 0
    attempts: tuple[Attempt, ...] = ()
    flight: Flight | None = None
    world: World = field(default_factory=World)
    excluded: Mapping[str, int] = field(default_factory=dict)
    rules: str = RULES
    said: bool = False
    stated: bool = False
    rehearsed: Mapping[Knob, Count] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As a record holds it."""
        record = asdict(self)
        record["signature"] = self.signature.key
        record["now"] = self.now.as_dict()
        record["rehearsed"] = {str(knob): count.as_dict() for knob, count in self.rehearsed.items()}
        if self.flight is not None:
            record["flight"] |= {"before": self.flight.before.as_dict(), "after": self.flight.after.as_dict()}
        plain: dict[str, Any] = json.loads(json.dumps(record))
        return plain

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Inputs:
        """The inputs of a record."""
        flight = record["flight"]
        return cls(
            signature=Signature.parse(record["signature"]),
            now=Count.of(record["now"]),
            asked=record["asked"],
            offers={Knob(knob): item for knob, item in record["offers"].items()},
            samples=record["samples"],
            attempts=tuple(
                Attempt(Knob(each["knob"]), Verdict(each["verdict"]), each["item"], each["by_owner"])
                for each in record["attempts"]
            ),
            flight=None
            if flight is None
            else Flight(
                flight["decision"],
                Knob(flight["knob"]),
                flight["applied"],
                Count.of(flight["before"]),
                Count.of(flight["after"]),
                flight.get("stays", False),
            ),
            world=world_of(record["world"]),
            excluded=record["excluded"],
            rules=record["rules"],
            said=record["said"],
            stated=record["stated"],
            rehearsed={Knob(knob): Count.of(count) for knob, count in record["rehearsed"].items()},
        )


@dataclass(frozen=True)
class Candidate:
    """A knob that was looked at. ``why_not`` is None for the one that was chosen."""

    knob: Knob
    cost: int
    risk: str
    confidence: float
    why_not: str | None = None


@dataclass(frozen=True)
class Choice:
    """What was decided, and why not something else. ``ask``: it waits for the owner's word."""

    action: Action
    why: str
    knob: Knob | None = None
    ask: bool = False
    target: str | None = None
    candidates: tuple[Candidate, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As a record holds it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain


def world_of(record: Mapping[str, Any]) -> World:
    """The world of a record."""
    return World(
        frozen=record["frozen"],
        run_open=record["run_open"],
        approvals={Knob(knob): Approval(value) for knob, value in record["approvals"].items()},
        breakers={name: Breaker(value) for name, value in record["breakers"].items()},
        spent=record["spent"],
        caps=record["caps"],
        record={Knob(knob): (pair[0], pair[1]) for knob, pair in record["record"].items()},
        trying=tuple(record["trying"]),
    )


@dataclass(frozen=True)
class Group:
    """The lessons of one signature that wait for a run.

    ``stale`` were said before what surrounds the model was changed for them; ``busy``: a change is being tried.
    """

    signature: str | None
    units: tuple[str, ...]
    stale: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    busy: bool = False
    failed: int = 0


@dataclass(frozen=True)
class RoundInputs:
    """All that the decision on an automatic learning run is made from.

    ``fresh`` are the lessons that no run has tried, of which there must be ``needed``.
    """

    trigger: str
    groups: tuple[Group, ...]
    unjudged: int
    world: World
    fresh: tuple[str, ...] = ()
    needed: int = 0
    rules: str = RULES

    def as_dict(self) -> dict[str, Any]:
        """As a record holds it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> RoundInputs:
        """The inputs of a record."""
        groups = tuple(
            Group(
                each["signature"],
                tuple(each["units"]),
                tuple(each["stale"]),
                tuple(each["faults"]),
                each["busy"],
                each["failed"],
            )
            for each in record["groups"]
        )
        return cls(
            record["trigger"],
            groups,
            record["unjudged"],
            world_of(record["world"]),
            tuple(record["fresh"]),
            record["needed"],
            record["rules"],
        )


@dataclass(frozen=True)
class RoundChoice:
    """Whether to learn, from which signatures, and which units are left out, with the reason of each."""

    action: Action
    why: str
    ask: bool = False
    learns: tuple[str, ...] = ()
    held: Mapping[str, str] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """As a record holds it."""
        plain: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return plain
