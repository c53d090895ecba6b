"""The rules by which Mynah decides what to change about itself, as pure functions over what was counted.

Nothing < memory < instruction < guard < weights: the cheapest knob that can help goes first, and a dearer one only when
the cheaper was in force often enough and was seen not to help. A rule that the owner said is cheap; one that would have
to be guessed from corrections costs more than showing those corrections to the model, so a taste that was only shown
goes to the weights. What failed twice is locked, and when nothing is left the honest answer is that it cannot be fixed.

All inputs are plain values that the record of a decision holds, so every decision can be made again from its record.
The order of knobs follows measurements of others: memory brought 14.9 %, weights alone 1.1 %, both 16.0 %
(arXiv 2409.09510); updates to text and to weights are never made in one window, or neither can be told to help.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from store.causes import Cause, Signature, Violated
from store.evidence import Count
from store.quotes import FORGOTTEN

RULES = "control-1"
"""Part of every record: other rules have another name, and records of this one keep being made again by it."""

MIN_FAILURES, MIN_CONVERSATIONS = 3, 2
MIN_LOW = 0.02
"""The rate that failures must at least have, at the interval's lower end: rarer ones are not worth a change."""
MIN_EXPOSED = 6
"""Occasions a change must have had before anything is said of it."""
EVERYTHING, NEW = "everything", "new"
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


COST: Mapping[Knob, int] = {Knob.MEMORY: 1, Knob.INSTRUCTION: 2, Knob.GUARD: 3, Knob.WEIGHTS: 4}
GUESSED = 3
"""What a rule costs more that nobody said: dearer than the weights, which are shown the corrections themselves."""
RISK: Mapping[Knob, str] = {
    Knob.MEMORY: "low: one fact more in the prompt",
    Knob.INSTRUCTION: "low: every reply reads one line more",
    Knob.GUARD: "medium: a good reply may be changed",
    Knob.WEIGHTS: "high: every reply may change; the gate tests it first",
}
CHECKABLE = frozenset({Violated.TOO_LONG, Violated.LIST, Violated.FORMAT, Violated.PHRASE, Violated.LANGUAGE})
"""What code can see in a reply."""

_SAID, _SHOWN = True, False
_KNOBS: Mapping[Cause, tuple[tuple[Knob, bool], ...]] = {
    Cause.OWN_FACT: ((Knob.MEMORY, _SAID),),
    Cause.WORLD_FACT: ((Knob.MEMORY, _SAID), (Knob.WEIGHTS, _SHOWN)),
    Cause.UNKNOWN_FACT: (),
    Cause.RULE: ((Knob.INSTRUCTION, _SAID), (Knob.GUARD, _SAID), (Knob.WEIGHTS, _SHOWN)),
    Cause.STYLE: ((Knob.WEIGHTS, _SHOWN), (Knob.INSTRUCTION, _SHOWN), (Knob.GUARD, _SHOWN)),
    Cause.UNCLEAR: (),
}
_NO_KNOB = {
    Cause.UNKNOWN_FACT: "the facts were wrong, and nobody has said what is right: correct one such reply, or tell me",
    Cause.UNCLEAR: "replies were not liked, and nothing says what was wrong: one key with a thumb down does",
}


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
    """A change that is not over yet. ``applied`` False: it waits for the owner's word."""

    decision: str
    knob: Knob
    applied: bool
    before: Count
    after: Count


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

    @property
    def used_up(self) -> str | None:
        """The first of the day's caps that is reached."""
        return next((name for name, cap in self.caps.items() if self.spent.get(name, 0.0) >= cap), None)

    def confidence(self, knob: Knob) -> float:
        """How likely a change by this knob helps, from what became of earlier ones (Laplace's rule), 0 to 1."""
        helped, tried = self.record.get(knob, (0, 0))
        return round((helped + 1) / (tried + 2), 3)


