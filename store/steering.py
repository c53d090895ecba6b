"""What the owner can do about decisions, and what holds for all of them: approve, decline, undo, freeze, the limits.

Each is one short transaction that does the thing and records that it was done, so it works while the host is down,
and the log can never say anything else than what holds. Undoing puts back what was there before, as far as it still
is: the version of an item that a new one replaced, or the adapter that served before.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from store import adapters, artifacts, changes, decisions, ids, items, runs, settings, units
from store.changes import APPLIED, DECLINED, FREEZE, OUTCOME, UNDONE, By, Change, Stage
from store.control import Action, Approval, Knob, Verdict, World
from store.db import Store
from store.deciding import BUSY, LOCKED, STALE
from store.decisions import WATCH, Decision
from store.errors import UsageError
from store.types import Actor, ItemState, Trigger, UnitState

DAY = timedelta(days=1)
_CAPS = {
    "changes": settings.CHANGES_PER_DAY,
    "minutes": settings.LEARN_MINUTES_PER_DAY,
    "cpu_minutes": settings.CPU_MINUTES_PER_DAY,
}
_APPROVALS = {
    Knob.MEMORY: settings.APPROVE_MEMORY,
    Knob.INSTRUCTION: settings.APPROVE_INSTRUCTION,
    Knob.GUARD: settings.APPROVE_GUARD,
    Knob.WEIGHTS: settings.APPROVE_WEIGHTS,
}


@dataclass(frozen=True)
class Done:
    """What an order of the owner's came to, in a line for people."""

    decision: str
    said: str


def world(store: Store, known: list[Change], moment: str) -> World:
    """What holds for every decision at a moment."""
    return World(
        frozen=frozen(store),
        run_open=bool(runs.open_(store)),
        approvals={knob: Approval(settings.get(store, key)) for knob, key in _APPROVALS.items()},
        breakers={str(name): state for name, state in changes.breakers(known, moment).items()},
        spent=changes.spent(store, known, day_before(moment)),
        caps={name: float(settings.get(store, key)) for name, key in _CAPS.items()},
        record=changes.record_of(known),
        trying=tuple(str(knob) for knob in changes.trying(known)),
    )


def day_before(moment: str) -> str:
    """The same time a day earlier, as `ids.now` writes it."""
    earlier = datetime.fromisoformat(moment).astimezone(UTC) - DAY
    return earlier.isoformat(timespec="microseconds")


def frozen(store: Store) -> bool:
    """Whether nothing may be changed by itself."""
    return bool(settings.get(store, settings.FROZEN))


def freeze(store: Store, on: bool) -> None:
    """Let nothing be changed by itself any more, or again. What holds, holds on; `mynah learn now` still learns."""
    with store.write():
        if frozen(store) == on:
            return
        settings.put(store, settings.FROZEN, on or None)
        decisions.append(store, FREEZE, {}, {"action": "freeze" if on else "thaw", "by": By.OWNER})


def applied(store: Store, decision: str, by: By, **what: Any) -> None:
    """Record that a decision was carried out: ``item`` or ``run``, ``artifact`` and ``rollback_to``."""
    decisions.append(store, APPLIED, {"decision": decision, **what}, {"action": "apply", "by": by})


def conclude(store: Store, change: Change, signature: str, verdict: Verdict, seen: dict[str, Any]) -> None:
    """Record what came of a change for one signature."""
    inputs = {"decision": change.decision.id, "signature": signature, "knob": change.knob, **seen}
    decisions.append(store, OUTCOME, inputs, {"action": "conclude", "verdict": verdict})
    release(store, (BUSY,))


def note_undone(store: Store, change: Change, by: By, reason: str | None = None) -> None:
    """Record that a change does not hold any more, and let its lessons wait for a run again."""
    told = {} if reason is None else {"reason": reason}
    decisions.append(store, UNDONE, {"decision": change.decision.id}, {"action": "undo", "by": by, **told})
    release(store, (STALE, BUSY) if change.knob.is_context else (BUSY,))


