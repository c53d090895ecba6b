"""The rules by which Mynah decides what to change about itself, as pure functions over what was counted.

Nothing < memory < instruction < guard < weights: the cheapest knob that can help goes first, and a dearer one only when
the cheaper was seen not to help: in a rehearsal on the very questions that went wrong, or in force, for as long as it
takes to tell (three of three do, by an exact test). What failed meanwhile counts for the next knob, so going up the
ladder costs no replies that say nothing new. A rule that the owner said is cheap; one that would have to be guessed
from corrections costs more than showing those corrections to the model, so a taste that was only shown goes to the
weights. What failed twice is locked, and when nothing is left the honest answer is that it cannot be fixed.

All inputs are plain values (`store.control`), so every decision can be made again from its record.
The order of knobs follows measurements of others: memory brought 14.9 %, weights alone 1.1 %, both 16.0 %
(arXiv 2409.09510); updates to text and to weights are never made in one window, or neither can be told to help.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from store.causes import Cause, Signature, Violated
from store.control import (
    EVERYTHING,
    LOCKED_AFTER,
    ROUND,
    RULES,
    Action,
    Approval,
    Breaker,
    Candidate,
    Choice,
    Flight,
    Group,
    Inputs,
    Knob,
    RoundChoice,
    RoundInputs,
    Verdict,
    World,
)
from store.evidence import Count
from store.quotes import FORGOTTEN

MIN_FAILURES, MIN_CONVERSATIONS = 3, 2
MIN_LOW = 0.02
"""The rate that failures must at least have, at the interval's lower end: rarer ones are not worth a change."""
MIN_EXPOSED = 6
"""Occasions a change must have had before it is said to have helped, or to have made things worse."""
CHANCE = 1 / 8
"""How likely so many failures may be of a change that halves them, before it is said not to help. So low that it takes
three of three where every reply failed before; an item that is given up for the next knob has cost nothing else."""
COST: Mapping[Knob, int] = {Knob.MEMORY: 1, Knob.INSTRUCTION: 2, Knob.GUARD: 3, Knob.WEIGHTS: 4}
GUESSED = 3
"""What a rule costs more that nobody said: dearer than the weights, which are shown the corrections themselves."""
RISK: Mapping[Knob, str] = {
    Knob.MEMORY: "low: one fact more in the prompt",
    Knob.INSTRUCTION: "low: every reply reads one line more",
    Knob.GUARD: "medium: a good reply may be changed",
    Knob.WEIGHTS: "high: every reply may change; the gate tests it first",
}
CHECKABLE = frozenset(
    {
        Violated.TOO_LONG,
        Violated.LIST,
        Violated.FORMAT,
        Violated.PHRASE,
        Violated.LANGUAGE,
        Violated.ENDING,
        Violated.CODE_ALONE,
        Violated.SPELLING,
        Violated.UNITS,
        Violated.QUESTION,
    }
)
"""What code can see in a reply."""


_CONTEXT = (Knob.INSTRUCTION, Knob.GUARD, Knob.WEIGHTS)
_KNOBS: Mapping[Cause, tuple[Knob, ...]] = {
    Cause.OWN_FACT: (Knob.MEMORY, Knob.WEIGHTS),
    Cause.WORLD_FACT: (Knob.MEMORY, Knob.WEIGHTS),
    Cause.UNKNOWN_FACT: (),
    Cause.RULE: _CONTEXT,
    Cause.STYLE: _CONTEXT,
    Cause.UNCLEAR: (),
}
_NO_KNOB = {
    Cause.UNKNOWN_FACT: "the facts were wrong, and nobody has said what is right: correct one such reply, or tell me",
    Cause.UNCLEAR: "replies were not liked, and nothing says what was wrong: one key with a thumb down does",
}


STALE = "an instruction, a memory or a guard took this over"
BUSY = "another change is being tried for this first"
FAULT = "the reply was a service's notice of a fault, not an answer"
NOTHING_LEFT = "nothing is left to learn that another knob did not take over"
LOCKED = "learning did not help with this twice, so it is not tried a third time by itself"


def verdict(before: Count, after: Count) -> Verdict:
    """Whether a change helped, from how often replies failed before it and while it was in force."""
    if after.steps < MIN_EXPOSED:
        return Verdict.NOT_HELPED if _beyond_chance(before, after) else Verdict.TOO_EARLY
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


def _beyond_chance(before: Count, after: Count) -> bool:
    """Whether so many failures, three at least, would be rare with a change that halves them (exact binomial tail)."""
    if after.failures < MIN_FAILURES or after.conversations < MIN_CONVERSATIONS:
        return False
    halved = (before.rate or 1.0) / 2
    tail = sum(
        math.comb(after.steps, number) * halved**number * (1 - halved) ** (after.steps - number)
        for number in range(after.failures, after.steps + 1)
    )
    return tail <= CHANCE


