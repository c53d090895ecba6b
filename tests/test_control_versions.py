"""Two watch over a new version, the controller and the test of objections: they never take back two for one fault."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from app.control.step import Controller
from app.tui import wording
from store import adapters, aftercare, changes, decisions, items, runs, settings, signals, steering, units
from store.changes import By, Change, Stage
from store.control import Action, Knob, Verdict
from store.db import Store
from store.errors import UsageError
from store.home import Home
from store.types import Actor, ItemKind, RunOutcome, SignalKind, Trigger, UnitUse
from tests import seed
from tests.people import LONG, corrected, disliked, fine

SHORTER = "Answer in one or two short sentences."
WORDING = "style/wording/prose"


@pytest.fixture
def host(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened


def lessons(store: Store, name: str, count: int = 4) -> None:
    for number in range(count):
        corrected(store, f"{name} {number}?", "It goes up.", f"Up it climbs {name} {number}.")


def learned(store: Store, host: Store, controller: Controller, name: str) -> Change:
    """Lessons among replies that were liked, a run of the controller's, and a version of it that goes live."""
    lessons(store, name)
    liked(store, 20)
    run = controller.request(host, Trigger.ENOUGH_UNITS)
    assert run is not None
    uses = [(unit, UnitUse.TRAINED) for unit in units.waiting(store)]
    made = seed.adapter(store, name.encode(), uses, run.id)
    runs.claim(store, 1)
    adapters.publish(store, made.id, {"passed": True})
    runs.finish(store, run.id, RunOutcome.PROMOTED, {"adapter": made.id})
    return next(each for each in changes.changes(store) if each.adapter == made.id)


def liked(store: Store, count: int) -> None:
    for number in range(count):
        signals.record(store, fine(store, f"Liked {number}?"), SignalKind.THUMB, value=1.0)


def objected(store: Store, adapter: str | None, count: int, item: str | None = None) -> None:
    """Replies of a version that are disliked, and nothing says why: no signature of the version's lessons."""
    for number in range(count):
        reply = fine(store, f"Disliked {number}?", item=item, adapter=adapter)
        signals.record(store, reply, SignalKind.THUMB, value=-1.0)


def worse(store: Store, adapter: str | None, count: int) -> None:
    """Replies of a version that need the very correction it learned from."""
    for number in range(count):
        reply = fine(store, f"Worse {number}?", "It goes up.", adapter=adapter)
        signals.record(store, reply, SignalKind.CORRECTION, text=f"Up it climbs, softly {number}.")


def serving(store: Store) -> str | None:
    adapter = adapters.active(store, seed.BASE).adapter
    return None if adapter is None else adapter.id


def again(store: Store, change: Change) -> Change:
    found = changes.get(store, change.decision.id)
    assert found is not None
    return found


def test_what_was_objected_to_is_over_for_the_controller_and_counts_as_a_failure(
    store: Store, host: Store
) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    objected(store, change.adapter, 20)
    assert len(aftercare.look(host)) == 1
    assert serving(store) is None
    controller.look(host)
    over = again(store, change)
    assert (over.stage(WORDING), over.undone_by) == (Stage.UNDONE, By.RULE)
    (attempt,) = changes.attempts(changes.changes(store), WORDING)
    assert (attempt.knob, attempt.verdict, attempt.by_owner) == (Knob.WEIGHTS, Verdict.NOT_HELPED, False)
    undone = changes.following(store, change.decision.id)[-1]
    assert undone.choice["reason"].startswith("took back v1: you objected to")
    controller.look(host)
    assert len(changes.following(store, change.decision.id)) == 2
    assert changes.unlike(store) == []


def test_one_bad_version_is_not_blamed_on_the_one_before(store: Store, host: Store) -> None:
    controller = Controller()
    first = learned(store, host, controller, "one")
    second = learned(store, host, controller, "two")
    worse(store, second.adapter, 14)
    assert len(aftercare.look(host)) == 1
    assert serving(store) == first.adapter
    controller.look(host)
    controller.look(host)
    assert serving(store) == first.adapter
    assert again(store, first).stage(WORDING) is Stage.TRYING
    assert again(store, second).stage(WORDING) is Stage.UNDONE
    assert [
        each.choice["action"] for each in decisions.list_(store) if each.choice["action"] == Action.ROLLBACK
    ] == []


def test_what_the_controller_takes_back_is_said_and_the_watch_leaves_the_rest(
    store: Store, host: Store
) -> None:
    controller = Controller()
    first = learned(store, host, controller, "one")
    for number in range(8):
        fine(store, f"Better {number}?", adapter=first.adapter)
    controller.look(host)
    assert again(store, first).stage(WORDING) is Stage.HELPED
    second = learned(store, host, controller, "two")
    worse(store, second.adapter, 14)
    controller.look(host)
    assert serving(store) == first.adapter
    now = adapters.active(store, seed.BASE)
    assert wording.went_live(now).startswith("v1 answers again: took back v2: it made things worse: 14 of 14")
    assert aftercare.look(host) == []
    controller.look(host)
    assert serving(store) == first.adapter


