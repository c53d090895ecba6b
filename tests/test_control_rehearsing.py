"""A change is tried on the questions that went wrong first, and what was said beside a correction is read with it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import pytest

from app.cli import reasons
from app.control.rehearsing import GoesOn, NoRehearsal, by_code
from app.control.step import Controller
from app.harness import guards
from store import changes, decisions, items, selfview, settings, signals, steering
from store.control import CONTROL, Action, Verdict
from store.db import Store
from store.decisions import Decision
from store.errors import UsageError
from store.home import Home
from store.items import Item
from store.types import ItemKind, ItemState, SignalKind, Trigger
from tests.people import LONG, corrected, disliked_with, fine, typed
from tests.seed import say

SHORT = "word0 only."
TOO_LONG = "rule/too_long/prose"


@dataclass
class Rehearsed:
    """Says what it was told to, by kind of item; what it was not told of cannot be rehearsed."""

    says: Mapping[ItemKind, str | None] = field(default_factory=dict)
    asked: list[tuple[str, ItemKind]] = field(default_factory=list)

    def again(self, store: Store, reply: str, item: Item) -> str:
        self.asked.append((reply, item.kind))
        if item.kind not in self.says:
            raise NoRehearsal("not here")
        said = self.says[item.kind]
        if said is None:
            raise GoesOn
        return said


@pytest.fixture
def host(home: Home) -> Iterator[Store]:
    with Store.open(home) as opened:
        yield opened
        assert decisions.broken_at(opened) is None
        assert changes.unlike(opened) == [], "every decision comes out the same from its record"


def noted(store: Store, question: str, answer: str, correction: str, note: str) -> str:
    """A reply with a thumb down and a note, and the owner's own version."""
    _, _, reply = say(store, question, answer)
    signals.record(store, reply, SignalKind.THUMB, value=-1.0, text=note)
    signals.record(store, reply, SignalKind.CORRECTION, text=correction)
    return reply


def complain(store: Store, times: int = 3, note: str = "please keep it short") -> list[str]:
    return [noted(store, f"Question {number}?", LONG, SHORT, note) for number in range(times)]


def last(store: Store) -> Decision:
    return next(each for each in decisions.list_(store) if each.kind == CONTROL)


def knobs(store: Store) -> list[str]:
    made = [each for each in reversed(decisions.list_(store)) if each.kind == CONTROL]
    return [str(each.choice["knob"]) for each in made if each.choice["action"] == Action.PROPOSE]


def test_what_helps_in_no_rehearsal_is_never_met_by_a_person(store: Store, host: Store) -> None:
    replies = complain(store)
    stage = Rehearsed({ItemKind.INSTRUCTION: LONG, ItemKind.GUARD: SHORT})
    Controller(stage).look(host)
    assert items.list_(store, ItemKind.INSTRUCTION) == []
    (item,) = items.active(store, ItemKind.GUARD)
    assert stage.asked == [
        (each, kind) for kind in (ItemKind.INSTRUCTION, ItemKind.GUARD) for each in replies
    ]
    rehearsed = last(store).inputs["rehearsed"]
    assert {knob: (each["failures"], each["steps"]) for knob, each in rehearsed.items()} == {
        "instruction": (3, 3),
        "guard": (0, 3),
    }
    why_not = {each["knob"]: each["why_not"] for each in last(store).choice["candidates"]}
    assert why_not["instruction"] == "rehearsed on 3 recorded questions, it helped with none"
    told = list(reasons.lines(selfview.told(store, last(store).id)))
    assert "rehearsed  an instruction on 3 recorded questions: right in 0" in told
    assert "rehearsed  a guard on 3 recorded questions: right in 3" in told
    assert item.effect is not None
    assert (item.effect["with"], item.effect["without"], item.effect["n"]) == (1.0, 0.0, 3)


def test_what_helps_in_a_rehearsal_is_taken_and_nothing_dearer_is_tried(store: Store, host: Store) -> None:
    complain(store)
    stage = Rehearsed({ItemKind.INSTRUCTION: SHORT})
    Controller(stage).look(host)
    assert [each.kind for each in items.active(store)] == [ItemKind.INSTRUCTION]
    assert {kind for _, kind in stage.asked} == {ItemKind.INSTRUCTION}


def test_while_a_rehearsal_goes_on_nothing_is_decided_and_nothing_is_lost(store: Store, host: Store) -> None:
    complain(store)
    stage = Rehearsed({ItemKind.INSTRUCTION: None})
    controller = Controller(stage)
    controller.look(host)
    assert decisions.list_(store) == []
    assert len(stage.asked) == 3, "all are asked for at once"
    assert controller.request(host, Trigger.IDLE) is None, "nor is it learned before it is known"
    stage.says = {ItemKind.INSTRUCTION: SHORT}
    controller.look(host)
    assert knobs(store) == ["instruction"]


def test_what_waited_for_a_rehearsal_is_learned_where_that_helped_with_none(
    store: Store, host: Store
) -> None:
    settings.put(store, settings.APPROVE_GUARD, "never")
    complain(store)
    stage = Rehearsed({ItemKind.INSTRUCTION: None})
    controller = Controller(stage)
    controller.look(host)
    assert controller.request(host, Trigger.IDLE) is None
    stage.says = {ItemKind.INSTRUCTION: LONG}
    controller.look(host)
    assert controller.request(host, Trigger.IDLE) is not None


def test_what_cannot_be_rehearsed_is_left_to_the_next_replies(store: Store, host: Store) -> None:
    complain(store)
    Controller(Rehearsed()).look(host)
    (item,) = items.active(store)
    assert (item.kind, item.effect) == (ItemKind.INSTRUCTION, None)
    assert last(store).inputs["rehearsed"]["instruction"]["steps"] == 0


