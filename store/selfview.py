"""What the agent knows of itself: what it is bad at, what it is trying, whether that worked, how well it foresees it.

Nothing here is an opinion of the model's. Every line is counted from the same evidence and the same log that the
decisions are made from, so the view cannot be kinder than they are (the three parts are those of arXiv 2506.05109:
knowledge, planning, evaluation of one's own learning).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from store import adapters, changes, control, deciding, decisions, evidence, ids, items, steering
from store.causes import Signature
from store.changes import By, Change, Stage
from store.control import CONTROL, ROUND, Action, Breaker, Knob, Verdict
from store.db import Store
from store.decisions import Decision
from store.evidence import Count
from store.types import AdapterState

SHOWN = 8
CAME_OF = {
    Stage.WAITING: "waits for your word",
    Stage.RUNNING: "a learning run is asked for",
    Stage.TRYING: "being tried",
    Stage.HELPED: "helped",
    Stage.FAILED: "did not help",
    Stage.DECLINED: "declined by you",
    Stage.UNDONE: "taken back",
    Stage.REFUSED: "refused by the gate",
    Stage.CALLED_OFF: "came to nothing",
    Stage.OVERTAKEN: "gone on with in a newer version",
}
"""How far a change got, in words."""


@dataclass(frozen=True)
class Weakness:
    """One thing that goes wrong, with what is done about it."""

    signature: str
    what: str
    count: Count
    plan: str


@dataclass(frozen=True)
class Trial:
    """One change to itself: by which knob, for what, how far it got, and what was seen before and with it.

    ``says``: the words of an item that waits or is being tried; nobody agrees to what they cannot read.
    """

    decision: str
    created: str
    knob: Knob
    what: str
    stage: Stage
    confidence: float
    before: dict[str, Any] | None = None
    after: dict[str, Any] | None = None
    says: str | None = None


@dataclass(frozen=True)
class Calibration:
    """How often changes of a knob were expected to help, and did. ``error`` is the mean squared one (Brier)."""

    knob: Knob
    expected: float
    helped: float
    trials: int
    error: float


@dataclass(frozen=True)
class SelfView:
    """All of it. ``excluded`` counts replies that say nothing about the model, by why."""

    steps: int
    weaknesses: list[Weakness] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)
    calibration: list[Calibration] = field(default_factory=list)
    excluded: dict[str, int] = field(default_factory=dict)
    frozen: bool = False
    resting: list[str] = field(default_factory=list)

    @property
    def waiting(self) -> list[Trial]:
        """What waits for the owner's word."""
        return [trial for trial in self.trials if trial.stage is Stage.WAITING]


@dataclass(frozen=True)
class Told:
    """One decision with what followed.

    ``item`` and the adapter (``version``, ``adapter_state``, ``gate``: what the gate said) are as they are now;
    ``fault`` names a record of the log that was tampered with.
    """

    decision: Decision
    change: Change | None
    following: list[Decision]
    item: items.Item | None
    remade: bool | None
    fault: str | None
    version: int | None = None
    adapter_state: AdapterState | None = None
    gate: str | None = None


def of(store: Store) -> SelfView:
    """The view of one home."""
    known = changes.changes(store)
    seen = evidence.of(store)
    moment = ids.now()
    weaknesses = [_weakness(store, seen, known, signature) for signature in seen.signatures]
    weaknesses = sorted(
        (each for each in weaknesses if each.count.failures), key=lambda each: -each.count.interval[0]
    )
    trials = [trial for change in reversed(known) if not change.empty for trial in _trials(store, change)]
    resting = [name for name, state in changes.breakers(known, moment).items() if state is Breaker.OPEN]
    return SelfView(
        seen.steps,
        weaknesses[:SHOWN],
        trials,
        calibration(known),
        seen.excluded,
        steering.frozen(store),
        resting,
    )


def told(store: Store, decision: str) -> Told:
    """One decision, with all that belongs to it.

    Raises:
        NotFound: there is no such decision.
    """
    record = decisions.get(store, decision)
    change = changes.get(store, decision)
    made = deciding.remake(record.kind, record.inputs) if record.kind in (CONTROL, ROUND) else None
    adapter = _adapter(store, record, change)
    return Told(
        record,
        change,
        changes.following(store, decision),
        _item(store, change),
        None if made is None else made == record.choice,
        decisions.broken_at(store),
        None if adapter is None else adapter.version,
        None if adapter is None else adapter.state,
        None if adapter is None else _gate(adapter),
    )


