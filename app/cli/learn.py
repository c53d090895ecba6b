"""`mynah learn`: start a learning run, follow it, hold learning off, and read what came of earlier runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from app.cli.changes import changes
from app.cli.output import emit, json_option, say, short_time, table
from app.cli.session import service
from app.service import LearningStatus
from store.runs import Run
from store.types import RunOutcome, RunState
from store.units import Unit


@click.group()
def learn() -> None:
    """Learning: start it, see what waits, pause it, its history."""


learn.add_command(changes)


@learn.command()
@click.option("--wait", is_flag=True, help="Wait until the run ends, and print what came of it.")
@json_option
def now(wait: bool, as_json: bool) -> None:
    """Start a learning run."""
    mynah = service()
    run = mynah.learn_now()
    if wait and not run.state.finished:
        run = mynah.wait(run.id, Narrator().tell)
    if run.state.finished:
        emit(run.result, as_json, lambda: _outcome(run))
        return
    emit(
        {"run": run.id, "state": run.state},
        as_json,
        lambda: [f"run {run.id} is {run.state}: `mynah learn status` shows how far it is"],
    )


class Narrator:
    """Tells of a run's progress: each step, and each tenth of the way."""

    def __init__(self) -> None:
        self._told: tuple[RunState, int] | None = None

    def tell(self, run: Run) -> None:
        """Say how far a run is, if that is news."""
        reached = (run.state, int(run.fraction * 10))
        if run.state.finished or reached == self._told:
            return
        self._told = reached
        say(f"{run.state:<10} {run.fraction:4.0%}  {run.note}".rstrip())


def _outcome(run: Run) -> Iterator[str]:
    result = run.result
    if run.outcome is RunOutcome.NOTHING_TO_LEARN:
        yield "nothing to learn"
    else:
        live = run.outcome is RunOutcome.PROMOTED
        yield f"{result['adapter']} is live" if live else "the gate refused it: nothing has changed"
        used, held_out = len(result["used"]), len(result["held_out"])
        yield f"learned from {used}, tested on {held_out}, in {result['seconds']:.0f} s"
        yield from (f"  {line}" for line in gate_lines(result["gate"]))
    for skipped in result["skipped"]:
        yield f"not used: {skipped['unit']}: {skipped['reason']}"


def gate_lines(gate: dict[str, Any]) -> Iterator[str]:
    """A gate report for people, one check a line; the numbers behind it are in the JSON."""
    checks = gate.get("checks", [])
    for check in checks:
        verdict = "passed" if check["passed"] else "FAILED"
        yield f"{verdict}  {check['name']}: {check['detail']}"
    if not checks and gate.get("summary"):
        yield str(gate["summary"])


@learn.command()
@json_option
def status(as_json: bool) -> None:
    """Show what waits to be learned, what is refused and why, and the run under way."""
    state = service().learning()
    data = {
        "paused": state.paused,
        "asks": state.asks,
        "needed": state.needed,
        "new": len(state.waiting) - state.old,
        "waiting": [_unit(unit) for unit in state.waiting],
        "refused": [_unit(unit) for unit in state.refused],
        "run": None if state.run is None else _run(state.run),
        "last": None if state.last is None else _run(state.last),
        "usual_seconds": state.usual,
    }
    emit(data, as_json, lambda: _status_lines(state))


def _status_lines(state: LearningStatus) -> Iterator[str]:
    if state.paused:
        yield "learning is paused" if state.asks is None else f"learning has stopped: {state.asks}"
    if state.run is not None:
        yield f"run {state.run.id}: {state.run.state}, {state.run.fraction:.0%} {state.run.note}".rstrip()
    yield _waiting(state)
    yield from (f"  {unit.id}  {unit.kind}  of message {unit.message}" for unit in state.waiting)
    yield from (f"not used: {unit.id}  of message {unit.message}: {unit.reason}" for unit in state.refused)
    if state.last is not None:
        yield f"last run: {state.last.outcome}, {short_time(state.last.finished)}"
    if state.usual is not None:
        yield f"a run takes about {state.usual:.0f} s"


def _waiting(state: LearningStatus) -> str:
    """How many lessons wait, and how many more start a run: those that one has tried in vain start none."""
    new = len(state.waiting) - state.old
    said = f"{len(state.waiting)} waiting"
    if state.old:
        said += f", {new or 'none'} of them new"
    if not state.needed or state.paused:
        return said
    more = "more" if not state.old else "more new ones" if new else "new ones"
    return f"{said}; {state.needed} {more} start a run by themselves"


@learn.command()
@json_option
def pause(as_json: bool) -> None:
    """Start no more runs; one under way goes on to its end."""
    service().pause_learning(True)
    emit({"paused": True}, as_json, lambda: ["learning is paused; `mynah learn resume` takes it up again"])


@learn.command()
@json_option
def resume(as_json: bool) -> None:
    """Let runs start again."""
    service().pause_learning(False)
    emit({"paused": False}, as_json, lambda: ["learning goes on"])


@learn.command()
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@json_option
def history(limit: int, as_json: bool) -> None:
    """List the runs, newest first."""
    found = service().runs(limit + 1)
    shown = found[:limit]
    emit(
        [_run(run) for run in shown],
        as_json,
        lambda: table(
            ("run", "asked for", "by", "outcome", "adapter", "learned", "seconds"),
            [
                (
                    run.id,
                    short_time(run.created),
                    run.trigger,
                    run.outcome or run.state,
                    run.result.get("adapter"),
                    len(run.result.get("used", [])),
                    _seconds(run),
                )
                for run in shown
            ],
        ),
    )
    if not found:
        say("there was no run yet")
    if len(found) > limit:
        say(f"(there are more: --limit {2 * limit})")


def _seconds(run: Run) -> str | None:
    seconds = run.result.get("seconds")
    return None if seconds is None else f"{seconds:.0f}"


def _unit(unit: Unit) -> dict[str, Any]:
    return {
        "unit": unit.id,
        "message": unit.message,
        "kind": unit.kind,
        "state": unit.state,
        "reason": unit.reason,
    }


def _run(run: Run) -> dict[str, Any]:
    return {
        "id": run.id,
        "trigger": run.trigger,
        "state": run.state,
        "outcome": run.outcome,
        "created": run.created,
        "started": run.started,
        "finished": run.finished,
        "fraction": run.fraction,
        "note": run.note,
        "error": run.error,
        "result": run.result,
    }