@pytest.mark.parametrize("how", ["chosen", "pinned"])
def test_what_the_owner_holds_on_to_is_not_taken_back(store: Store, host: Store, how: str) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    assert change.adapter is not None
    if how == "chosen":
        adapters.use(store, seed.BASE, change.adapter)
    else:
        settings.put(store, settings.PINNED, change.adapter)
    worse(store, change.adapter, 14)
    assert aftercare.look(host) == []
    controller.look(host)
    controller.look(host)
    assert serving(store) == change.adapter
    assert again(store, change).verdicts == {WORDING: Verdict.WORSE}


def test_nothing_is_taken_back_while_frozen_and_both_look_again_after(store: Store, host: Store) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    steering.freeze(store, True)
    worse(store, change.adapter, 14)
    assert aftercare.look(host) == []
    controller.look(host)
    assert serving(store) == change.adapter
    assert again(store, change).stage(WORDING) is Stage.TRYING
    steering.freeze(store, False)
    controller = Controller()
    controller.look(host)
    assert serving(store) is None


def test_a_version_the_owner_left_is_a_change_the_owner_took_back(store: Store, host: Store) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    controller.look(host)
    adapters.rollback(store, seed.BASE)
    controller.look(host)
    over = again(store, change)
    assert (over.stage(WORDING), over.undone_by) == (Stage.UNDONE, By.OWNER)


def test_a_version_whose_lessons_were_forgotten_says_nothing_of_learning(store: Store, host: Store) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    assert change.adapter is not None
    adapters.taint(store, [change.adapter], "a message was forgotten")
    controller.look(host)
    assert again(store, change).stage(WORDING) is Stage.CALLED_OFF
    assert changes.attempts(changes.changes(store), WORDING) == ()


def test_objections_to_an_item_on_trial_are_not_the_versions(store: Store, host: Store) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    for number in range(3):
        disliked(store, f"Long {number}?", hint=SHORTER)
    controller.look(host)
    (item,) = items.active(store, ItemKind.INSTRUCTION)
    objected(store, change.adapter, 20, item.id)
    assert aftercare.look(host) == []
    objected(store, change.adapter, 20)
    assert len(aftercare.look(host)) == 1


def test_objections_to_a_version_are_not_an_items_on_trial(store: Store, host: Store) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    for number in range(3):
        disliked(store, f"Long {number}?", hint=SHORTER)
    controller.look(host)
    (item,) = items.active(store, ItemKind.INSTRUCTION)
    for number in range(8):
        reply = fine(store, f"Still {number}?", LONG, item.id, change.adapter)
        signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=SHORTER)
    objected(store, change.adapter, 20)
    assert len(aftercare.look(host)) == 1
    controller.look(host)
    assert [each.id for each in items.active(store, ItemKind.INSTRUCTION)] == [item.id]


@pytest.mark.parametrize("by", ["watch", "controller"])
def test_what_a_rule_took_back_is_given_back_by_undo_and_then_stays(
    store: Store, host: Store, by: str
) -> None:
    controller = Controller()
    change = learned(store, host, controller, "one")
    worse(store, change.adapter, 14)
    if by == "watch":
        aftercare.look(host)
    controller.look(host)
    assert serving(store) is None
    record = next(
        each
        for each in decisions.list_(store)
        if each.kind == decisions.WATCH or each.choice["action"] == Action.ROLLBACK
    )
    assert steering.undo(store, record.id).said == "v1 answers again, and stays until you choose another"
    worse(store, change.adapter, 14)
    assert aftercare.look(host) == []
    controller.look(host)
    assert serving(store) == change.adapter
    with pytest.raises(UsageError, match="v1 answers already"):
        steering.undo(store, record.id)


def test_who_left_a_version_is_told_from_who_went_on_to_a_newer_one(store: Store, host: Store) -> None:
    controller = Controller()
    first = learned(store, host, controller, "one")
    second = learned(store, host, controller, "two")
    assert adapters.taken_back(store) == {}
    adapters.rollback(store, seed.BASE)
    left = adapters.taken_back(store)
    assert [(name, each.actor) for name, each in left.items()] == [(second.adapter, Actor.OWNER)]
    assert second.adapter is not None
    adapters.use(store, seed.BASE, second.adapter)
    assert adapters.taken_back(store) == {}
    assert first.adapter is not None