def calibration(known: list[Change]) -> list[Calibration]:
    """Of every knob that was tried to its end at least once."""
    found = []
    for knob in Knob:
        pairs = [
            (confidence(change), verdict is Verdict.HELPED)
            for change in known
            if change.knob is knob
            for verdict in change.verdicts.values()
        ]
        if pairs:
            n = len(pairs)
            error = sum((expected - helped) ** 2 for expected, helped in pairs) / n
            expected, helped = (sum(each) / n for each in zip(*pairs, strict=True))
            found.append(Calibration(knob, round(expected, 3), round(helped, 3), n, round(error, 3)))
    return found


def confidence(change: Change) -> float:
    """How likely it was held to help when it was decided, 0 to 1."""
    record = change.decision
    for candidate in record.choice.get("candidates", []):
        if candidate["knob"] == change.knob:
            return float(candidate["confidence"])
    return control.world_of(record.inputs["world"]).confidence(change.knob)


def _weakness(store: Store, seen: evidence.Evidence, known: list[Change], signature: Signature) -> Weakness:
    change = changes.open_for(known, signature.key)
    if change is not None:
        plan = f"trying {change.knob} ({change.decision.id})"
        if change.stage(signature.key) is Stage.WAITING:
            plan = f"{change.knob} waits for your word ({change.decision.id})"
        elif change.stage(signature.key) is Stage.RUNNING:
            plan = f"a learning run is asked for ({change.decision.id})"
    else:
        plan = _owners(known, signature) or _plan(store, signature)
    return Weakness(signature.key, deciding.describe(signature), seen.count(signature), plan)


def _owners(known: list[Change], signature: Signature) -> str | None:
    """What the owner said to the last change for a signature, where that ended it."""
    mine = [each for each in known if signature.key in each.signatures]
    if not mine:
        return None
    last = mine[-1]
    if last.declined is not None:
        return f"you declined {last.knob} ({last.decision.id})"
    by_owner = last.undone is not None and last.undone_by is By.OWNER
    return f"you took {last.knob} back ({last.decision.id})" if by_owner else None


def _plan(store: Store, signature: Signature) -> str:
    last = changes.last_of(store, signature.key)
    if last is not None and last.choice["action"] == Action.TRAIN:
        return "left to the next learning run"
    if last is not None and last.choice["action"] == Action.ROLLBACK:
        return "the last change was taken back; a few more replies tell what is next"
    if last is None or last.choice["action"] not in (Action.GIVE_UP, Action.NOTHING):
        return "too early to change anything"
    return str(last.choice["why"])


def _trials(store: Store, change: Change) -> list[Trial]:
    made = []
    item = _item(store, change) if change.knob.is_context else None
    shown = (Stage.WAITING, Stage.TRYING)
    for key in change.signatures or ("",):
        outcome = change.outcomes.get(key, {})
        made.append(
            Trial(
                change.decision.id,
                change.decision.created,
                change.knob,
                deciding.describe(Signature.parse(key)) if key else "lessons of many kinds",
                change.stage(key),
                confidence(change),
                outcome.get("before"),
                outcome.get("after"),
                item.text if item is not None and change.stage(key) in shown else None,
            )
        )
    return made


def _item(store: Store, change: Change | None) -> items.Item | None:
    """What a change put in force, or would."""
    if change is None:
        return None
    row = store.conn.execute(
        "SELECT id FROM items WHERE id = ? OR (? IS NULL AND decision = ?) ORDER BY seq DESC LIMIT 1",
        (change.item, change.item, change.decision.id),
    ).fetchone()
    return None if row is None else items.get(store, row["id"])


def _adapter(store: Store, record: Decision, change: Change | None) -> adapters.Adapter | None:
    """The version that a decision is about or led to, live or refused."""
    run = None if change is None else change.run
    row = store.conn.execute(
        "SELECT id FROM adapters WHERE id = ? OR run = ? ORDER BY version DESC LIMIT 1",
        (record.inputs.get("adapter"), run),
    ).fetchone()
    return None if row is None else adapters.get(store, row["id"])


def _gate(adapter: adapters.Adapter) -> str | None:
    """What the gate said of a version."""
    if not adapter.gate:
        return None
    passed = "passed" if adapter.gate.get("passed") else "not passed"
    failed = [str(each["name"]) for each in adapter.gate.get("checks", []) if not each.get("passed", True)]
    told = adapter.gate.get("summary") or ", ".join(failed)
    return f"v{adapter.version} {passed}" + (f": {told}" if told else "")