def decide(inputs: Inputs) -> Choice:
    """What to do about one signature."""
    world = inputs.world
    if inputs.flight is not None:
        return _in_flight(inputs.flight, world)
    if world.frozen:
        return Choice(Action.NOTHING, "everything is frozen: `mynah freeze --off` lets changes be made again")
    candidates = _candidates(inputs)
    usable = [each for each in candidates if each.why_not is None]
    told = inputs.asked or (inputs.stated and bool(usable) and usable[0].knob is Knob.MEMORY)
    lacking = None if told else _lacking(inputs.now)
    if lacking is not None:
        return Choice(Action.NOTHING, lacking)
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
        if flight.stays:
            return Choice(
                Action.NOTHING, f"it made things worse ({seen}), but what answers now was chosen since"
            )
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
    said = inputs.said or inputs.asked
    for knob in _KNOBS[inputs.signature.cause]:
        if knob is Knob.GUARD and inputs.signature.violated not in CHECKABLE:
            continue
        cost = COST[knob] + (GUESSED if knob.is_context and not said else 0)
        found.append(Candidate(knob, cost, RISK[knob], inputs.world.confidence(knob), _why_not(inputs, knob)))
    return sorted(found, key=lambda each: _order(inputs, each))


def _order(inputs: Inputs, candidate: Candidate) -> tuple[int, bool, bool, float, int]:
    """What goes first, the lower: what failed less often, and what is cheaper.

    Among what is cheaper than the weights, or dearer, a rehearsal that was right more often goes before a price: a
    person waits for three good replies in a row more than twice as long where one in three is wrong. What was wrong in
    more than half goes after the weights too, which cannot be rehearsed.
    """
    wrong = inputs.rehearsed.get(candidate.knob, Count(0, 0, 0)).rate
    failed = _failed(inputs, candidate.knob)
    return failed, wrong > 1 / 2, candidate.cost >= COST[Knob.WEIGHTS], wrong, candidate.cost


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
    count = inputs.rehearsed.get(knob)
    if count is not None and count.steps and count.failures == count.steps:
        return f"rehearsed on {count.steps} recorded questions, it helped with none"
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
    cap = world.used_up(knob)
    if cap is not None:
        return f"the day's limit of {cap.replace('_', ' ')} is reached ({world.spent[cap]:g} of {world.caps[cap]:g})"
    if world.run_open and knob.is_context:
        return "a learning run is under way, and two changes at once cannot be told apart"
    return None


def _why(inputs: Inputs) -> str:
    if inputs.asked:
        return "the owner asked for it in so many words"
    if inputs.stated:
        return "the owner wrote down what is right"
    low, high = inputs.now.interval
    return (
        f"{inputs.now.failures} of {inputs.now.steps} replies in {inputs.now.conversations} conversations failed like "
        f"this ({low:.0%} to {high:.0%})"
    )


def _refused(candidate: Candidate, why: str) -> Candidate:
    return Candidate(candidate.knob, candidate.cost, candidate.risk, candidate.confidence, why)


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
        return RoundChoice(Action.NOTHING, NOTHING_LEFT, held=held)
    left_fresh = sum(unit not in held for unit in inputs.fresh)
    if left_fresh < inputs.needed:
        why = f"{left_fresh} of {inputs.needed} new lessons are left to learn"
        return RoundChoice(Action.NOTHING, why, held=held)
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
    """The choice that a record's inputs lead to, which the record must hold.

    None where it was made by other rules than there are now, or part of its inputs was forgotten.
    """
    if inputs["rules"] != RULES or FORGOTTEN in json.dumps(inputs, ensure_ascii=False):
        return None
    if kind == ROUND:
        return decide_round(RoundInputs.of(inputs)).as_dict()
    return decide(Inputs.of(inputs)).as_dict()


def describe(signature: Signature) -> str:
    """A signature as a person says it."""
    return _DESCRIBED[signature.violated].format(topic=signature.topic.replace("-", " "))


_DESCRIBED: Mapping[Violated, str] = {
    Violated.TOO_LONG: "replies that are too long ({topic})",
    Violated.TOO_SHORT: "replies that are too short ({topic})",
    Violated.LIST: "lists where you want none ({topic})",
    Violated.HARD_WORDS: "words that are too hard ({topic})",
    Violated.LANGUAGE: "another language than you want ({topic})",
    Violated.FORMAT: "another format than you want ({topic})",
    Violated.CODE_ALONE: "words around the code ({topic})",
    Violated.ENDING: "another ending than you want ({topic})",
    Violated.QUESTION: "no question at the end ({topic})",
    Violated.SPELLING: "another spelling than you want ({topic})",
    Violated.PHRASE: "phrases that you do not want ({topic})",
    Violated.UNITS: "other units than you want ({topic})",
    Violated.FACT: "facts that are wrong or missing ({topic})",
    Violated.WORDING: "wording that you change ({topic})",
    Violated.UNSAID: "replies that you dislike without saying why ({topic})",
}