def approve(store: Store, decision: str) -> Done:
    """Carry out what waits for the owner's word.

    Raises:
        NotFound: there is no such decision.
        UsageError: it waits for nothing.
    """
    with store.write():
        change = _waiting(store, decision)
        if change.knob is Knob.WEIGHTS:
            run = runs.request(store, Trigger.MANUAL)
            applied(store, decision, By.OWNER, run=run.id)
            return Done(decision, f"learning run {run.id} is asked for")
        item = _proposed(store, decision)
        replaced = _held(store, item)
        items.switch(store, item.id, ItemState.ACTIVE, decision)
        applied(
            store,
            decision,
            By.OWNER,
            item=item.id,
            artifact=artifacts.of_item(item.kind, item.body),
            rollback_to=replaced,
        )
        return Done(decision, f"{item.kind} {item.id} holds from the next reply on")


def decline(store: Store, decision: str) -> Done:
    """Say no to what waits for the owner's word; it is not proposed again.

    Raises:
        NotFound: there is no such decision.
        UsageError: it waits for nothing.
    """
    with store.write():
        change = _waiting(store, decision)
        if change.knob.is_context:
            items.switch(store, _proposed(store, decision).id, ItemState.RETIRED, decision)
        decisions.append(store, DECLINED, {"decision": decision}, {"action": "decline", "by": By.OWNER})
        return Done(decision, "it will not be done, nor proposed again")


def undo(store: Store, decision: str) -> Done:
    """Take a decision back: what held before it holds again.

    Raises:
        NotFound: there is no such decision.
        UsageError: it changed nothing, or what it changed does not hold any more.
    """
    with store.write():
        record = decisions.get(store, decision)
        if record.kind == WATCH:
            return _serve_again(store, record, str(record.inputs["adapter"]))
        if record.choice.get("action") == Action.ROLLBACK:
            return _undo_rollback(store, record)
        change = changes.get(store, decision)
        if change is None and "decision" in record.inputs:
            belongs = record.inputs["decision"]
            raise UsageError(
                f"{decision} belongs to decision {belongs}: `mynah undo {belongs}` takes that back"
            )
        if change is None:
            raise UsageError(f"decision {decision} changed nothing, so there is nothing to undo")
        if change.undone is not None or change.declined is not None:
            raise UsageError(f"decision {decision} was taken back already")
        context = change.knob.is_context
        said = take_back(store, change, ItemState.OFF) if context else _take_back_round(store, change)
        note_undone(store, change, By.OWNER)
        return Done(decision, said)


def take_back(store: Store, change: Change, state: ItemState) -> str:
    """Switch the item of a change off, and on again what it had replaced.

    Raises:
        UsageError: it does not hold.
    """
    decision = change.decision.id
    if change.item is None:
        raise UsageError(f"decision {decision} was not carried out: `mynah decline {decision}` says no to it")
    item = items.get(store, change.item)
    if item.state is not ItemState.ACTIVE:
        raise UsageError(f"{item.kind} {item.id} does not hold any more (it is {item.state})")
    items.switch(store, item.id, state, decision)
    if change.previous is not None:
        before = items.get(store, change.previous)
        if before.state is ItemState.OFF:
            items.switch(store, before.id, ItemState.ACTIVE, decision)
            return f"{item.kind} {item.id} is {state}, and {before.id} holds again"
    return f"{item.kind} {item.id} is {state}"


def stays(store: Store, change: Change) -> bool:
    """Whether the version that a change made is not for a rule to take back."""
    if change.adapter is None:
        return True
    trial = adapters.on_trial(store, adapters.get(store, change.adapter).base_hash)
    return trial is None or trial[0].id != change.adapter


def fall_back(store: Store, change: Change, why: str) -> None:
    """Let the version before answer again, as a rule decided."""
    assert change.adapter is not None
    made = adapters.get(store, change.adapter)
    adapters.fall_back(store, made, f"{adapters.TOOK_BACK} v{made.version}: {why}")


def note_left(store: Store, known: list[Change]) -> None:
    """Record of every version that is being tried or had helped that somebody took it back, and who."""
    left = adapters.taken_back(store)
    for change in known:
        if change.adapter not in left or change.undone is not None or change.called_off:
            continue
        stages = {change.stage(each) for each in change.signatures or ("",)}
        if stages & {Stage.TRYING, Stage.HELPED}:
            why = left[change.adapter]
            by = By.OWNER if why.actor is Actor.OWNER else By.RULE
            with store.write():
                note_undone(store, change, by, why.reason)


