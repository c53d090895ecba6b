"""Signals, learning units and their fate, adapters and what serves, runs, decisions."""

from __future__ import annotations

import sqlite3

import pytest

from store import adapters, consent, conversations, decisions, runs, settings, signals, units
from store.db import Store
from store.errors import AdapterFileError, NotFound, UsageError
from store.reasons import REASONS, Reason, hint_for
from store.types import (
    AdapterState,
    Consent,
    Dial,
    RunOutcome,
    RunState,
    SignalKind,
    SignalSource,
    Trigger,
    UnitKind,
    UnitState,
    UnitUse,
)
from tests.seed import BASE, adapter, corrected, say, unit_of

GATE = {"passed": True, "checks": [], "summary": "fine"}


def test_the_strongest_signal_decides(store: Store) -> None:
    _, _, reply = say(store, "Q", "A")
    signals.record(
        store, reply, SignalKind.REQUERY, value=0.9, text="Q again", source=SignalSource.RULE, confidence=0.8
    )
    assert (unit_of(store, reply).kind, unit_of(store, reply).weight) == (UnitKind.REQUERY, 0.4)
    signals.record(store, reply, SignalKind.THUMB, value=-1, text="Be brief.")
    assert (unit_of(store, reply).kind, unit_of(store, reply).hint) == (UnitKind.THUMB_DOWN, "Be brief.")
    signals.record(store, reply, SignalKind.CORRECTION, text=" B ")
    unit = unit_of(store, reply)
    assert (unit.kind, unit.target, unit.reward, unit.state) == (
        UnitKind.CORRECTION,
        "B",
        -1.0,
        UnitState.QUEUED,
    )


def test_a_rating_taken_back_teaches_nothing(store: Store) -> None:
    _, _, reply = say(store, "Q", "A")
    up = signals.record(store, reply, SignalKind.THUMB, value=1)
    cleared = signals.record(store, reply, SignalKind.THUMB, value=0)
    assert cleared.supersedes == up.id
    assert unit_of(store, reply).state is UnitState.REFUSED
    assert units.fate(store, reply) == units.Fate(UnitState.REFUSED, "not used: the rating was taken back")
    signals.record(store, reply, SignalKind.THUMB, value=1)
    assert unit_of(store, reply).state is UnitState.QUEUED


def test_signals_are_append_only(store: Store) -> None:
    _, _, reply = say(store, "Q", "A")
    signal = signals.record(store, reply, SignalKind.THUMB, value=1)
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        store.conn.execute("UPDATE signals SET value = -1 WHERE id = ?", (signal.id,))


def test_only_finished_replies_can_be_rated(store: Store) -> None:
    _, question, _ = say(store, "Q", "A")
    with pytest.raises(UsageError, match="not a reply"):
        signals.record(store, question, SignalKind.THUMB, value=1)


def test_refusals_are_written_on_the_unit(store: Store) -> None:
    conversation, _, reply = say(store, "Q", "A")
    consent.set_(store, conversation, Dial.TRAIN, Consent.DENY)
    signals.record(store, reply, SignalKind.THUMB, value=1)
    assert unit_of(store, reply).reason == "this conversation may not be trained on"
    _, _, empty = say(store, "Q", "  ")
    signals.record(store, empty, SignalKind.THUMB, value=1)
    assert unit_of(store, empty).reason == "the reply is empty"


def test_a_unit_knows_what_became_of_it(store: Store) -> None:
    used, held = corrected(store, "Q1", "A", "B"), corrected(store, "Q2", "A", "B")
    assert units.fate(store, used.message) == units.Fate(UnitState.QUEUED, "queued")
    assert [unit.id for unit in units.fresh(store)] == [used.id, held.id]
    refused = adapter(store, b"one", [(used, UnitUse.TRAINED), (held, UnitUse.HELD_OUT)])
    adapters.reject(store, refused.id, {"passed": False}, "KL too large")
    assert units.fresh(store) == []
    assert len(units.waiting(store)) == 2
    assert units.fate(store, used.message) == units.Fate(
        UnitState.QUEUED, "queued (v1 was refused by the gate)"
    )
    live = adapter(store, b"two", [(used, UnitUse.TRAINED), (held, UnitUse.HELD_OUT)])
    assert adapters.publish(store, live.id, GATE)
    assert units.fate(store, used.message) == units.Fate(UnitState.USED, "used in v2")
    assert units.fate(store, held.message) == units.Fate(UnitState.HELD_OUT, "held out to test v2")
    signals.record(store, used.message, SignalKind.CORRECTION, text="C")
    assert [unit.id for unit in units.fresh(store)] == [used.id]


