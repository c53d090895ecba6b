"""`mynah status`, `decisions`, `why`, `undo`, `approve`, `decline`, `freeze`: what Mynah decides about itself.

Everything printed is counted or recorded. The reasons are those that the rules gave when they decided, not ones that
were found afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from app.cli import reasons
from app.cli.output import emit, json_option, say, short_time, table
from app.cli.session import Kind, full_id, service
from store.decisions import Decision
from store.selfview import CAME_OF, SelfView, Told, Trial
from store.steering import Done

_decision = click.argument("decision", metavar="ID")


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Tell what Mynah is bad at, what it is trying, and whether that worked."""
    view = service().self_view()
    emit(_view(view), as_json, lambda: _view_lines(view))


@click.command()
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many at most.")
@click.option(
    "--verify", is_flag=True, help="Check that no record was changed, and make every decision again."
)
@click.option(
    "--all", "everything", is_flag=True, help="Also what followed: applied, outcome, undone, declined."
)
@json_option
def decisions(limit: int, verify: bool, everything: bool, as_json: bool) -> None:
    """List what was decided, newest first."""
    mynah = service()
    if verify:
        fault = mynah.log_fault()
        emit({"sound": fault is None, "fault": fault}, as_json, lambda: [_verified(fault)])
        click.get_current_context().exit(0 if fault is None else 1)
    found = mynah.decisions(limit + 1, without=() if everything else reasons.FOLLOWS)
    shown = found[:limit]
    emit(
        [_record(each) for each in shown],
        as_json,
        lambda: table(
            ("decision", "when", "what", "about", "why"),
            [
                (
                    each.id,
                    short_time(each.created),
                    reasons.action(each.choice),
                    reasons.about(each),
                    _short(each.choice.get("why") or each.choice.get("reason")),
                )
                for each in shown
            ],
        ),
    )
    if not found:
        say("nothing was decided yet")
    if len(found) > limit:
        say(f"(there are more: --limit {2 * limit})")


@click.command()
@_decision
@json_option
def why(decision: str, as_json: bool) -> None:
    """Tell why the decision ID was made: what was counted, what else was possible, what came of it."""
    mynah = service()
    told = mynah.why(full_id(mynah, Kind.DECISION, decision))
    emit(_told(told), as_json, lambda: reasons.lines(told))


@click.command()
@_decision
@json_option
def undo(decision: str, as_json: bool) -> None:
    """Take the decision ID back: what held before it holds again."""
    mynah = service()
    _done(mynah.undo(full_id(mynah, Kind.DECISION, decision)), as_json)


@click.command()
@_decision
@json_option
def approve(decision: str, as_json: bool) -> None:
    """Carry out the decision ID, which waits for your word."""
    mynah = service()
    _done(mynah.approve(full_id(mynah, Kind.DECISION, decision)), as_json)


@click.command()
@_decision
@json_option
def decline(decision: str, as_json: bool) -> None:
    """Say no to the decision ID, which waits for your word."""
    mynah = service()
    _done(mynah.decline(full_id(mynah, Kind.DECISION, decision)), as_json)


@click.command()
@click.option("--off", is_flag=True, help="Let changes be made again.")
@json_option
def freeze(off: bool, as_json: bool) -> None:
    """Let nothing be changed by itself; what holds, holds on, and `mynah learn now` still learns."""
    service().freeze(not off)
    said = "changes are made again" if off else "frozen; `mynah freeze --off` lets changes be made again"
    emit({"frozen": not off}, as_json, lambda: [said])


def _done(done: Done, as_json: bool) -> None:
    emit({"decision": done.decision, "done": done.said}, as_json, lambda: [done.said])


def _verified(fault: str | None) -> str:
    if fault is None:
        return "sound: no record was changed, and every decision comes out the same when it is made again"
    return f"record {fault} was changed, or does not follow from its inputs"


def _view_lines(view: SelfView) -> Iterator[str]:
    if view.frozen:
        yield "frozen: nothing is changed by itself (`mynah freeze --off`)"
    yield f"{view.steps} replies looked at"
    if view.excluded:
        yield f"not counted, since they say nothing about me: {reasons.excluded(view.excluded)}"
    yield "what I am bad at" if view.weaknesses else "nothing is known that I am bad at"
    for weak in view.weaknesses:
        low, high = weak.count.interval
        yield (
            f"  {weak.what}: {weak.count.failures} of {weak.count.steps} replies failed ({low:.0%} to {high:.0%}), "
            f"in {weak.count.conversations} conversation{'' if weak.count.conversations == 1 else 's'}"
        )
        yield f"    {weak.plan}"
    if view.trials:
        yield "what I have tried"
    for trial in view.trials:
        yield f"  {trial.decision}  {trial.knob} against {trial.what}: {_came_of(trial)}"
        if trial.says is not None:
            yield f"    “{trial.says}”"
    if view.calibration:
        yield "how well I foresee what helps"
    for each in view.calibration:
        yield (
            f"  {each.knob}: expected to help {each.expected:.0%} of the time, "
            f"{round(each.helped * each.trials)} of {each.trials} did"
        )
    if view.resting:
        yield f"resting after changes that went wrong: {', '.join(view.resting)}"


def _came_of(trial: Trial) -> str:
    said = CAME_OF[trial.stage]
    if trial.before is None or trial.after is None:
        return said
    return f"{said}: before {reasons.rate(trial.before)}, with it {reasons.rate(trial.after)}"


def _short(text: object) -> str:
    flat = " ".join(str(text or "").split())
    return flat if len(flat) <= 70 else f"{flat[:69]}…"


def _record(record: Decision) -> dict[str, Any]:
    return {
        "id": record.id,
        "created": record.created,
        "kind": record.kind,
        "inputs": record.inputs,
        "choice": record.choice,
        "hash": record.hash,
    }


def _told(told: Told) -> dict[str, Any]:
    return _record(told.decision) | {
        "item": None if told.item is None else told.item.id,
        "following": [_record(each) for each in told.following],
        "same_when_made_again": told.remade,
        "fault": told.fault,
    }


def _view(view: SelfView) -> dict[str, Any]:
    return {
        "steps": view.steps,
        "excluded": view.excluded,
        "bad_at": [
            {"signature": each.signature, "what": each.what, **each.count.as_dict(), "plan": each.plan}
            for each in view.weaknesses
        ],
        "tried": [asdict(trial) for trial in view.trials],
        "waiting": [trial.decision for trial in view.waiting],
        "calibration": [asdict(each) for each in view.calibration],
        "frozen": view.frozen,
        "resting": view.resting,
    }
