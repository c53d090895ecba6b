"""One look of the controller: take in what is new, conclude what can be, decide, and carry out what was decided.

It is called by the host's supervisor every two seconds and nearly always has nothing to do: a store that nobody has
written to is not read. What it writes is one transaction per decision, record first, so a host that dies leaves either
a decision that was carried out or none. Only what differs from the last record of a signature is recorded: a log in
which nothing stands a thousand times is read by nobody.
"""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from app.control import offers, rehearsing
from app.control.offers import KINDS, Offer
from app.control.rehearsing import Rehearsal
from store import (
    adapters,
    artifacts,
    changes,
    deciding,
    decisions,
    ids,
    items,
    runs,
    settings,
    steering,
    units,
)
from store.causes import Cause, Signature
from store.changes import By, Change, Stage
from store.control import (
    CONTROL,
    NEW,
    ROUND,
    Action,
    Choice,
    Flight,
    Group,
    Inputs,
    Knob,
    RoundChoice,
    RoundInputs,
    Verdict,
)
from store.db import Store
from store.deciding import MIN_FAILURES
from store.errors import MynahError
from store.evidence import Count, Evidence, Failure, Request
from store.runs import Run
from store.types import AdapterState, ItemState, Trigger

log = logging.getLogger("mynah.host")

EVERYTHING_SECONDS = 60.0