def test_a_standing_request_is_not_rehearsed(store: Store, host: Store) -> None:
    typed(store, "From now on answer in one sentence.")
    stage = Rehearsed({ItemKind.INSTRUCTION: LONG})
    Controller(stage).look(host)
    assert stage.asked == []
    assert [each.kind for each in items.active(store)] == [ItemKind.INSTRUCTION]


def test_a_guard_is_judged_by_code_where_nobody_can_rehearse(store: Store, host: Store) -> None:
    settings.put(store, settings.APPROVE_INSTRUCTION, "never")
    for number in range(3):
        noted(store, f"Question {number}?", "Here:\n- one\n- two", "One and two.", "no lists please")
    Controller().look(host)
    (item,) = items.active(store)
    assert item.body == {"template": "no_list", "parameters": {}}
    assert item.effect is not None
    assert item.effect["with"] == 1.0


def test_a_guard_that_would_mend_none_of_the_replies_is_not_proposed(store: Store, host: Store) -> None:
    settings.put(store, settings.APPROVE_INSTRUCTION, "never")
    for number in range(3):
        noted(
            store, f"Question {number}?", "It is the colour red.", "It is the color red.", "use metric units"
        )
    Controller().look(host)
    assert items.active(store) == []
    assert last(store).choice["action"] == Action.TRAIN


def test_a_guard_that_can_only_ask_again_shows_nothing_by_itself(store: Store) -> None:
    item = items.add(
        store,
        ItemKind.GUARD,
        "list",
        {"template": "must_contain", "parameters": {"text": ["fine"]}},
        source=items.TYPED,
        confidence=1.0,
        state=ItemState.PROPOSED,
    )
    assert by_code(guards.judge([item], "All is fine.")) == "All is fine."
    with pytest.raises(NoRehearsal):
        by_code(guards.judge([item], "All is well."))


def test_what_was_said_beside_a_correction_makes_the_rule(store: Store, host: Store) -> None:
    complain(store)
    Controller().look(host)
    (item,) = items.active(store)
    assert (item.kind, item.text) == (ItemKind.INSTRUCTION, "please keep it short")
    assert last(store).inputs["signature"] == TOO_LONG


def test_with_words_and_without_is_one_failure(store: Store, host: Store) -> None:
    complain(store, 1)
    for number in range(2):
        corrected(store, f"Other {number}?", LONG, SHORT)
    Controller().look(host)
    assert last(store).inputs["now"]["failures"] == 3
    assert knobs(store) == ["instruction"]


def test_a_note_that_holds_a_key_is_read_by_nobody(store: Store, host: Store) -> None:
    complain(store, 3, "keep it short, the password is hunter2-Zq81xB")
    Controller().look(host)
    assert items.active(store) == []
    assert "hunter2" not in str(decisions.list_(store))


def test_what_failed_with_a_knob_that_did_not_help_counts_for_the_next(store: Store, host: Store) -> None:
    controller = Controller()
    complain(store)
    controller.look(host)
    (rule,) = items.active(store)
    for number in range(3):
        disliked_with(store, f"Again {number}?", rule.id, "please keep it short")
    controller.look(host)
    controller.look(host)
    assert knobs(store) == ["instruction", "guard"]
    first, second = changes.changes(store)
    assert first.verdicts == {TOO_LONG: Verdict.NOT_HELPED}
    assert second.before.failures == 3


def test_what_is_right_about_the_owner_is_remembered_when_it_is_written_down(
    store: Store, host: Store
) -> None:
    noted(store, "Where do I live?", "I cannot know that.", "You live in Utrecht.", "That is wrong")
    Controller(Rehearsed({ItemKind.MEMORY: "You live in Utrecht, of course."})).look(host)
    (item,) = items.active(store)
    assert (item.kind, item.text) == (ItemKind.MEMORY, "You live in Utrecht.")


def test_a_memory_that_is_not_heeded_is_left_to_the_weights(store: Store, host: Store) -> None:
    controller = Controller(Rehearsed({ItemKind.MEMORY: "I do not know where you live."}))
    for number in range(3):
        corrected(store, "Where do I live?", "I cannot know that.", "You live in Utrecht.")
        controller.look(host)
        if number == 0:
            assert decisions.list_(store) == [], "once is too little for anything but a memory"
    assert items.active(store) == []
    assert (last(store).choice["action"], last(store).choice["knob"]) == (Action.TRAIN, "weights")


def test_a_record_of_what_corrections_alone_had_shown_is_found_under_its_new_name(
    store: Store, host: Store
) -> None:
    complain(store)
    controller = Controller()
    controller.look(host)
    (change,) = changes.changes(store)
    old = {**change.decision.inputs, "signature": "style/too_long/prose", "rules": "control-1"}
    for name in ("said", "stated", "rehearsed"):
        del old[name]
    earlier = decisions.append(store, CONTROL, old, dict(change.decision.choice))
    steering.applied(store, earlier, changes.By.RULE, item=change.item)
    assert [each.signatures for each in changes.changes(store)] == [(TOO_LONG,)] * 2
    assert changes.unlike(store) == [], "it is known as one of other rules"


def test_what_was_taken_back_and_holds_again_cannot_be_brought_back_twice(store: Store, host: Store) -> None:
    controller = Controller()
    complain(store)
    controller.look(host)
    (rule,) = items.active(store)
    for number in range(3):
        disliked_with(store, f"Again {number}?", rule.id, "please keep it short")
    controller.look(host)
    record = last(store)
    assert record.choice["action"] == Action.ROLLBACK
    assert steering.undo(store, record.id).said == f"{rule.id} holds again"
    with pytest.raises(UsageError, match=f"instruction {rule.id} holds already"):
        steering.undo(store, record.id)
    fine(store, "And on?", item=rule.id)
