"""The controller over a real store: what it proposes, takes back, leaves alone, and what the owner can undo.

The store has two connections, as it has when it runs: one that the person writes with, one of the host's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from app.control.step import Controller
from store import (
    adapters,
    artifacts,
    changes,
    control,
    conversations,
    deciding,
    decisions,
    forgetting,
    items,
    purging,
    runs,
    selfview,
    settings,
    signals,
    steering,
    units,
)
from store.changes import Stage
from store.control import CONTROL, ROUND, Action, Knob, Verdict
from store.conversations import ReplyEnd
from store.db import Store
from store.decisions import Decision
from store.errors import UsageError
from store.home import Home
from store.types import (
    ErrorClass,
    FinishReason,
    ItemKind,
    ItemState,
    MessageStatus,
    RunOutcome,
    Scope,
    SignalKind,
    Trigger,
    UnitUse,
)
from tests import seed
from tests.people import corrected, disliked, disliked_with, faulty, fine, told_again, typed

SHORTER = "Answer in one or two short sentences."


@dataclass
class Desk:
    """A person's connection, and the controller at the host's."""

    store: Store
    host: Store
    controller: Controller = field(default_factory=Controller)

    def look(self) -> None:
        self.controller.look(self.host)

    def decided(self) -> list[Decision]:
        return [each for each in reversed(decisions.list_(self.store)) if each.kind == CONTROL]

    def last(self) -> Decision:
        return self.decided()[-1]

    def item(self) -> items.Item:
        (item,) = items.active(self.store)
        return item


@pytest.fixture
def desk(home: Home) -> Iterator[Desk]:
    with Store.open(home) as store, Store.open(home) as host:
        made = Desk(store, host)
        yield made
        assert decisions.broken_at(store) is None
        assert changes.unlike(store) == [], "every decision comes out the same from its record"


def complain(desk: Desk, times: int = 3, hint: str | None = SHORTER) -> None:
    for number in range(times):
        disliked(desk.store, f"Question {number}?", hint=hint)


def test_a_rule_said_three_times_becomes_an_instruction_in_the_owners_words(desk: Desk) -> None:
    complain(desk, 2)
    desk.look()
    assert desk.decided() == []
    complain(desk, 1)
    desk.look()
    item = desk.item()
    assert (item.kind, item.text, item.decision) == (ItemKind.INSTRUCTION, SHORTER, desk.last().id)
    desk.look()
    assert len(desk.decided()) == 1


def test_a_record_tells_all_that_it_was_made_from(desk: Desk) -> None:
    faulty(desk.store, "Question?", ErrorClass.TIMEOUT)
    complain(desk)
    desk.look()
    told = selfview.told(desk.store, desk.last().id)
    record = told.decision
    assert record.inputs["now"] == {"failures": 3, "conversations": 3, "steps": 3, "low": 0.4385, "high": 1.0}
    assert record.inputs["excluded"] == {"timeout": 1}
    assert record.inputs["rules"] == control.RULES
    assert {each["knob"]: each["why_not"] is None for each in record.choice["candidates"]} == {
        "instruction": True,
        "guard": False,
        "weights": False,
    }
    (applied,) = told.following
    assert (applied.inputs["item"], applied.choice["by"]) == (desk.item().id, "rule")
    assert applied.inputs["artifact"] == artifacts.of_item(ItemKind.INSTRUCTION, {"text": SHORTER})
    assert told.remade is True


def test_failures_from_a_usage_limit_promote_nothing(desk: Desk) -> None:
    for number in range(12):
        disliked(
            desk.store, f"Question {number}?", "Error 429: usage limit reached. Try again later.", SHORTER
        )
        faulty(desk.store, f"Question {number}?", ErrorClass.UNKNOWN, SHORTER)
        faulty(desk.store, f"Question {number}?", ErrorClass.TIMEOUT, SHORTER)
    desk.look()
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    assert desk.decided() == []
    assert items.active(desk.store) == []
    assert runs.list_(desk.store) == []
    assert units.waiting(desk.store) == []
    assert adapters.list_(desk.store) == []


def test_twenty_one_failures_after_a_change_are_not_answered_with_the_same_change(desk: Desk) -> None:
    complain(desk)
    desk.look()
    first = desk.item()
    for number in range(21):
        held = [each.id for each in items.active(desk.store)]
        disliked_with(desk.store, f"Again {number}?", held[0] if held else None, SHORTER)
        desk.look()
        desk.look()
    proposed = [each for each in desk.decided() if each.choice["action"] == Action.PROPOSE]
    assert [each.choice["knob"] for each in proposed][:2] == ["instruction", "guard"]
    assert len({each.choice["knob"] for each in proposed}) == len(proposed)
    assert items.get(desk.store, first.id).state is ItemState.RETIRED
    bodies = [item.body for each in ItemKind for item in items.list_(desk.store, each)]
    assert len(bodies) == len({str(body) for body in bodies})
    outcomes = [each for each in changes.changes(desk.store) if each.verdicts]
    assert outcomes[0].verdicts == {"rule/too_long/prose": Verdict.NOT_HELPED}


def test_doubling_the_faults_changes_no_decision(tmp_path: Path) -> None:
    made = []
    for faults in (3, 6):
        with Store.open(Home(tmp_path / f"h{faults}").open()) as store:
            for number in range(4):
                for _ in range(faults):
                    faulty(store, f"Question {number}?", ErrorClass.OUT_OF_MEMORY, SHORTER)
                    disliked(store, "Question?", "503 service unavailable", SHORTER)
                disliked(store, f"Question {number}?", hint=SHORTER)
                corrected(store, f"Fact {number}?", "It is 4.", "It is 5.")
            Controller().look(store)
            made.append([(each.kind, each.choice) for each in decisions.list_(store) if each.kind == CONTROL])
    assert made[0] == made[1]
    assert made[0]


def test_a_change_that_helped_stays_and_is_said_to_have(desk: Desk) -> None:
    complain(desk)
    desk.look()
    for number in range(6):
        fine(desk.store, f"Fine {number}?", item=desk.item().id)
    desk.look()
    view = selfview.of(desk.store)
    assert [trial.stage for trial in view.trials] == [Stage.HELPED]
    assert view.calibration[0].helped == 1.0
    assert desk.item().text == SHORTER


def test_a_standing_request_holds_from_the_next_reply_on(desk: Desk) -> None:
    asked = typed(desk.store, "Thanks. From now on answer in metric units.")
    desk.look()
    item = desk.item()
    assert (item.kind, item.source_message) == (ItemKind.INSTRUCTION, asked)
    assert (item.text, item.source_span) == ("From now on answer in metric units.", (8, 43))
    desk.look()
    assert len(desk.decided()) == 1


def test_a_fact_is_written_at_once_and_not_a_second_time(desk: Desk) -> None:
    typed(desk.store, "Please remember that my dog is called Rex.")
    desk.look()
    assert len(items.active(desk.store, ItemKind.MEMORY)) == 1
    assert desk.decided() == []


@pytest.mark.parametrize("level", ["ask", "never"])
def test_a_fact_that_needs_a_word_waits_for_it(desk: Desk, level: str) -> None:
    settings.put(desk.store, settings.APPROVE_MEMORY, level)
    typed(desk.store, "Please remember that my dog is called Rex.")
    desk.look()
    assert items.active(desk.store) == []
    assert len(selfview.of(desk.store).waiting) == (level == "ask")


def test_what_an_item_of_the_owners_says_already_is_not_proposed(desk: Desk) -> None:
    complain(desk)
    items.add(
        desk.store,
        ItemKind.INSTRUCTION,
        "brief",
        {"text": SHORTER},
        source=items.TYPED,
        confidence=1.0,
        state=ItemState.ACTIVE,
    )
    desk.look()
    assert desk.decided() == []


def test_a_fact_that_was_told_is_remembered(desk: Desk) -> None:
    for _ in range(3):
        told_again(desk.store, "What is the capital of Australia?", "Sydney, I think so.", "it's Canberra")
    desk.look()
    assert (desk.item().kind, desk.item().text) == (ItemKind.MEMORY, "it's Canberra")


def test_what_cannot_be_fixed_is_said_once(desk: Desk) -> None:
    complain(desk, 4, None)
    desk.look()
    complain(desk, 4, None)
    desk.look()
    (record,) = desk.decided()
    assert record.choice["action"] == Action.GIVE_UP
    assert record.choice["why"].startswith("I cannot fix this")


def test_free_form_corrections_go_to_the_weights_as_ever(desk: Desk) -> None:
    for number in range(4):
        corrected(desk.store, f"Question {number}?", "It goes up.", f"Up it climbs, softly {number}.")
    desk.look()
    assert items.active(desk.store) == []
    run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert run is not None
    assert run.trigger is Trigger.ENOUGH_UNITS
    assert len(units.waiting(desk.store)) == 4
    (change,) = changes.changes(desk.store)
    assert (change.knob, change.run, change.signatures) == (Knob.WEIGHTS, run.id, ("style/wording/prose",))


def test_no_context_change_while_a_run_is_under_way(desk: Desk) -> None:
    runs.request(desk.store, Trigger.MANUAL)
    complain(desk)
    desk.look()
    assert items.active(desk.store) == []
    assert "learning run is under way" in desk.last().choice["why"]
    run = runs.claim(desk.store, 1)
    assert run is not None
    runs.finish(desk.store, run.id, RunOutcome.NOTHING_TO_LEARN, {})
    complain(desk, 1)
    desk.look()
    assert desk.item().text == SHORTER


def test_samples_from_before_a_context_change_are_dropped_unless_the_owner_says_learn(desk: Desk) -> None:
    complain(desk, 4)
    desk.look()
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    assert {each.reason for each in units.refused(desk.store)} == {deciding.STALE}
    disliked_with(desk.store, "After?", desk.item().id, SHORTER)
    assert desk.controller.request(desk.host, Trigger.IDLE) is None
    assert {each.reason for each in units.refused(desk.store)} == {deciding.STALE, deciding.BUSY}
    assert steering.release(desk.store) == 5
    assert len(units.waiting(desk.store)) == 5


def test_a_run_after_the_context_change_failed_has_only_what_came_after(desk: Desk) -> None:
    settings.put(desk.store, settings.APPROVE_GUARD, "never")
    complain(desk, 4)
    desk.look()
    desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    item = desk.item().id
    for number in range(6):
        disliked_with(desk.store, f"After {number}?", item, SHORTER)
    desk.look()
    desk.look()
    for number in range(3):
        disliked(desk.store, f"Later {number}?", hint=SHORTER)
    desk.look()
    run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert run is not None
    assert len(units.waiting(desk.store)) == 9
    assert len(units.refused(desk.store)) == 4


def promoted(desk: Desk, run: str, content: bytes = b"one") -> str:
    """Let a run end with a version that goes live."""
    waiting = [(unit, UnitUse.TRAINED) for unit in units.waiting(desk.store)]
    made = seed.adapter(desk.store, content, waiting, run)
    runs.claim(desk.store, 1)
    adapters.publish(desk.store, made.id, {"passed": True})
    runs.finish(desk.store, run, RunOutcome.PROMOTED, {"adapter": made.id})
    return made.id


def test_a_learning_run_is_undone_by_what_served_before(desk: Desk) -> None:
    for number in range(4):
        corrected(desk.store, f"Question {number}?", "It goes up.", f"Up it climbs {number}.")
    run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert run is not None
    promoted(desk, run.id)
    (change,) = changes.changes(desk.store)
    assert change.stage("style/wording/prose") is Stage.TRYING
    assert "the base model answers" in steering.undo(desk.store, change.decision.id).said
    assert adapters.active(desk.store, seed.BASE).adapter is None
    with pytest.raises(UsageError, match="taken back already"):
        steering.undo(desk.store, change.decision.id)


def test_a_version_that_makes_it_worse_is_rolled_back_by_itself(desk: Desk) -> None:
    for number in range(4):
        corrected(desk.store, f"Question {number}?", "It goes up.", f"Up it climbs {number}.")
    for number in range(16):
        fine(desk.store, f"Fine {number}?")
    run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert run is not None
    made = promoted(desk, run.id)
    for number in range(12):
        reply = fine(desk.store, f"Later {number}?", "It goes up.", adapter=made)
        signals.record(desk.store, reply, SignalKind.CORRECTION, text=f"Up it climbs, softly {number}.")
    desk.look()
    assert adapters.active(desk.store, seed.BASE).adapter is None
    last = desk.last()
    assert (last.choice["action"], last.choice["knob"]) == (Action.ROLLBACK, "weights")
    assert "it made things worse" in last.choice["why"]
    assert steering.undo(desk.store, last.id).said.startswith("v1 answers again")
    serving = adapters.active(desk.store, seed.BASE).adapter
    assert serving is not None
    assert serving.id == made
    desk.look()
    assert adapters.active(desk.store, seed.BASE).adapter == serving, "the owner's word is not undone in turn"


def test_a_version_that_does_not_help_twice_is_not_tried_a_third_time(desk: Desk) -> None:
    for attempt in range(2):
        for number in range(4):
            corrected(desk.store, f"Question {number}?", "It goes up.", f"Up it climbs {attempt} {number}.")
        run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
        assert run is not None
        made = promoted(desk, run.id, f"version {attempt}".encode())
        for number in range(6):
            reply = fine(desk.store, f"Later {number}?", "It goes up.", adapter=made)
            signals.record(desk.store, reply, SignalKind.CORRECTION, text=f"Softly {attempt} {number}.")
        desk.look()
        desk.look()
    for number in range(4):
        corrected(desk.store, f"Still {number}?", "It goes up.", f"Up it climbs, at last {number}.")
    desk.look()
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    assert desk.last().choice["action"] == Action.GIVE_UP
    assert {each.reason for each in units.refused(desk.store)} == {deciding.LOCKED}
    assert steering.release(desk.store) > 0, "the owner's own order learns it all the same"


def learned(desk: Desk, times: int, adapter: str | None) -> None:
    """Corrections of one kind, of replies that were made with a version."""
    for number in range(times):
        conversation = conversations.create(desk.store, "c", "cli")
        asked = conversations.append_user(desk.store, conversation, f"Question {number}?", None)
        start = replace(seed.START, adapter=adapter)
        reply = conversations.begin_reply(desk.store, conversation, asked.id, start)
        end = ReplyEnd("It goes up.", MessageStatus.COMPLETE, FinishReason.STOP, [3, 4], [-0.1, -0.2])
        conversations.finish_reply(desk.store, reply.id, end)
        signals.record(
            desk.store, reply.id, SignalKind.CORRECTION, text=f"Up it climbs, softly {reply.id[-4:]}."
        )


def test_while_a_version_is_tried_for_a_signature_no_run_is_begun_for_it(desk: Desk) -> None:
    learned(desk, 4, None)
    first = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert first is not None
    version = promoted(desk, first.id)
    learned(desk, 4, version)
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    assert [each.reason for each in units.refused(desk.store)] == [deciding.BUSY] * 4
    learned(desk, 2, version)
    desk.look()
    (change,) = changes.changes(desk.store)
    assert change.stage("style/wording/prose") is Stage.FAILED
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is not None
    assert len(units.waiting(desk.store)) == 6


def test_lessons_do_not_wait_for_a_version_that_was_taken_back_by_hand(desk: Desk) -> None:
    learned(desk, 4, None)
    first = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert first is not None
    version = promoted(desk, first.id)
    learned(desk, 4, version)
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    adapters.rollback(desk.store, seed.BASE)
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is not None
    assert len(units.waiting(desk.store)) == 4


def test_a_refused_version_is_followed_by_the_next_knob(desk: Desk) -> None:
    for number in range(4):
        corrected(desk.store, f"Question {number}?", " ".join(["word"] * 40), f"Short {number}.")
    desk.look()
    run = desk.controller.request(desk.host, Trigger.ENOUGH_UNITS)
    assert run is not None
    runs.claim(desk.store, 1)
    runs.finish(desk.store, run.id, RunOutcome.REJECTED, {})
    desk.look()
    corrected(desk.store, "Question 5?", " ".join(["word"] * 40), "Short 5.")
    desk.look()
    assert desk.item().kind is ItemKind.INSTRUCTION


def test_undo_of_an_item_puts_back_what_it_replaced_and_locks_the_knob(desk: Desk) -> None:
    complain(desk)
    desk.look()
    decision, item = desk.last().id, desk.item().id
    assert steering.undo(desk.store, decision).said == f"instruction {item} is off"
    complain(desk, 3)
    desk.look()
    assert desk.last().choice["knob"] == "guard"


def test_an_item_that_the_owner_switched_off_is_a_change_taken_back(desk: Desk) -> None:
    complain(desk)
    desk.look()
    items.switch(desk.store, desk.item().id, ItemState.OFF)
    complain(desk, 1)
    desk.look()
    assert [each.stage("rule/too_long/prose") for each in changes.changes(desk.store)] == [Stage.UNDONE]


def test_what_needs_a_word_waits_for_it(desk: Desk) -> None:
    settings.put(desk.store, settings.APPROVE_INSTRUCTION, "ask")
    complain(desk)
    desk.look()
    decision = desk.last().id
    assert items.active(desk.store) == []
    assert [each.decision for each in selfview.of(desk.store).waiting] == [decision]
    complain(desk, 1)
    desk.look()
    assert len([each for each in desk.decided() if each.choice["action"] == Action.PROPOSE]) == 1
    steering.approve(desk.store, decision)
    assert desk.item().text == SHORTER
    with pytest.raises(UsageError, match="any more"):
        steering.approve(desk.store, decision)


def test_what_was_declined_is_not_proposed_again(desk: Desk) -> None:
    settings.put(desk.store, settings.APPROVE_INSTRUCTION, "ask")
    complain(desk)
    desk.look()
    steering.decline(desk.store, desk.last().id)
    complain(desk, 3)
    desk.look()
    assert desk.last().choice["knob"] == "guard"


def test_a_run_that_needs_a_word_is_asked_for_once(desk: Desk) -> None:
    settings.put(desk.store, settings.APPROVE_WEIGHTS, "ask")
    corrected(desk.store, "Question?", "It goes up.", "Up it climbs.")
    assert desk.controller.request(desk.host, Trigger.IDLE) is None
    assert desk.controller.request(desk.host, Trigger.IDLE) is None
    (record,) = [each for each in decisions.list_(desk.store) if each.kind == ROUND]
    assert runs.list_(desk.store) == []
    steering.approve(desk.store, record.id)
    assert len(runs.open_(desk.store)) == 1


def test_a_run_that_found_nothing_to_learn_was_no_try(desk: Desk) -> None:
    corrected(desk.store, "Question?", "It goes up.", "Up it climbs.")
    run = desk.controller.request(desk.host, Trigger.IDLE)
    assert run is not None
    assert selfview.of(desk.store).trials
    runs.claim(desk.store, 1)
    runs.finish(desk.store, run.id, RunOutcome.NOTHING_TO_LEARN, {})
    assert selfview.of(desk.store).trials == []


def test_frozen_changes_nothing_and_says_so_in_the_log(desk: Desk) -> None:
    steering.freeze(desk.store, on=True)
    complain(desk, 4)
    desk.look()
    assert desk.controller.request(desk.host, Trigger.ENOUGH_UNITS) is None
    assert items.active(desk.store) == []
    assert units.refused(desk.store) == []
    steering.freeze(desk.store, on=False)
    complain(desk, 1)
    desk.look()
    assert desk.item().text == SHORTER


def test_a_changed_record_is_detected(desk: Desk) -> None:
    complain(desk)
    desk.look()
    record = desk.last()
    trigger = desk.store.conn.execute(
        "SELECT sql FROM sqlite_master WHERE name = 'decisions_append_only'"
    ).fetchone()["sql"]
    stored = desk.store.conn.execute("SELECT choice FROM decisions WHERE id = ?", (record.id,)).fetchone()[0]
    changed = json.dumps({**record.choice, "why": "because"})
    desk.store.conn.execute("DROP TRIGGER decisions_append_only")
    desk.store.conn.execute("UPDATE decisions SET choice = ? WHERE id = ?", (changed, record.id))
    assert decisions.broken_at(desk.store) == record.id
    assert changes.unlike(desk.store) == [record.id]
    desk.store.conn.execute("UPDATE decisions SET choice = ? WHERE id = ?", (stored, record.id))
    desk.store.conn.execute(trigger)


def test_a_rejected_run_opens_the_breaker_after_three(desk: Desk) -> None:
    for number in range(4):
        corrected(desk.store, f"Question {number}?", "It goes up.", f"Up it climbs {number}.")
        run = desk.controller.request(desk.host, Trigger.IDLE)
        if number == 3:
            assert run is None
            break
        assert run is not None
        claimed = runs.claim(desk.store, 1)
        assert claimed is not None
        runs.finish(desk.store, run.id, RunOutcome.REJECTED, {})
    (last, *_) = decisions.list_(desk.store)
    assert "went wrong lately" in last.choice["why"]


def test_what_is_forgotten_is_in_no_record(desk: Desk) -> None:
    for number in range(3):
        told_again(
            desk.store,
            "How old is my dog Zerberus?",
            f"No idea {number}.",
            "my dog Zerberus is nine years old",
        )
    desk.look()
    assert desk.item().text == "my dog Zerberus is nine years old"
    assert "zerberus" in str([each.inputs for each in decisions.list_(desk.store)])
    known = artifacts.of_item(desk.item().kind, desk.item().body)
    assert known in str([each.inputs for each in decisions.list_(desk.store)])
    for each in conversations.list_(desk.store):
        asked = forgetting.request(desk.store, Scope.CONVERSATION, each.id)
        purging.proceed(desk.store, asked.id)
    assert "zerberus" not in str(decisions.list_(desk.store)).lower()
    assert known not in str(decisions.list_(desk.store)), "a hash would show that a guess is right"
    desk.look()
    assert items.active(desk.store) == []