def _take_back_adapter(store: Store, change: Change) -> str | None:
    """Serve what served before an adapter, where that adapter serves; None where another does."""
    if change.adapter is None:
        return None
    made = adapters.get(store, change.adapter)
    serving = adapters.active(store, made.base_hash).adapter
    if serving is None or serving.id != made.id:
        return None
    _, now = adapters.rollback(store, made.base_hash)
    after = "the base model" if now.adapter is None else f"v{now.adapter.version}"
    return f"v{made.version} is rolled back, {after} answers"


def release(store: Store, reasons: tuple[str, ...] = (STALE, BUSY, LOCKED)) -> int:
    """Let lessons wait again that a decision had left out; the owner's own order to learn does so. How many."""
    marks = ", ".join("?" * len(reasons))
    with store.write() as connection:
        done = connection.execute(
            f"UPDATE units SET state = ?, reason = NULL, updated = ? WHERE state = ? AND reason IN ({marks})",
            (UnitState.QUEUED, ids.now(), UnitState.REFUSED, *reasons),
        )
        return int(done.rowcount)


def hold(store: Store, held: dict[str, str]) -> None:
    """Leave lessons out of coming runs, each with its reason."""
    with store.write():
        for unit, reason in held.items():
            if units.get(store, unit).state is UnitState.QUEUED:
                units.refuse(store, unit, reason)


def _waiting(store: Store, decision: str) -> Change:
    change = changes.get(store, decision)
    if change is None or not change.asks:
        raise UsageError(f"decision {decision} does not wait for your word")
    stage = change.stage(next(iter(change.signatures), ""))
    if stage is not Stage.WAITING:
        raise UsageError(f"decision {decision} does not wait for your word any more: it is {stage}")
    return change


def _proposed(store: Store, decision: str) -> items.Item:
    row = store.conn.execute(
        "SELECT id FROM items WHERE decision = ? ORDER BY seq DESC LIMIT 1", (decision,)
    ).fetchone()
    if row is None:
        raise UsageError(f"what decision {decision} proposed is gone")
    return items.get(store, row["id"])


def _held(store: Store, item: items.Item) -> str | None:
    """The version of the same topic that holds now."""
    same = items.versions(store, item.kind, item.topic)
    return next((each.id for each in same if each.state is ItemState.ACTIVE), None)


def _take_back_round(store: Store, change: Change) -> str:
    if change.run is None:
        raise UsageError(f"decision {change.decision.id} was not carried out")
    if change.adapter is None:
        raise UsageError(
            f"its learning run {change.run} has brought nothing live, so there is nothing to undo"
        )
    said = _take_back_adapter(store, change)
    if said is None:
        raise UsageError(f"adapter {change.adapter} does not serve: `mynah adapters list` shows what does")
    return said


def _undo_rollback(store: Store, record: Decision) -> Done:
    """Switch on again what the rules had taken back."""
    target = str(record.choice["target"])
    change = changes.get(store, target)
    if change is not None and change.adapter is not None:
        return _serve_again(store, record, change.adapter)
    if change is None or change.item is None:
        raise UsageError(f"what decision {record.id} took back is gone")
    item = items.get(store, change.item)
    if item.state is ItemState.ACTIVE:
        raise UsageError(f"{item.kind} {item.id} holds already")
    items.switch(store, change.item, ItemState.ACTIVE, record.id)
    decisions.append(store, UNDONE, {"decision": record.id}, {"action": "undo", "by": By.OWNER})
    return Done(record.id, f"{change.item} holds again")


def _serve_again(store: Store, record: Decision, adapter: str) -> Done:
    """Let a version answer again that a rule had taken back; as the owner's choice, which no rule takes back."""
    made = adapters.get(store, adapter)
    serving = adapters.active(store, made.base_hash).adapter
    if serving is not None and serving.id == adapter:
        raise UsageError(f"v{made.version} answers already")
    adapters.use(store, made.base_hash, adapter)
    decisions.append(store, UNDONE, {"decision": record.id}, {"action": "undo", "by": By.OWNER})
    return Done(record.id, f"v{made.version} answers again, and stays until you choose another")
