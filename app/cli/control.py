"""`mynah status`, `decisions`, `why`, `undo`, `approve`, `decline`, `freeze`: what Mynah decides about itself.

Everything printed is counted or recorded. The reasons are those that the rules gave when they decided, not ones that
were found afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from app.cli.output import emit, json_option, say, short_time, table
from app.cli.session import Kind, full_id, service
from store.changes import Change
from store.control import RULES
from store.decisions import Decision
from store.selfview import SelfView, Told, Trial
from store.steering import Done

_AGAIN = {
    True: "it comes out the same when it is made again",
    False: "it does NOT follow from its inputs",
    None: "part of its inputs was forgotten",
}

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
@json_option
def decisions(limit: int, verify: bool, as_json: bool) -> None:
    """List what was decided, newest first."""
    mynah = service()
    if verify:
        fault = mynah.log_fault()
        emit({"sound": fault is None, "fault": fault}, as_json, lambda: [_verified(fault)])
        click.get_current_context().exit(0 if fault is None else 1)
    found = mynah.decisions(limit + 1)
    shown = found[:limit]
    emit(
        [_record(each) for each in shown],
        as_json,
        lambda: table(
            ("decision", "when", "kind", "action", "about", "why"),
            [
                (
                    each.id,
                    short_time(each.created),
                    each.kind,
                    each.choice.get("action"),
                    _about(each),
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
    emit(_told(told), as_json, lambda: _why_lines(told))


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
    yield f"{view.steps} replies looked at" + _excluded(view.excluded)
    yield "what I am bad at" if view.weaknesses else "nothing is known that I am bad at"
    for weak in view.weaknesses:
        low, high = weak.count.interval
        yield (
            f"  {weak.what}: {weak.count.failures} of {weak.count.steps} ({low:.0%} to {high:.0%}), "
            f"{weak.count.conversations} conversations"
        )
        yield f"    {weak.plan}"
    if view.trials:
        yield "what I have tried"
    for trial in view.trials:
        yield f"  {trial.decision}  {trial.knob} for {trial.what}: {_came_of(trial)}"
    for each in view.calibration:
        yield (
            f"  {each.knob}: expected to help {each.expected:.0%} of the time, helped {each.helped:.0%} "
            f"of {each.trials}"
        )
    if view.resting:
        yield f"resting after changes that went wrong: {', '.join(view.resting)}"


def _came_of(trial: Trial) -> str:
    if trial.before is None or trial.after is None:
        return str(trial.stage).replace("_", " ")
    return f"{trial.stage} ({_rate(trial.before)} before, {_rate(trial.after)} with it)"


def _rate(count: dict[str, Any]) -> str:
    return f"{count['failures']:.0f} of {count['steps']:.0f}"


def _excluded(excluded: dict[str, int]) -> str:
    if not excluded:
        return ""
    return "; not counted: " + ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in excluded.items())


def _why_lines(told: Told) -> Iterator[str]:
    record = told.decision
    inputs, choice = record.inputs, record.choice
    yield f"decision  {record.id}, {short_time(record.created)}, {record.kind}"
    if about := _about(record):
        yield f"about     {about}"
    yield f"choice    {_choice(choice)}"
    if reason := choice.get("why") or choice.get("reason"):
        yield f"because   {reason}"
    yield from _counted(inputs)
    for each in choice.get("candidates", []):
        verdict = "chosen" if each["why_not"] is None else f"not: {each['why_not']}"
        yield (
            f"possible  {each['knob']}, cost {each['cost']}, {each['risk']}; helps {each['confidence']:.0%} "
            f"of the time; {verdict}"
        )
    for unit, reason in choice.get("held", {}).items():
        yield f"left out  {unit}: {reason}"
    if gate := inputs.get("gate"):
        yield f"gate      {gate.get('summary') or ('passed' if gate.get('passed') else 'not passed')}"
    if told.item is not None:
        yield f"item      {told.item.kind} {told.item.id} v{told.item.version}, {told.item.state}: {told.item.text}"
    yield from (_followed(each) for each in told.following)
    if told.change is not None and (target := _rollback(told.change)):
        yield f"undo      `mynah undo {record.id}` {target}"
    if rules := inputs.get("rules"):
        yield f"rules     {rules}; {_AGAIN[told.remade]}"
        if rules != RULES:
            yield f"          (the rules are {RULES} by now)"
    if told.fault is not None:
        yield f"FAULT     record {told.fault} of the log was changed after it was written"


def _counted(inputs: dict[str, Any]) -> Iterator[str]:
    if now := inputs.get("now"):
        yield (
            f"counted   {now['failures']} of {now['steps']} replies in {now['conversations']} conversations, "
            f"{now['low']:.1%} to {now['high']:.1%} at 95 %"
        )
    if excluded := inputs.get("excluded"):
        yield f"excluded {_excluded(excluded).removeprefix('; not counted:')}"


def _choice(choice: dict[str, Any]) -> str:
    words = [str(choice.get("action")).replace("_", " ")]
    words += [str(choice[name]) for name in ("knob", "target") if choice.get(name)]
    return " ".join(words) + (", if you approve" if choice.get("ask") else "")


def _followed(record: Decision) -> str:
    by = f" by {record.choice['by']}" if record.choice.get("by") else ""
    told = record.choice.get("verdict", record.choice.get("action"))
    what = record.inputs.get("item") or record.inputs.get("run") or ""
    seen = ""
    if record.inputs.get("after"):
        seen = f": {_rate(record.inputs['before'])} failed before, {_rate(record.inputs['after'])} with it"
    return f"{record.kind:<9} {told} {what}".rstrip() + f"{by}, {short_time(record.created)}{seen}"


def _rollback(change: Change) -> str:
    if change.undone is not None or change.declined is not None or change.applied is None:
        return ""
    if change.knob.is_context:
        return f"puts {change.previous} back" if change.previous else f"switches {change.item} off"
    return f"takes adapter {change.adapter} back"


def _about(record: Decision) -> str | None:
    about = record.inputs.get("signature") or record.inputs.get("adapter") or record.inputs.get("decision")
    return None if about is None else str(about)


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