@dataclass(frozen=True)
class Inputs:
    """All that a decision on one signature is made from.

    ``offers`` are what can be proposed, by knob: the item that says the same already, or `NEW`; no words and no hashes
    of them, which would outlive what is forgotten. ``samples`` counts what a learning run could be made of.
    ``excluded`` is for the reader: no rule looks at it.
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

    def as_dict(self) -> dict[str, Any]:
        """As a record holds it."""
        record = asdict(self)
        record["signature"] = self.signature.key
        record["now"] = self.now.as_dict()
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
            ),
            world=world_of(record["world"]),
            excluded=record["excluded"],
            rules=record["rules"],
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


def verdict(before: Count, after: Count) -> Verdict:
    """Whether a change helped, from how often replies failed before it and while it was in force."""
    if after.steps < MIN_EXPOSED:
        return Verdict.TOO_EARLY
    low, high = after.interval
    if before.steps >= MIN_EXPOSED and low > before.interval[1]:
        return Verdict.WORSE
    if after.failures == 0 or high < before.rate:
        return Verdict.HELPED
    if after.steps >= 2 * MIN_EXPOSED and after.rate <= before.rate / 2:
        return Verdict.HELPED
    if after.failures >= MIN_FAILURES or after.steps >= 4 * MIN_EXPOSED:
        return Verdict.NOT_HELPED
    return Verdict.TOO_EARLY


def decide(inputs: Inputs) -> Choice:
    """What to do about one signature."""
    world = inputs.world
    if inputs.flight is not None:
        return _in_flight(inputs.flight, world)
    if world.frozen:
        return Choice(Action.NOTHING, "everything is frozen: `mynah freeze --off` lets changes be made again")
    lacking = None if inputs.asked else _lacking(inputs.now)
    if lacking is not None:
        return Choice(Action.NOTHING, lacking)
    candidates = _candidates(inputs)
    usable = [each for each in candidates if each.why_not is None]
    if not usable:
        why = _NO_KNOB.get(inputs.signature.cause) or "nothing is left to try: " + "; ".join(
            f"{each.knob}: {each.why_not}" for each in candidates
        )
        return Choice(Action.GIVE_UP, f"I cannot fix this: {why}", candidates=tuple(candidates))
    chosen = usable[0]
    candidates = [
        _refused(each, f"{chosen.knob} is cheaper and not yet shown not to help")
        if each in usable[1:]
        else each
        for each in candidates
    ]
    waits = _waits(chosen.knob, world)
    if waits is not None:
        return Choice(
            Action.NOTHING, f"{chosen.knob} would be next: {waits}", chosen.knob, candidates=tuple(candidates)
        )
    action = Action.PROPOSE if chosen.knob.is_context else Action.TRAIN
    ask = world.approval(chosen.knob) is Approval.ASK
    return Choice(action, _why(inputs), chosen.knob, ask, candidates=tuple(candidates))


def _in_flight(flight: Flight, world: World) -> Choice:
    if not flight.applied:
        return Choice(
            Action.NOTHING, f"decision {flight.decision} waits for the owner's word", target=flight.decision
        )
    found = verdict(flight.before, flight.after)
    after, before = flight.after, flight.before
    seen = f"{after.failures} of {after.steps} replies failed with it, {before.failures} of {before.steps} before"
    if found is Verdict.WORSE or (found is Verdict.NOT_HELPED and flight.knob.is_context):
        # Frozen stops new changes; taking a bad one back is no new change, but the owner said that nothing moves.
        if world.frozen:
            return Choice(Action.NOTHING, f"it should be taken back ({seen}), but everything is frozen")
        said = "it made things worse" if found is Verdict.WORSE else "it did not help"
        return Choice(Action.ROLLBACK, f"{said}: {seen}", flight.knob, target=flight.decision)
    return Choice(Action.NOTHING, f"one change at a time: {flight.decision} is being tried ({seen})")


def _lacking(now: Count) -> str | None:
    """What is missing before anything may be concluded."""
    if now.failures < MIN_FAILURES or now.conversations < MIN_CONVERSATIONS:
        return (
            f"too little to go by: {now.failures} failures in {now.conversations} conversations, "
            f"wanted are {MIN_FAILURES} in {MIN_CONVERSATIONS}"
        )
    low, high = now.interval
    if low < MIN_LOW:
        return (
            f"too rare to be worth a change: {now.failures} of {now.steps} replies ({low:.1%} to {high:.1%})"
        )
    return None


def _candidates(inputs: Inputs) -> list[Candidate]:
    """The knobs for a cause, the one to try first at the top, each with why it cannot be tried where it cannot."""
    found = []
    for knob, said in _KNOBS[inputs.signature.cause]:
        if knob is Knob.GUARD and inputs.signature.violated not in CHECKABLE:
            continue
        cost = COST[knob] + (GUESSED if knob.is_context and not said else 0)
        found.append(Candidate(knob, cost, RISK[knob], inputs.world.confidence(knob), _why_not(inputs, knob)))
    return sorted(found, key=lambda each: (_failed(inputs, each.knob), each.cost))


def _why_not(inputs: Inputs, knob: Knob) -> str | None:
    failed = _failed(inputs, knob)
    if inputs.world.approval(knob) is Approval.NEVER:
        return "the owner said never"
    if failed >= LOCKED_AFTER:
        return "locked: it failed here before" if failed == LOCKED_AFTER else "locked: it failed here often"
    if knob is Knob.WEIGHTS:
        return None if inputs.samples else "nothing is left to learn from that was not learned already"
    if knob not in inputs.offers:
        return "nothing to propose"
    if inputs.offers[knob] in {each.item for each in inputs.attempts}:
        return "the same change was made here before"
    return None


def _failed(inputs: Inputs, knob: Knob) -> int:
    return sum(each.failures for each in inputs.attempts if each.knob is knob)


def _waits(knob: Knob, world: World) -> str | None:
    """Why a knob cannot be turned just now."""
    if world.breaker(EVERYTHING) is Breaker.OPEN:
        return "too many changes went wrong lately, so all wait"
    if world.breaker(knob) is Breaker.OPEN:
        return "too many of its changes went wrong lately, so it waits"
    if world.breaker(knob) is Breaker.HALF_OPEN and knob in world.trying:
        return "its changes went wrong lately, so one is tried at a time"
    if world.used_up is not None:
        return f"the day's limit of {world.used_up} is reached"
    if world.run_open and knob.is_context:
        return "a learning run is under way, and two changes at once cannot be told apart"
    return None


def _why(inputs: Inputs) -> str:
    if inputs.asked:
        return "the owner asked for it in so many words"
    low, high = inputs.now.interval
    return (
        f"{inputs.now.failures} of {inputs.now.steps} replies in {inputs.now.conversations} conversations failed like "
        f"this ({low:.0%} to {high:.0%})"
    )


def _refused(candidate: Candidate, why: str) -> Candidate:
    return Candidate(candidate.knob, candidate.cost, candidate.risk, candidate.confidence, why)


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

    ``stale`` were said before what surrounds the model was changed for them; ``busy``: such a change is being tried.
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


STALE = "an instruction, a memory or a guard took this over"
BUSY = "another change is being tried for this first"
FAULT = "the reply was a service's notice of a fault, not an answer"
LOCKED = "learning did not help with this twice, so it is not tried a third time by itself"


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


def decide_round(inputs: RoundInputs) -> RoundChoice:
    """Whether a learning run that is due by the clock may begin, and what it must leave out.

    Lessons that nothing else has taken over are learned as they come, support or not: few are enough for the weights
    to be worth a try, and the gate decides whether they were.
    """
    world = inputs.world
    held: dict[str, str] = {}
    left = 0
    learns: list[str] = []
    for group in inputs.groups:
        reasons = {unit: _left_out(group, unit) for unit in group.units}
        held |= {unit: why for unit, why in reasons.items() if why is not None}
        going = [unit for unit, why in reasons.items() if why is None]
        left += len(going)
        if going and group.signature is not None:
            learns.append(group.signature)
    if world.frozen:
        return RoundChoice(Action.NOTHING, "everything is frozen")
    if world.approval(Knob.WEIGHTS) is Approval.NEVER:
        return RoundChoice(Action.NOTHING, "the owner said that the weights never learn by themselves")
    waits = _waits(Knob.WEIGHTS, world)
    if waits is not None:
        return RoundChoice(Action.NOTHING, waits)
    if not left and not inputs.unjudged:
        return RoundChoice(
            Action.NOTHING, "nothing is left to learn that another knob did not take over", held=held
        )
    left_fresh = sum(unit not in held for unit in inputs.fresh)
    if left_fresh < inputs.needed:
        return RoundChoice(Action.NOTHING, f"{left_fresh} of {inputs.needed} new lessons are left to learn", held=held)
    ask = world.approval(Knob.WEIGHTS) is Approval.ASK
    why = f"{left} new lessons, due by {inputs.trigger}" if left else "messages that nobody has looked at yet"
    return RoundChoice(Action.TRAIN, why, ask, tuple(learns), held)


def _left_out(group: Group, unit: str) -> str | None:
    if unit in group.faults:
        return FAULT
    if unit in group.stale:
        return STALE
    if group.busy:
        return BUSY
    return LOCKED if group.failed >= LOCKED_AFTER else None


def remake(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any] | None:
    """The choice that a record's inputs lead to: what the record must hold. None where part of them was forgotten."""
    if FORGOTTEN in json.dumps(inputs, ensure_ascii=False):
        return None
    if kind == ROUND:
        return decide_round(RoundInputs.of(inputs)).as_dict()
    return decide(Inputs.of(inputs)).as_dict()


def describe(signature: Signature) -> str:
    """A signature as a person says it."""
    return _DESCRIBED[signature.violated].format(topic=signature.topic.replace("-", " "))


_DESCRIBED: Mapping[Violated, str] = {
    Violated.TOO_LONG: "replies are too long ({topic})",
    Violated.TOO_SHORT: "replies are too short ({topic})",
    Violated.LIST: "lists where none are wanted ({topic})",
    Violated.HARD_WORDS: "words that are too hard ({topic})",
    Violated.LANGUAGE: "another language than wanted ({topic})",
    Violated.FORMAT: "another format than wanted ({topic})",
    Violated.PHRASE: "phrases that are not wanted ({topic})",
    Violated.UNITS: "other units than wanted ({topic})",
    Violated.FACT: "facts: {topic}",
    Violated.WORDING: "wording ({topic})",
    Violated.UNSAID: "something nobody has named ({topic})",
}
