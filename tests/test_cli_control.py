"""Decisions on the command line: told, taken back, agreed to, and all of it checked."""

from __future__ import annotations

import json
import re

import pytest

from app.control.step import Controller
from store import decisions, items, settings
from store.db import Store
from store.home import Home
from store.types import ErrorClass
from tests.cli_helpers import Mynah, runner
from tests.people import disliked, faulty

CHEAPER = "helps 50% of the time; not: instruction is cheaper and not yet shown not to help"
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
    said = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "TIME", mynah("why", decision).out)
    assert said.splitlines() == [
        f"decision  {decision}, TIME, control",
        "about     rule/too_long/prose",
        "choice    propose instruction",
        "because   3 of 3 replies in 3 conversations failed like this (44% to 100%)",
        "counted   3 of 3 replies in 3 conversations, 43.9% to 100.0% at 95 %",
        "excluded  1 timeout",
        "possible  instruction, cost 2, low: every reply reads one line more; helps 50% of the time; chosen",
        f"possible  guard, cost 3, medium: a good reply may be changed; {CHEAPER}",
        f"possible  weights, cost 4, high: every reply may change; the gate tests it first; {CHEAPER}",
        f"item      instruction {item} v1, active: {SHORTER}",
        f"applied   apply {item} by rule, TIME",
        f"undo      `mynah undo {decision}` switches {item} off",
        "rules     control-1; it comes out the same when it is made again",
    ]


def test_status_tells_of_itself(mynah: Mynah, store: Store) -> None:
    decision = decide(store)
    said = mynah("status").out
    assert said.splitlines() == [
        "3 replies looked at; not counted: 1 timeout",
        "what I am bad at",
        "  replies are too long (prose): 3 of 3 (44% to 100%), 3 conversations",
        f"    trying instruction ({decision})",
        "what I have tried",
        f"  {decision}  instruction for replies are too long (prose): trying",
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
    assert items.active(store) == []


def test_freeze_and_thaw(mynah: Mynah, store: Store) -> None:
    assert json.loads(mynah("freeze", "--json").out) == {"frozen": True}
    assert mynah("status").out.startswith("frozen: nothing is changed by itself")
    assert mynah("freeze", "--off").out == "changes are made again\n"
    assert [each.choice["action"] for each in decisions.list_(store)] == ["thaw", "freeze"]


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
