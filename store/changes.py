"""What became of the decisions: read from the log alone, where everything that happens to one is a further record.

A record cannot be changed, so approval, application, outcome and undoing are records of their own that name the
decision they belong to. Everything the next decision needs to know of earlier ones (what was tried, what failed,
which breaker is open, how often a knob was right) is a fold over these rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from store import adapters, decisions, ids, runs
from store.causes import canonical
from store.control import (
    CONTROL,
    EVERYTHING,
    ROUND,
    Action,
    Attempt,
    Breaker,
    Knob,
    Verdict,
)
from store.db import Store
from store.deciding import remake
from store.decisions import Decision
from store.errors import NotFound
from store.evidence import Count
from store.types import RunOutcome, RunState

APPLIED, DECLINED, OUTCOME, UNDONE, FREEZE = "applied", "declined", "outcome", "undone", "freeze"
"""The kinds of records that follow a decision; the last follows none."""

BREAK_AFTER, BREAK_ALL_AFTER = 3, 6
"""Changes that go wrong one after the other before a knob, or everything, has to wait."""
COOL_DOWN = timedelta(hours=1)
LONGEST_COOL_DOWN = timedelta(days=7)


class By(StrEnum):
    """Who did something to a decision."""

    RULE = "rule"
    OWNER = "owner"


class Stage(StrEnum):
    """How far a change got."""

    WAITING = "waiting"
    RUNNING = "running"
    TRYING = "trying"
    HELPED = "helped"
    FAILED = "failed"
    DECLINED = "declined"
    UNDONE = "undone"
    REFUSED = "refused"
    CALLED_OFF = "called_off"
    OVERTAKEN = "overtaken"


@dataclass
class Change:
    """One decision that changed something, with what followed.

    ``verdicts`` are by signature; ``overtaken``: the signatures that a newer version was taught before this one was
    judged.
    """

    decision: Decision
    knob: Knob
    signatures: tuple[str, ...]
    asks: bool
    applied: str | None = None
    approved_by: By | None = None
    item: str | None = None
    previous: str | None = None
    run: str | None = None
    adapter: str | None = None
    declined: str | None = None
    undone: str | None = None
    undone_by: By | None = None
    called_off: bool = False
    empty: bool = False
    """Its run found nothing to learn: nothing was tried."""
    refused: str | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)
    overtaken: set[str] = field(default_factory=set)

    @property
    def before(self) -> Count:
        """How often replies failed when it was decided."""
        return Count.of(self.decision.inputs["now"]) if self.decision.kind == CONTROL else Count(0, 0, 0)

    def stage(self, signature: str) -> Stage:
        """How far it got for a signature."""
        if self.declined is not None:
            return Stage.DECLINED
        if self.undone is not None:
            return Stage.UNDONE
        if self.refused is not None:
            return Stage.REFUSED
        if self.called_off:
            return Stage.CALLED_OFF
        if self.applied is None:
            return Stage.WAITING if self.approved_by is None else Stage.RUNNING
        found = self.verdicts.get(signature)
        if found is None:
            return Stage.OVERTAKEN if signature in self.overtaken else Stage.TRYING
        return Stage.HELPED if found is Verdict.HELPED else Stage.FAILED

    def attempt(self, signature: str) -> Attempt | None:
        """What it counts for in the next decision on a signature; None while it is not over or says nothing."""
        match self.stage(signature):
            case Stage.HELPED | Stage.FAILED:
                return Attempt(self.knob, self.verdicts[signature], self.item or "")
            case Stage.UNDONE:
                verdict = self.verdicts.get(signature, Verdict.NOT_HELPED)
                return Attempt(self.knob, verdict, self.item or "", self.undone_by is By.OWNER)
            case Stage.DECLINED:
                return Attempt(self.knob, Verdict.NOT_HELPED, self.item or "", by_owner=True)
            case Stage.REFUSED:
                # A version that the gate refused helps nobody: another knob's turn.
                return Attempt(self.knob, Verdict.NOT_HELPED, "")
            case _:
                return None


def changes(store: Store) -> list[Change]:
    """Every decision that changed something or would, oldest first, with what became of it."""
    found: dict[str, Change] = {}
    for record in _records(store):
        if record.kind in (CONTROL, ROUND):
            made = _change(record)
            if made is not None:
                found[record.id] = made
        elif record.inputs.get("decision") in found:
            _follow(found[record.inputs["decision"]], record)
    for change in found.values():
        if change.knob is Knob.WEIGHTS and change.run is not None:
            _follow_run(store, change)
    _overtake(list(found.values()))
    return list(found.values())


def get(store: Store, decision: str) -> Change | None:
    """What became of a decision; None for one that changes nothing.

    Raises:
        NotFound: there is no such decision.
    """
    decisions.get(store, decision)
    return next((each for each in changes(store) if each.decision.id == decision), None)


def following(store: Store, decision: str) -> list[Decision]:
    """The records that belong to a decision, oldest first."""
    rows = store.conn.execute(
        "SELECT id FROM decisions WHERE json_extract(inputs, '$.decision') = ? ORDER BY seq", (decision,)
    ).fetchall()
    return [decisions.get(store, row["id"]) for row in rows]


def unlike(store: Store) -> list[str]:
    """The decisions whose rules do not lead to what their record holds, when they are made again."""
    return [
        record.id
        for record in _records(store)
        if record.kind in (CONTROL, ROUND) and remake(record.kind, record.inputs) not in (None, record.choice)
    ]


def last_of(store: Store, signature: str) -> Decision | None:
    """The newest decision on a signature."""
    row = store.conn.execute(
        "SELECT id FROM decisions WHERE kind = ? AND json_extract(inputs, '$.signature') = ? "
        "ORDER BY seq DESC LIMIT 1",
        (CONTROL, signature),
    ).fetchone()
    return None if row is None else decisions.get(store, row["id"])


def attempts(known: Iterable[Change], signature: str) -> tuple[Attempt, ...]:
    """What was tried for a signature and is over, oldest first."""
    tried = (each.attempt(signature) for each in known if signature in each.signatures)
    return tuple(each for each in tried if each is not None)


def open_for(known: Iterable[Change], signature: str) -> Change | None:
    """The change that is being tried for a signature, or waits for the owner."""
    unfinished = (Stage.WAITING, Stage.RUNNING, Stage.TRYING)
    mine = (each for each in known if signature in each.signatures)
    return next((each for each in mine if each.stage(signature) in unfinished), None)


def since(known: Iterable[Change], signature: str) -> str:
    """The moment from which failures count anew: when the last change for a signature came, or was taken back.

    What failed while a change was in force that did not help failed for the old reason, and counts for the next one.
    """
    moments = [
        moment
        for each in known
        if signature in each.signatures
        for moment in (each.applied, *_ends(each, signature))
        if moment is not None
    ]
    return max(moments, default="")


def _ends(change: Change, signature: str) -> tuple[str | None, ...]:
    verdict = change.verdicts.get(signature)
    ended = None if verdict is Verdict.NOT_HELPED else change.ended.get(signature)
    return change.undone, change.declined, ended


def record_of(known: Iterable[Change]) -> dict[Knob, tuple[int, int]]:
    """How many changes of each knob helped, of how many that were tried to their end."""
    tally = {knob: [0, 0] for knob in Knob}
    for change in known:
        for verdict in change.verdicts.values():
            tally[change.knob][1] += 1
            tally[change.knob][0] += verdict is Verdict.HELPED
    return {knob: (pair[0], pair[1]) for knob, pair in tally.items()}


def breakers(known: Sequence[Change], moment: str) -> dict[str, Breaker]:
    """The breakers at a moment: a knob whose last changes went wrong waits, twice as long after each further one."""
    turns = sorted(turn for change in known for turn in _turns(change))
    state: dict[str, Breaker] = {
        knob: _breaker([(when, good) for when, good, name in turns if name == knob], BREAK_AFTER, moment)
        for knob in Knob
    }
    state[EVERYTHING] = _breaker([(when, good) for when, good, _ in turns], BREAK_ALL_AFTER, moment)
    return state


def trying(known: Iterable[Change]) -> tuple[str, ...]:
    """The knobs of changes that are not over."""
    unfinished = (Stage.RUNNING, Stage.TRYING)
    return tuple(
        sorted(
            {
                change.knob
                for change in known
                if any(change.stage(each) in unfinished for each in change.signatures)
            }
        )
    )


def spent(store: Store, known: Iterable[Change], day_ago: str) -> dict[str, float]:
    """What the last day took: changes, and minutes of learning by the clock and of the processor.

    A run that does not say how much of the processor it used is taken to have used one core all the time.
    """
    made = sum(1 for each in known if each.applied is not None and each.applied > day_ago)
    minutes = processor = 0.0
    for run in runs.list_(store, 200):
        if run.started is None or run.created < day_ago:
            continue
        end = run.finished or ids.now()
        seconds = (datetime.fromisoformat(end) - datetime.fromisoformat(run.started)).total_seconds()
        minutes += seconds / 60
        processor += float(run.result.get("cpu_seconds", seconds)) / 60
    return {"changes": float(made), "minutes": round(minutes, 1), "cpu_minutes": round(processor, 1)}


def _overtake(known: Sequence[Change]) -> None:
    """Of several versions that were taught the same, the newest that still stands is the one that is tried."""
    taught: set[str] = set()
    for change in reversed(known):
        if change.knob is not Knob.WEIGHTS or change.applied is None or change.undone is not None:
            continue
        if not change.called_off:
            change.overtaken = taught & set(change.signatures)
            taught |= set(change.signatures)


def _turns(change: Change) -> list[tuple[str, bool, Knob]]:
    """When a change went well or wrong."""
    if change.refused is not None:
        return [(change.refused, False, change.knob)]
    turns = [
        (change.ended[signature], verdict is Verdict.HELPED, change.knob)
        for signature, verdict in change.verdicts.items()
    ]
    if change.undone is not None and not turns:
        turns = [(change.undone, False, change.knob)]
    if change.knob is Knob.WEIGHTS and change.applied is not None and not turns:
        turns = [(change.applied, True, change.knob)]
    return turns


def _breaker(turns: Sequence[tuple[str, bool]], after: int, moment: str) -> Breaker:
    wrong = 0
    last = ""
    for when, good in turns:
        wrong, last = (0 if good else wrong + 1), when
    if wrong < after:
        return Breaker.CLOSED
    wait = min(COOL_DOWN * 2 ** min(wrong - after, 16), LONGEST_COOL_DOWN)
    over = datetime.fromisoformat(last) + wait <= datetime.fromisoformat(moment)
    return Breaker.HALF_OPEN if over else Breaker.OPEN


def _records(store: Store) -> list[Decision]:
    kinds = (CONTROL, ROUND, APPLIED, DECLINED, OUTCOME, UNDONE)
    return decisions.of_kinds(store, kinds)


def _change(record: Decision) -> Change | None:
    action = record.choice["action"]
    if record.kind == ROUND:
        if action != Action.TRAIN:
            return None
        learns = tuple(dict.fromkeys(map(canonical, record.choice["learns"])))
        return Change(record, Knob.WEIGHTS, learns, record.choice["ask"])
    if action != Action.PROPOSE:
        return None
    signature = canonical(record.inputs["signature"])
    return Change(record, Knob(record.choice["knob"]), (signature,), record.choice["ask"])


def _follow(change: Change, record: Decision) -> None:
    told: Mapping[str, Any] = record.inputs
    if record.kind == APPLIED:
        change.approved_by = By(record.choice["by"])
        change.item, change.run = told.get("item"), told.get("run")
        change.previous = told.get("rollback_to")
        change.applied = record.created if change.knob.is_context else None
        change.undone = change.undone_by = None
    elif record.kind == DECLINED:
        change.declined = record.created
    elif record.kind == UNDONE:
        change.undone, change.undone_by = record.created, By(record.choice["by"])
    elif record.kind == OUTCOME:
        signature = canonical(told["signature"])
        change.verdicts[signature] = Verdict(record.choice["verdict"])
        change.ended[signature] = record.created
        change.outcomes[signature] = dict(told)


def _follow_run(store: Store, change: Change) -> None:
    assert change.run is not None
    try:
        run = runs.get(store, change.run)
    except NotFound:
        change.called_off = True
        return
    if run.outcome is RunOutcome.PROMOTED:
        change.applied, change.adapter = run.finished, run.result.get("adapter")
        # Its lessons were forgotten, or its file cannot be loaded: neither says anything about learning.
        if not change.verdicts and change.adapter is not None and adapters.is_gone(store, change.adapter):
            change.called_off = True
    elif run.outcome is RunOutcome.REJECTED and run.result.get("gate", {}).get("passed"):
        # It passed and the owner let nothing go live: a pin, a freeze, a rating taken back. No fault of the knob's.
        change.called_off = True
    elif run.outcome is RunOutcome.REJECTED:
        change.refused = run.finished
    elif run.state in (RunState.DONE, RunState.FAILED):
        # A fault of the machinery, or nothing to learn: it says nothing about the knob.
        change.called_off, change.empty = True, run.outcome is RunOutcome.NOTHING_TO_LEARN