def test_a_correction_that_came_during_the_run_waits(store: Store) -> None:
    unit = corrected(store, "Q", "A", "B")
    candidate = adapter(store, b"one", [(unit, UnitUse.TRAINED)])
    signals.record(store, unit.message, SignalKind.CORRECTION, text="a better B")
    adapters.publish(store, candidate.id, GATE)
    assert unit_of(store, unit.message).state is UnitState.QUEUED


def test_next_states_wait_for_judgement_once(store: Store) -> None:
    conversation, _, reply = say(store, "How hot is tea?", "Cold.")
    assert units.unjudged(store) == []
    say(store, "No, I meant green tea", "80 degrees.", conversation, reply)
    assert units.unjudged(store) == [
        units.NextState(reply, "How hot is tea?", "Cold.", "No, I meant green tea")
    ]
    units.mark_judged(store, reply, "requery")
    assert units.unjudged(store) == []


def test_publish_roll_back_and_use(store: Store) -> None:
    assert adapters.active(store, BASE).adapter is None
    with pytest.raises(UsageError, match="nothing to roll back"):
        adapters.rollback(store, BASE)
    first, second = adapter(store, b"one", []), None
    adapters.publish(store, first.id, GATE)
    second = adapter(store, b"two", [])
    assert (second.version, second.parent) == (2, first.id)
    adapters.publish(store, second.id, GATE)
    taken_back, serving = adapters.rollback(store, BASE)
    assert taken_back.id == second.id
    assert serving.adapter is not None
    assert (serving.adapter.id, serving.adapter.state) == (first.id, AdapterState.ACTIVE)
    assert adapters.get(store, second.id).state is AdapterState.RETIRED
    assert adapters.rollback(store, BASE)[1].adapter is None
    again = adapters.use(store, BASE, second.id, 0.5)
    assert again.adapter is not None
    assert (again.adapter.id, again.scale) == (second.id, 0.5)
    assert decisions.broken_at(store) is None


def test_what_may_not_serve_is_refused_in_words(store: Store) -> None:
    bad = adapter(store, b"bad", [])
    adapters.reject(store, bad.id, {}, "it loops")
    with pytest.raises(UsageError, match="rejected and cannot serve: it loops"):
        adapters.use(store, BASE, bad.id)
    good = adapter(store, b"good", [])
    with pytest.raises(UsageError, match="another model"):
        adapters.use(store, "c" * 64, good.id)
    with pytest.raises(UsageError, match="between 0 and 1"):
        adapters.use(store, BASE, good.id, 1.5)
    (adapters.files(store, good.id) / adapters.GGUF_NAME).unlink()
    with pytest.raises(AdapterFileError, match="are gone"):
        adapters.use(store, BASE, good.id)
    with pytest.raises(NotFound):
        adapters.use(store, BASE, "nothing")
    assert adapters.active(store, BASE).adapter is None


def test_a_broken_adapter_falls_back_to_its_parent(store: Store) -> None:
    first = adapter(store, b"one", [])
    adapters.publish(store, first.id, GATE)
    second = adapter(store, b"two", [])
    adapters.publish(store, second.id, GATE)
    settings.put(store, settings.PINNED, second.id)
    serving = adapters.withdraw(store, second.id, "cut short")
    assert settings.get(store, settings.PINNED) is None
    assert serving.adapter is not None
    assert serving.adapter.id == first.id
    assert adapters.get(store, second.id).reason == "cut short"


def test_a_pin_keeps_what_serves(store: Store) -> None:
    first = adapter(store, b"one", [])
    adapters.publish(store, first.id, GATE)
    settings.put(store, settings.PINNED, first.id)
    second = adapter(store, b"two", [])
    assert not adapters.publish(store, second.id, GATE)
    serving = adapters.active(store, BASE).adapter
    assert serving is not None
    assert serving.id == first.id


def test_leaving_a_pinned_version_takes_the_pin_off(store: Store) -> None:
    first = adapter(store, b"one", [])
    adapters.publish(store, first.id, GATE)
    settings.put(store, settings.PINNED, first.id)
    adapters.use(store, BASE, first.id, 0.5)
    assert settings.get(store, settings.PINNED) == first.id
    adapters.rollback(store, BASE)
    assert settings.get(store, settings.PINNED) is None