class Controller:
    """Decides for one home. For one thread, as its store is. ``rehearsal`` answers recorded questions again."""

    def __init__(self, rehearsal: Rehearsal | None = None) -> None:
        self._rehearsal = rehearsal
        self._evidence = Evidence()
        self._version = self._activation = -1
        self._again = True
        self._everything = 0.0
        self._refused: set[tuple[Signature, Knob]] = set()
        self._left: set[Signature] = set()
        self._rehearsing: set[Signature] = set()

    def look(self, store: Store) -> None:
        """Take in what is new, and do what follows from it."""
        version = store.data_version
        if version == self._version and not self._again:
            return
        forced = self._again
        self._version, self._again = version, False
        self._note_versions(store)
        if not self._evidence.update(store) and not forced:
            return
        for signature in self._to_look_at(store):
            if self._worth_a_look(store, signature):
                self._one(store, signature)

    def request(self, store: Store, trigger: Trigger) -> Run | None:
        """Ask for the run that is due, without what another knob has taken over; None where there may be none."""
        self._evidence.update(store)
        known = changes.changes(store)
        if not any(_being_tried(store, change, key) for change in known for key in change.signatures):
            # What they waited for was taken back by hand, so no verdict comes that would let them go.
            steering.release(store, (deciding.BUSY,))
        inputs = self._round_inputs(store, known, trigger)
        choice = deciding.decide_round(inputs)
        with store.write():
            steering.hold(store, dict(choice.held))
            if choice.action is not Action.TRAIN:
                self._record_round(store, inputs, choice)
                return None
            waiting = any(each.knob is Knob.WEIGHTS and each.stage("") is Stage.WAITING for each in known)
            if choice.ask and waiting:
                return None
            decision = decisions.append(store, ROUND, inputs.as_dict(), choice.as_dict())
            if choice.ask:
                log.info("decision %s waits for the owner: a learning run", decision)
                return None
            run = runs.request(store, trigger)
            steering.applied(store, decision, By.RULE, run=run.id)
            return run

    def _note_versions(self, store: Store) -> None:
        """A version that the owner or the watch over objections took back is a change taken back."""
        newest = adapters.newest_activation(store)
        if newest != self._activation:
            self._activation = newest
            steering.note_left(store, changes.changes(store))

    # One signature

    def _to_look_at(self, store: Store) -> list[Signature]:
        """What something was said of, and what is being tried; now and then all, since waits and limits run out."""
        touched = self._evidence.touched()
        now = time.monotonic()
        if now >= self._everything:
            self._everything = now + EVERYTHING_SECONDS
            return self._evidence.signatures
        trying = {
            Signature.parse(key)
            for change in changes.changes(store)
            for key in change.signatures
            if change.stage(key) in (Stage.TRYING, Stage.WAITING, Stage.RUNNING)
        }
        again, self._left = self._left, set()
        return sorted({*touched, *trying, *again})

    def _worth_a_look(self, store: Store, signature: Signature) -> bool:
        """Most signatures have a failure or two and nothing to be decided."""
        found = self._evidence.failures(signature)
        if len(found) >= MIN_FAILURES or _stated(signature, found) or self._asked(store, signature, ""):
            return True
        return changes.last_of(store, signature.key) is not None

    def _one(self, store: Store, signature: Signature) -> None:
        known = changes.changes(store)
        change = changes.open_for(known, signature.key)
        trying = change is not None and change.stage(signature.key) is Stage.TRYING
        if change is not None and trying and self._note_if_gone(store, change):
            known = changes.changes(store)
            change = changes.open_for(known, signature.key)
        inputs, offered, found = self._inputs(store, signature, change, known)
        rehearsed = self._rehearsed(store, inputs, offered, found)
        if rehearsed is None:
            self._rehearsing.add(signature)
            self._left.add(signature)
            self._again = True
            return
        self._rehearsing.discard(signature)
        inputs, choice = rehearsed, deciding.decide(rehearsed)
        with store.write():
            if change is not None and inputs.flight is not None:
                self._conclude(store, change, inputs, choice)
            if choice.action is Action.PROPOSE:
                self._propose(store, inputs, choice, offered)
            elif _says_something(choice):
                self._record(store, inputs, choice)

    def _inputs(
        self, store: Store, signature: Signature, change: Change | None, known: list[Change]
    ) -> tuple[Inputs, dict[Knob, Offer], list[Failure]]:
        key = signature.key
        since = max(changes.since(known, key), self._known_since(store, signature))
        request = self._asked(store, signature, since)
        found = self._evidence.failures(signature, since)
        offered = {
            knob: offer
            for knob, offer in offers.of(store, signature, found, request).items()
            if (signature, knob) not in self._refused
        }
        waiting = {unit.message for unit in units.waiting(store)}
        inputs = Inputs(
            signature=signature,
            now=self._evidence.count(signature, since),
            asked=request is not None,
            offers={knob: _said_before(store, offer) for knob, offer in offered.items()},
            samples=sum(each.message in waiting for each in found),
            attempts=changes.attempts(known, key),
            flight=None if change is None else self._flight(store, signature, change),
            world=steering.world(store, known, ids.now()),
            excluded=self._evidence.excluded,
            said=any(each.said is not None for each in found),
            stated=_stated(signature, found),
        )
        return inputs, offered, found

    def _rehearsed(
        self, store: Store, inputs: Inputs, offered: Mapping[Knob, Offer], found: Sequence[Failure]
    ) -> Inputs | None:
        """The inputs with what the change that would be proposed does to the questions that went wrong.

        Where that is nothing the next one is rehearsed; None while a rehearsal goes on.
        """
        while not inputs.asked:
            choice = deciding.decide(inputs)
            if choice.action is not Action.PROPOSE or choice.knob is None or choice.knob in inputs.rehearsed:
                break
            try:
                count = rehearsing.count(
                    store, self._rehearsal, inputs.signature, found, offered, choice.knob
                )
            except rehearsing.GoesOn:
                return None
            inputs = replace(inputs, rehearsed={**inputs.rehearsed, choice.knob: count})
        return inputs

    def _known_since(self, store: Store, signature: Signature) -> str:
        """Since when an item holds that says what was said, whoever added it: failures before it ask for it no more."""
        said = {each.said for each in self._evidence.failures(signature)} - {None}
        return max((each.created for each in items.active(store) if each.text in said), default="")

    def _asked(self, store: Store, signature: Signature, since: str) -> Request | None:
        """The newest standing request that nothing was done about yet. One of long ago is not dug out."""
        earliest = max(since, steering.day_before(ids.now()))
        mine = [
            each
            for each in self._evidence.requests
            if each.signature == signature and each.created > earliest
        ]
        return mine[-1] if mine else None

    def _flight(self, store: Store, signature: Signature, change: Change) -> Flight:
        none = Count(0, 0, 0)
        if change.applied is None:
            applied = change.approved_by is not None
            return Flight(change.decision.id, change.knob, applied, change.before, none)
        if change.item is not None:
            before, in_force = change.before, self._evidence.with_item(change.item)
        else:
            before = self._evidence.count(signature, until=change.decision.created)
            in_force = self._evidence.with_any_adapter()
        # A reply counts against one suspect: those of a version that was taken back were that version's.
        blamed = self._evidence.with_adapter_of(adapters.taken_back(store))
        after = self._evidence.count(
            signature, change.applied, exposed=lambda place: in_force(place) and not blamed(place)
        )
        stays = not change.knob.is_context and steering.stays(store, change)
        return Flight(change.decision.id, change.knob, True, before, after, stays)

    def _note_if_gone(self, store: Store, change: Change) -> bool:
        """An item that the owner switched off, edited or had forgotten is a change the owner took back."""
        if change.item is None or items.get(store, change.item).state is ItemState.ACTIVE:
            return False
        with store.write():
            steering.note_undone(store, change, By.OWNER)
        return True

    def _conclude(self, store: Store, change: Change, inputs: Inputs, choice: Choice) -> None:
        flight = inputs.flight
        assert flight is not None
        found = deciding.verdict(flight.before, flight.after)
        bad = found is Verdict.WORSE or (found is Verdict.NOT_HELPED and flight.knob.is_context)
        held_back = bad and choice.action is not Action.ROLLBACK and not flight.stays
        if not flight.applied or change.applied is None or found is Verdict.TOO_EARLY or held_back:
            return
        seen = {"before": flight.before.as_dict(), "after": flight.after.as_dict(), "rules": inputs.rules}
        steering.conclude(store, change, inputs.signature.key, found, seen)
        self._left.add(inputs.signature)
        if choice.action is Action.ROLLBACK:
            if change.knob.is_context:
                steering.take_back(store, change, ItemState.RETIRED)
            else:
                steering.fall_back(store, change, choice.why)
        self._again = True

    def _propose(self, store: Store, inputs: Inputs, choice: Choice, offered: dict[Knob, Offer]) -> None:
        assert choice.knob is not None
        offer = offered[choice.knob]
        kind = KINDS[choice.knob]
        try:
            decision = decisions.append(store, CONTROL, inputs.as_dict(), choice.as_dict())
            held = [
                each for each in items.versions(store, kind, offer.topic) if each.state is ItemState.ACTIVE
            ]
            item = items.add(
                store,
                kind,
                offer.topic,
                offer.body,
                source=offer.source,
                confidence=offer.confidence,
                state=ItemState.PROPOSED if choice.ask else ItemState.ACTIVE,
                decision=decision,
            )
        except MynahError as error:
            # The record goes with the transaction; the next look tries what is left.
            self._refused.add((inputs.signature, choice.knob))
            self._left.add(inputs.signature)
            self._again = True
            raise MynahError(f"the {kind} could not be added: {error}") from error
        effect = rehearsing.effect(inputs.rehearsed.get(choice.knob))
        if effect is not None:
            items.set_effect(store, item.id, effect)
        if not choice.ask:
            steering.applied(
                store,
                decision,
                By.RULE,
                item=item.id,
                artifact=artifacts.of_item(item.kind, item.body),
                rollback_to=held[-1].id if held else None,
            )
        log.info("decision %s: %s %s (%s)", decision, choice.action, item.id, item.state)

    @staticmethod
    def _record(store: Store, inputs: Inputs, choice: Choice) -> None:
        last = changes.last_of(store, inputs.signature.key)
        made = choice.as_dict()
        # What is left to the next run stays so while its counts grow.
        same = ("action", "knob", "target", *(() if choice.action is Action.TRAIN else ("why",)))
        if last is None or any(last.choice[name] != made[name] for name in same):
            decisions.append(store, CONTROL, inputs.as_dict(), made)

    # Learning runs

    def _round_inputs(self, store: Store, known: list[Change], trigger: Trigger) -> RoundInputs:
        by_signature: dict[Signature | None, list[units.Unit]] = defaultdict(list)
        for unit in units.waiting(store):
            by_signature[self._evidence.signature_of(unit.message)].append(unit)
        groups = tuple(
            self._group(store, known, signature, waiting)
            for signature, waiting in sorted(by_signature.items(), key=lambda pair: str(pair[0]))
        )
        world = steering.world(store, known, ids.now())
        # A run that was due for its number of lessons waits for others, where these are not to be learned.
        needed = int(settings.get(store, settings.MIN_UNITS)) if trigger is Trigger.ENOUGH_UNITS else 0
        fresh = tuple(unit.id for unit in units.fresh(store))
        return RoundInputs(str(trigger), groups, len(units.unjudged(store, 1)), world, fresh, needed)

    def _group(
        self, store: Store, known: list[Change], signature: Signature | None, waiting: list[units.Unit]
    ) -> Group:
        names = tuple(unit.id for unit in waiting)
        faults = tuple(name for name in names if name in self._evidence.units_of_faults)
        if signature is None:
            return Group(None, names, faults=faults)
        context = [each for each in known if signature.key in each.signatures and each.knob.is_context]
        holding = [
            each
            for each in context
            if each.stage(signature.key) in (Stage.TRYING, Stage.HELPED, Stage.FAILED)
        ]
        last = max((each.applied for each in holding if each.applied is not None), default="")
        old = {each.unit for each in self._evidence.failures(signature) if last and each.created <= last}
        # What the gate refused may pass with more lessons: that alone locks nothing.
        served = [each for each in known if each.stage(signature.key) is not Stage.REFUSED]
        tried = changes.attempts(served, signature.key)
        return Group(
            signature.key,
            names,
            stale=tuple(name for name in names if name in old),
            faults=faults,
            busy=signature in self._rehearsing
            or any(_being_tried(store, each, signature.key) for each in known),
            failed=sum(each.failures for each in tried if each.knob is Knob.WEIGHTS),
        )

    @staticmethod
    def _record_round(store: Store, inputs: RoundInputs, choice: RoundChoice) -> None:
        """A run that may not be, once for each reason: the supervisor asks every two seconds."""
        row = store.conn.execute(
            "SELECT json_extract(choice, '$.why') AS why FROM decisions WHERE kind = ? ORDER BY seq DESC LIMIT 1",
            (ROUND,),
        ).fetchone()
        if row is None or row["why"] != choice.why or choice.held:
            decisions.append(store, ROUND, inputs.as_dict(), choice.as_dict())


def _said_before(store: Store, offer: Offer) -> str:
    """The item of the same topic that says the same, or that there is none."""
    same = items.versions(store, KINDS[offer.knob], offer.topic)
    return next((each.id for each in same if each.body == offer.body), NEW)


def _being_tried(store: Store, change: Change, signature: str) -> bool:
    """Whether a change is in force for a signature and nothing is known of it yet. Weights are while they serve."""
    if signature not in change.signatures or change.stage(signature) is not Stage.TRYING:
        return False
    if change.knob.is_context or change.adapter is None:
        return True
    return adapters.get(store, change.adapter).state is AdapterState.ACTIVE


def _stated(signature: Signature, found: Sequence[Failure]) -> bool:
    """Whether the owner wrote down what is right about the owner: that needs no second time."""
    return signature.cause is Cause.OWN_FACT and any(each.target is not None for each in found)


def _says_something(choice: Choice) -> bool:
    """Whether a decision is worth a record: too little to go by is the usual state of things."""
    return choice.action is not Action.NOTHING or choice.knob is not None
