"""When a run is asked for, and how the learner's process is looked after. The learner here is a one-line script."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from app.host.client import holder
from app.host.supervisor import Backoff, Facts, Supervisor, due, gather
from store import adapters, conversations, forgetting, runs, settings, textindex
from store.db import Store
from store.home import Home
from store.types import ForgetState, RunOutcome, Scope, Trigger, UnitUse
from tests.scripted import SOURCE
from tests.seed import adapter, corrected, say

QUIET = Facts(
    paused=False,
    open_runs=0,
    news=True,
    fresh=0,
    min_units=4,
    unjudged=0,
    makes_a_run=True,
    quiet=1000.0,
    quiet_needed=120.0,
    settled=1000.0,
)
BUSY = 0.0

LEARNER = f"""
import sys, time
sys.path.insert(0, {str(SOURCE)!r})
from store.home import Home, locked
home = Home.default()
with locked(home.learner_lock, "learner"):
    (home.root / "started").open("a").write("x")
    time.sleep(60)
"""


def facts(**changes: Any) -> Facts:
    return replace(QUIET, **changes)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (facts(), None),
        (facts(fresh=4, quiet=BUSY), Trigger.ENOUGH_UNITS),
        (facts(fresh=4, quiet=BUSY, settled=44.0), None),
        (facts(fresh=3, quiet=BUSY), None),
        (facts(fresh=1), Trigger.IDLE),
        (facts(fresh=1, makes_a_run=False), None),
        (facts(fresh=1, min_units=1, makes_a_run=False), None),
        (facts(fresh=1, makes_a_run=False, unjudged=1), Trigger.IDLE),
        (facts(fresh=1, quiet=119.0), None),
        (facts(unjudged=1), Trigger.IDLE),
        (facts(unjudged=1, quiet=BUSY), None),
        (facts(fresh=9, paused=True), None),
        (facts(fresh=9, open_runs=1), None),
        (facts(fresh=0, min_units=0, quiet=BUSY), None),
        (facts(fresh=9, news=False), None),
        (facts(unjudged=1, news=False), None),
    ],
)
def test_when_a_run_is_due(given: Facts, expected: Trigger | None) -> None:
    assert due(given) is expected


def test_facts_come_from_the_store(home: Home) -> None:
    with Store.open(home) as store:
        corrected(store, "q1", "a1", "better")
        conversation, _, reply = say(store, "q2", "a2")
        conversations.append_user(store, conversation, "no, I meant", reply)
        found = gather(store, 7.0)
        assert (found.fresh, found.unjudged, found.open_runs, found.quiet) == (1, 1, 0, 7.0)
        assert not found.makes_a_run
        unit = corrected(store, "q3", "a3", "better")
        assert gather(store, 7.0).makes_a_run
        adapters.publish(store, adapter(store, b"v1", [(unit, UnitUse.HELD_OUT)]).id, {"passed": True})
        assert gather(store, 7.0).makes_a_run, "one is enough where another is there to test on"
        assert 0.0 <= found.settled < 3600.0
        runs.request(store, Trigger.MANUAL)
        settings.put(store, settings.LEARNING_PAUSED, True)
        found = gather(store, 7.0)
        assert (found.open_runs, found.paused) == (1, True)


def test_a_run_that_changed_nothing_is_not_asked_for_again(home: Home) -> None:
    with Store.open(home) as store:
        unit = corrected(store, "q1", "a1", "better")
        corrected(store, "q1 once more", "a1", "better")
        for end in (
            lambda run: runs.finish(store, run, RunOutcome.NOTHING_TO_LEARN, {}),
            lambda run: runs.fail(store, run, "no room"),
        ):
            assert due(gather(store, 1000.0)) is Trigger.IDLE
            run = runs.request(store, Trigger.IDLE)
            assert runs.claim(store, 1) is not None
            end(run.id)
            assert due(gather(store, 1000.0)) is None
            conversations.append_user(store, unit.conversation, "and then?", unit.message)


def test_waits_grow_and_are_forgotten() -> None:
    backoff = Backoff()
    assert backoff.over(0.0)
    waits = []
    for _ in range(12):
        backoff.died(0.0)
        waits.append(next(second for second in range(1000) if backoff.over(float(second))))
    assert waits[:4] == [2, 4, 8, 16]
    assert waits[-1] == 300
    backoff.ended()
    assert backoff.over(0.0)


@pytest.fixture
def looked_after(home: Home) -> Iterator[tuple[Supervisor, Store]]:
    made = Supervisor(home, lambda: BUSY, (sys.executable, "-c", LEARNER))
    with Store.open(home) as store:
        yield made, store
        made.close()


def started(home: Home) -> int:
    mark = home.root / "started"
    return len(mark.read_text()) if mark.exists() else 0


def eventually(condition: object) -> None:
    assert callable(condition)
    deadline = time.monotonic() + 120.0
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def test_nothing_to_do_starts_nothing(home: Home, looked_after: tuple[Supervisor, Store]) -> None:
    supervisor, store = looked_after
    supervisor.look(store)
    assert supervisor.learner_pid is None


def test_enough_units_ask_for_a_run_and_start_a_learner(
    home: Home, looked_after: tuple[Supervisor, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    supervisor, store = looked_after
    for index in range(4):
        corrected(store, f"q{index}", f"a{index}", f"better {index}")
    supervisor.look(store)
    assert runs.open_(store) == []
    monkeypatch.setattr("app.host.supervisor.SETTLE_SECONDS", 0.0)
    supervisor.look(store)
    [run] = runs.open_(store)
    assert run.trigger is Trigger.ENOUGH_UNITS
    eventually(lambda: started(home) == 1)
    pid = supervisor.learner_pid
    assert pid is not None
    supervisor.look(store)
    assert supervisor.learner_pid == pid
    supervisor.close()
    assert supervisor.learner_pid is None
    assert not psutil.pid_exists(pid)
    assert [run.id for run in runs.open_(store)] == [run.id]


def test_dead_learner_is_started_again_after_a_wait(
    home: Home, looked_after: tuple[Supervisor, Store]
) -> None:
    supervisor, store = looked_after
    runs.request(store, Trigger.MANUAL)
    supervisor.look(store)
    eventually(lambda: started(home) == 1)
    pid = supervisor.learner_pid
    assert pid is not None
    os.kill(pid, 9)
    eventually(lambda: supervisor.learner_pid is None)
    supervisor.look(store)
    assert supervisor.learner_pid is None
    time.sleep(2.1)
    supervisor.look(store)
    eventually(lambda: started(home) == 2)


def test_paused_learning_starts_no_learner(home: Home, looked_after: tuple[Supervisor, Store]) -> None:
    supervisor, store = looked_after
    settings.put(store, settings.LEARNING_PAUSED, True)
    runs.request(store, Trigger.MANUAL)
    supervisor.look(store)
    assert supervisor.learner_pid is None


def test_learner_of_a_dead_host_is_kept_and_ended_with_the_new_one(
    home: Home, looked_after: tuple[Supervisor, Store]
) -> None:
    first, store = looked_after
    runs.request(store, Trigger.MANUAL)
    first.look(store)
    eventually(lambda: holder(home.learner_lock) is not None)
    second = Supervisor(home, lambda: BUSY, (sys.executable, "-c", LEARNER))
    pid = second.learner_pid
    assert pid == first.learner_pid
    second.look(store)
    assert started(home) == 1
    second.close()
    eventually(lambda: holder(home.learner_lock) is None)


def test_what_the_learner_says_goes_to_its_log(home: Home) -> None:
    supervisor = Supervisor(home, lambda: BUSY, (sys.executable, "-c", "print('native noise')"))
    with Store.open(home) as store:
        run = runs.request(store, Trigger.MANUAL)
        supervisor.look(store)
        log: Path = home.logs / "learner.log"
        eventually(lambda: log.exists() and "native noise" in log.read_text())
        runs.finish(store, run.id, RunOutcome.NOTHING_TO_LEARN, {})
        eventually(lambda: supervisor.learner_pid is None)
        supervisor.look(store)
    supervisor.close()


def test_a_request_to_forget_that_was_broken_off_is_carried_on(
    home: Home, looked_after: tuple[Supervisor, Store]
) -> None:
    supervisor, store = looked_after
    conversation, _, _ = say(store, "a question", "a reply")
    asked = forgetting.request(store, Scope.CONVERSATION, conversation)
    supervisor.look(store)
    assert forgetting.get(store, asked.id).state is ForgetState.PURGED
    assert supervisor.learner_pid is None


def test_the_index_is_tidied_when_nobody_asks_anything(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = BUSY
    supervisor = Supervisor(home, lambda: quiet, (sys.executable, "-c", LEARNER))
    monkeypatch.setattr(textindex, "MANY_SEGMENTS", 3)
    monkeypatch.setattr(textindex, "_PAGES_AT_ONCE", 1)
    with Store.open(home) as store:
        for number in range(30):
            say(store, f"a question {number}", "a reply")

        def pieces() -> list[int]:
            return [textindex._segments(store.conn, table) for table in textindex.TABLES]

        before = pieces()
        supervisor.look(store)
        assert pieces() == before
        quiet = 1000.0
        for _ in range(200):
            supervisor.look(store)
        assert sum(pieces()) < sum(before)
        # And then it is left alone.
        changes = store.conn.total_changes
        supervisor.look(store)
        assert store.conn.total_changes == changes