def test_deleting_an_adapter_keeps_its_lineage(store: Store) -> None:
    unit = corrected(store, "Q", "A", "B")
    first = adapter(store, b"one", [(unit, UnitUse.TRAINED)])
    adapters.publish(store, first.id, GATE)
    with pytest.raises(UsageError, match="serves now"):
        adapters.delete(store, first.id)
    with pytest.raises(UsageError, match="learned from this conversation"):
        conversations.delete(store, unit.conversation)
    adapters.rollback(store, BASE)
    adapters.delete(store, first.id)
    assert not adapters.files(store, first.id).exists()
    assert adapters.get(store, first.id).state is AdapterState.DELETED
    assert unit_of(store, unit.message).reason == "its adapter v1 was deleted"
    conversations.delete(store, unit.conversation)


def test_deleting_a_refused_adapter_leaves_its_units_waiting(store: Store) -> None:
    unit = corrected(store, "Q", "A", "B")
    bad = adapter(store, b"bad", [(unit, UnitUse.TRAINED)])
    adapters.reject(store, bad.id, {}, "it loops")
    adapters.delete(store, bad.id)
    assert unit_of(store, unit.message).state is UnitState.QUEUED


def test_a_pinned_adapter_is_not_deleted(store: Store) -> None:
    first = adapter(store, b"one", [])
    settings.put(store, settings.PINNED, first.id)
    with pytest.raises(UsageError, match="is pinned"):
        adapters.delete(store, first.id)
    settings.put(store, settings.PINNED, None)
    adapters.delete(store, first.id)
    assert adapters.get(store, first.id).state is AdapterState.DELETED


def test_an_adapter_that_is_made_again_forgets_why_it_was_given_up(store: Store) -> None:
    first = adapter(store, b"one", [])
    adapters.reject(store, first.id, {}, "its run was broken off and begun again")
    adapters.publish(store, adapter(store, b"one", []).id, GATE)
    again = adapters.get(store, first.id)
    assert (again.state, again.reason) == (AdapterState.ACTIVE, None)


def test_runs_survive_the_learner(store: Store) -> None:
    run = runs.request(store, Trigger.MANUAL)
    assert runs.request(store, Trigger.IDLE).id == run.id
    for attempt in range(1, runs.MAX_ATTEMPTS + 1):
        claimed = runs.claim(store, pid=1000 + attempt)
        assert claimed is not None
        assert (claimed.id, claimed.attempts, claimed.state) == (run.id, attempt, RunState.PREPARING)
        runs.progress(store, run.id, RunState.TRAINING, 0.5, "step 3")
    assert runs.claim(store, pid=2000) is None
    assert runs.get(store, run.id).state is RunState.FAILED
    later = runs.request(store, Trigger.MANUAL)
    runs.claim(store, 1)
    runs.finish(store, later.id, RunOutcome.PROMOTED, {"outcome": "promoted"})
    runs.progress(store, later.id, RunState.TRAINING, 0.1)
    assert runs.get(store, later.id).state is RunState.DONE
    assert runs.open_(store) == []


def test_a_learner_that_is_asked_to_end_uses_up_no_attempt(store: Store) -> None:
    run = runs.request(store, Trigger.MANUAL)
    for _ in range(runs.MAX_ATTEMPTS + 1):
        claimed = runs.claim(store, 1)
        assert claimed is not None
        assert claimed.attempts == 1
        runs.release(store, run.id)
    runs.claim(store, 1)
    runs.finish(store, run.id, RunOutcome.REJECTED, {})
    runs.release(store, run.id)
    assert runs.get(store, run.id).state is RunState.DONE


def test_a_changed_decision_is_detected(store: Store) -> None:
    ids = [decisions.append(store, "test", {"n": n}, {"action": "keep"}) for n in range(3)]
    assert decisions.broken_at(store) is None
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        store.conn.execute("UPDATE decisions SET choice = '{}'")
    store.conn.execute("DROP TRIGGER decisions_append_only")
    store.conn.execute("UPDATE decisions SET choice = '{}' WHERE id = ?", (ids[1],))
    assert decisions.broken_at(store) == ids[1]


def test_reasons_have_distinct_keys_and_hints() -> None:
    assert len({text.key for text in REASONS.values()}) == len(REASONS)
    assert hint_for(Reason.SHORTER, None) == REASONS[Reason.SHORTER].hint
    assert hint_for(Reason.SHORTER, " my words ") == "my words"
    assert hint_for(Reason.OWN_WORDS, None) is None


def test_settings_know_their_names(store: Store) -> None:
    assert settings.get(store, settings.MIN_UNITS) == 4
    settings.put(store, settings.MIN_UNITS, 2)
    assert settings.get(store, settings.MIN_UNITS) == 2
    settings.put(store, settings.MIN_UNITS, None)
    assert settings.get(store, settings.MIN_UNITS) == 4
    with pytest.raises(UsageError, match="no setting is called"):
        settings.put(store, "colour", "red")
