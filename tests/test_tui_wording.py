"""What the status line and the meta line say. Pure functions, no screen."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from app.service import LearningStatus, Snapshot
from app.tui import wording
from app.tui.wording import Speed
from store.adapters import Serving
from store.runs import Run
from store.types import RunOutcome, RunState, Trigger

HOST = {"model": "SmolLM2-135M-Instruct", "context": 4096}


def status(**changes: object) -> LearningStatus:
    values = {"paused": False, "waiting": [], "refused": [], "needed": 4, "run": None, "last": None}
    return LearningStatus(**{**values, **changes})  # type: ignore[arg-type]


def run(state: RunState, fraction: float = 0.0, outcome: RunOutcome | None = None, **result: object) -> Run:
    return Run(
        "r1", Trigger.MANUAL, state, outcome, "", None, None, None, 1, fraction, "", dict(result), None
    )


def line(learning: LearningStatus, width: int) -> str:
    snapshot = Snapshot(Serving(None, 1.0, None), learning, HOST, 1)
    return wording.status_line(snapshot, "SmolLM2-135M-Instruct", Speed(41.0, 512), width).plain


def test_everything_is_said_where_there_is_room() -> None:
    text = line(status(), 100)
    assert text.startswith("SmolLM2-135M-Instruct · base · 41 tok/s · context 12%")
    assert text.endswith("nothing to learn")
    assert len(text) == 100


@pytest.mark.parametrize("width", range(30, 120))
def test_it_never_runs_over_and_keeps_version_and_learner(width: int) -> None:
    text = line(status(), width)
    assert len(text) <= width
    assert "base" in text
    assert "nothing to learn" in text


@pytest.mark.parametrize(
    ("learning", "words"),
    [
        (status(run=run(RunState.QUEUED)), "learning starts"),
        (status(run=run(RunState.TRAINING, 0.4)), "training 40%"),
        (status(run=run(RunState.GATING, 0.9)), "testing the new version 90%"),
        (status(paused=True), "learning paused"),
        (status(waiting=[None] * 3, needed=1), "3 waiting, 1 to go"),
        (status(waiting=[None] * 4, needed=0), "4 waiting"),
        (status(waiting=[None] * 5, needed=4, old=5), "5 waiting, 4 new to go"),
        (status(paused=True, waiting=[None]), "learning paused, 1 waiting"),
    ],
)
def test_the_learner_in_words(learning: LearningStatus, words: str) -> None:
    assert words in line(learning, 100)


def test_how_a_run_ended() -> None:
    assert wording.run_ended(run(RunState.DONE, 1.0, RunOutcome.PROMOTED)) is None
    refused = wording.run_ended(run(RunState.DONE, 1.0, RunOutcome.REJECTED, gate={"summary": "it loops"}))
    assert refused is not None
    assert "it loops" in refused
    nothing = wording.run_ended(
        run(RunState.DONE, 1.0, RunOutcome.NOTHING_TO_LEARN, skipped=[{"unit": "u1", "reason": "too few"}])
    )
    assert nothing is not None
    assert "too few" in nothing
    unasked = replace(run(RunState.DONE, 1.0, RunOutcome.NOTHING_TO_LEARN), trigger=Trigger.IDLE)
    assert wording.run_ended(unasked) is None, "nobody waits for it"
    failed = wording.run_ended(run(RunState.FAILED, 0.0, RunOutcome.FAILED))
    assert failed is not None
    assert "failed" in failed


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=5), "now"),
        (timedelta(minutes=3), "3 min"),
        (timedelta(hours=2, minutes=50), "2 h"),
        (timedelta(days=4), "4 d"),
    ],
)
def test_how_long_ago(age: timedelta, words: str) -> None:
    now = datetime(2026, 5, 1, tzinfo=UTC)
    assert wording.ago((now - age).isoformat(), now) == words
    assert wording.ago("no time at all") == ""
