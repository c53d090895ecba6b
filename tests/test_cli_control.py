"""Decisions on the command line: told, taken back, agreed to, and all of it checked."""

from __future__ import annotations

import json
import re

import pytest

from app.control.step import Controller
from store import adapters, aftercare, artifacts, decisions, forgetting, items, settings, signals
from store.db import Store
from store.home import Home
from store.types import ErrorClass, Scope, SignalKind, UnitUse
from tests import seed
from tests.cli_helpers import Mynah, runner
from tests.people import disliked, disliked_with, faulty, fine

CHEAPER = "since instruction is cheaper and not yet shown not to help"
HELPS = "expected to help 50% of the time, none was tried yet"
SHORTER = "Answer in one or two short sentences."


@pytest.fixture
def mynah(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Mynah:
    return runner(capsys, monkeypatch)


def decide(store: Store) -> str:
    """Three complaints and a fault, and what is decided of them; returns the decision."""
    faulty(store, "Question?", ErrorClass.TIMEOUT)
    for number in range(3):
        disliked(store, f"Question {number}?", hint=SHORTER)
    with Store.open(store.home) as host:
        Controller().look(host)
    return next(each.id for each in decisions.list_(store) if each.kind == "control")


def test_nothing_known_is_said(mynah: Mynah) -> None:
    assert mynah("status").out == "0 replies looked at\nnothing is known that I am bad at\n"
    ran = mynah("decisions")
    assert (ran.code, ran.out, ran.err) == (0, "", "nothing was decided yet\n")


def test_why_tells_what_was_counted_and_what_else_was_possible(mynah: Mynah, store: Store) -> None:
    decision = decide(store)
    item = items.active(store)[0].id
    what = (items.get(store, item).kind, items.get(store, item).body)
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", mynah("why", decision).out)
    assert said.splitlines() == [
        f"decision   {decision}, TIME",
        "about      replies that are too long (prose)",
        "choice     add an instruction",
        "because    3 of 3 replies in 3 conversations failed like this (44% to 100%)",
        "counted    3 of 3 replies failed, in 3 conversations; the true rate is 43.9% to 100.0% (95 %)",
        "excluded   1 timeout: these say nothing about me",
        f"chosen     instruction (cost 2, risk low: every reply reads one line more; {HELPS})",
        f"not chosen guard, {CHEAPER} (cost 3, risk medium: a good reply may be changed; {HELPS})",
        f"not chosen weights, {CHEAPER} (cost 4, risk high: every reply may change; the gate tests it first; {HELPS})",
        f"item       instruction {item} v1, active: {SHORTER}",
        f"applied    {item} holds (SHA-256 {artifacts.of_item(*what)[:12]}), by itself, TIME",
        f"undo       `mynah undo {decision}` switches {item} off",
        "rules      control-2; made again from its record, it comes out the same",
    ]


def test_why_tells_what_came_of_it_and_how_what_was_taken_back_holds_again(
    mynah: Mynah, store: Store
) -> None:
    decision = decide(store)
    item = items.active(store)[0].id
    for number in range(7):
        disliked_with(store, f"More {number}?", item, SHORTER)
    with Store.open(store.home) as host:
        Controller().look(host)
    said = mynah("why", decision).out
    assert (
        "outcome    it did not help against replies that are too long (prose): before 3 of 3 failed (44% to 100%), "
        in said
    )
    assert "with it 7 of 7 failed (65% to 100%)" in said
    assert "undo       it does not hold any more" in said
    rollback = next(each.id for each in decisions.list_(store) if each.choice["action"] == "rollback")
    told = mynah("why", rollback).out
    assert f"choice     take back the instruction of decision {decision}" in told
    assert "before it  3 of 3 failed (44% to 100%)" in told
    assert f"undo       `mynah undo {rollback}` lets what {decision} had changed hold again" in told
    assert mynah("undo", rollback).code == 0
    assert [each.id for each in items.active(store)] == [item]
    listed = [each["kind"] for each in json.loads(mynah("decisions", "--json").out)]
    assert listed == ["control", "control"]
    everything = [each["kind"] for each in json.loads(mynah("decisions", "--all", "--json").out)]
    assert everything == ["undone", "control", "outcome", "applied", "control"]
    (applied,) = (each.id for each in decisions.list_(store) if each.kind == "applied")
    assert f"belongs to {decision}: " in mynah("why", applied).out
    assert f"`mynah undo {decision}` takes that back" in mynah("undo", applied).err


def test_why_tells_of_a_version_that_was_taken_back(mynah: Mynah, store: Store) -> None:
    for number in range(20):
        signals.record(store, fine(store, f"Fine {number}?"), SignalKind.THUMB, value=1.0)
    unit = seed.corrected(store, "Why?", "Because it is so.", "Because.")
    made = seed.adapter(store, b"one", [(unit, UnitUse.TRAINED)])
    adapters.publish(store, made.id, {"passed": True, "summary": "all seven checks"})
    for number in range(20):
        signals.record(store, fine(store, f"Bad {number}?", adapter=made.id), SignalKind.THUMB, value=-1.0)
    assert len(aftercare.look(store)) == 1
    record = decisions.list_(store)[0]
    said = mynah("why", record.id).out.splitlines()
    assert f"about      v1 (adapter {made.id})" in said
    assert "counted    you objected to 6 of its 6 replies (61% to 100%); usual is 9%" in said
    assert "gate       v1 passed: all seven checks" in said
    assert f"undo       `mynah undo {record.id}` lets v1 answer again" in said


def test_status_tells_of_itself(mynah: Mynah, store: Store) -> None:
    decision = decide(store)
    said = mynah("status").out
    assert said.splitlines() == [
        "3 replies looked at",
        "not counted, since they say nothing about me: 1 timeout",
        "what I am bad at",
        "  replies that are too long (prose): 3 of 3 replies failed (44% to 100%), in 3 conversations",
        f"    trying instruction ({decision})",
        "what I have tried",
        f"  {decision}  instruction against replies that are too long (prose): being tried",
        f"    “{SHORTER}”",
    ]
    told = json.loads(mynah("status", "--json").out)
    assert told["bad_at"][0]["signature"] == "rule/too_long/prose"
    assert told["tried"][0]["stage"] == "trying"


def test_undo_takes_it_back(mynah: Mynah, store: Store) -> None:
    decision = decide(store)
    item = items.active(store)[0].id
    ran = mynah("undo", decision)
    assert (ran.code, ran.out) == (0, f"instruction {item} is off\n")
    assert items.active(store) == []
    again = mynah("undo", decision)
    assert (again.code, again.err) == (2, f"mynah: decision {decision} was taken back already\n")


def test_what_waits_is_approved_or_declined(mynah: Mynah, store: Store) -> None:
    settings.put(store, settings.APPROVE_INSTRUCTION, "ask")
    decision = decide(store)
    assert f"waits for your word ({decision})" in mynah("status").out
    ran = mynah("approve", decision)
    assert (ran.code, ran.out) == (
        0,
        f"instruction {items.active(store)[0].id} holds from the next reply on\n",
    )
    refused = mynah("decline", decision)
    assert refused.code == 2
    assert "does not wait for your word any more: it is trying" in refused.err


def test_declined(mynah: Mynah, store: Store) -> None:
    settings.put(store, settings.APPROVE_INSTRUCTION, "ask")
    decision = decide(store)
    assert mynah("decline", decision).out == "it will not be done, nor proposed again\n"
    assert f"    you declined instruction ({decision})" in mynah("status").out
    assert "undo       that was done already" in mynah("why", decision).out
    assert items.active(store) == []


def test_freeze_and_thaw(mynah: Mynah, store: Store) -> None:
    assert json.loads(mynah("freeze", "--json").out) == {"frozen": True}
    assert mynah("status").out.startswith("frozen: nothing is changed by itself")
    assert mynah("freeze", "--off").out == "changes are made again\n"
    assert [each.choice["action"] for each in decisions.list_(store)] == ["thaw", "freeze"]


def test_a_request_to_forget_is_told_among_the_decisions(mynah: Mynah, store: Store) -> None:
    conversation, _, _ = seed.say(store, "Question?", "Answer.")
    forgetting.request(store, Scope.CONVERSATION, conversation)
    listed = mynah("decisions").out
    assert "None" not in listed
    assert "  forget  " in listed


def test_a_sound_log_is_told_from_one_that_was_changed(mynah: Mynah, store: Store) -> None:
    decision = decide(store)
    ran = mynah("decisions", "--verify")
    assert ran.code == 0
    assert ran.out.startswith("sound")
    store.conn.execute("DROP TRIGGER decisions_append_only")
    store.conn.execute("UPDATE decisions SET choice = '{}' WHERE id = ?", (decision,))
    ran = mynah("decisions", "--verify", "--json")
    assert (ran.code, json.loads(ran.out)) == (1, {"sound": False, "fault": decision})


def test_no_such_decision(mynah: Mynah) -> None:
    ran = mynah("why", "dnone")
    assert (ran.code, ran.err) == (3, "mynah: no decision has the id 'dnone'\n")
