"""`mynah forget`: say what it will undo, then take it back from the texts, the weights and the backups.

Forgetting cannot be undone, so a person at a terminal is asked first, and told what goes along; a script that names
an id is taken at its word. What was asked for can be looked at later: a request that waits for the learner, or was
broken off, goes on by itself while a host runs, or with `mynah forget resume`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import click

from app.cli.learn import Narrator
from app.cli.output import emit, json_option, say, short_time, table
from app.cli.session import Kind, full_id, service
from app.counting import counted
from app.service import Service
from store.errors import Interrupted, MynahError
from store.forgetting import Forgetting, Preview
from store.types import ForgetState, RunOutcome, Scope

_STILL_HOLDS = (
    "; it still holds this: delete it where it is (put back with `mynah restore`, it forgets this again)"
)
_KINDS = {Scope.MESSAGE: Kind.MESSAGE, Scope.CONVERSATION: Kind.CONVERSATION, Scope.ADAPTER: Kind.ADAPTER}
_KINDS = {
    Scope.MESSAGE: Kind.MESSAGE,
    Scope.CONVERSATION: Kind.CONVERSATION,
    Scope.ADAPTER: Kind.ADAPTER,
    Scope.MEMORY: Kind.ITEM,
}


@click.group()
def forget() -> None:
    """Forget a message, a conversation, an adapter or everything: texts, weights, files, backups."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        json_option,
        click.option("--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Only say what it would undo."),
        click.option(
            "--wait", is_flag=True, help="Wait until the rest is learned anew, and print the receipt."
        ),
    ):
        command = option(command)
    return command


@forget.command()
@click.argument("message", metavar="ID")
@_options
def message(message: str, **how: bool) -> None:
    """Forget the message ID and everything that was said below it."""
    _forget(Scope.MESSAGE, message, **how)


@forget.command()
@click.argument("conversation", metavar="ID")
@_options
def conversation(conversation: str, **how: bool) -> None:
    """Forget the conversation ID."""
    _forget(Scope.CONVERSATION, conversation, **how)


@forget.command()
@click.argument("adapter", metavar="ID")
@_options
def adapter(adapter: str, **how: bool) -> None:
    """Forget the adapter ID, also one that is live, and what only it had learned."""
    _forget(Scope.ADAPTER, adapter, **how)


@forget.command()
@click.argument("memory", metavar="ID")
@_options
def memory(memory: str, **how: bool) -> None:
    """Forget the memory, instruction or guard ID in all its versions; the message it was read off stays."""
    _forget(Scope.MEMORY, memory, **how)


@forget.command("all")
@_options
def all_(**how: bool) -> None:
    """Forget everything. The home stays, with the settings that say how Mynah runs."""
    _forget(Scope.ALL, None, **how)


@forget.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List what was asked to be forgotten, newest first."""
    found = service().forgettings()
    emit(
        [_data(each) for each in found],
        as_json,
        lambda: table(
            ("request", "asked for", "what", "id", "state"),
            [(each.id, short_time(each.created), each.scope, each.target, each.state) for each in found],
        ),
    )
    if not found:
        say("nothing was asked to be forgotten yet")


@forget.command()
@click.argument("request", metavar="REQUEST")
@json_option
def show(request: str, as_json: bool) -> None:
    """Show how far the REQUEST got, and its receipt."""
    mynah = service()
    found = mynah.forgetting(full_id(mynah, Kind.FORGETTING, request))
    emit(_data(found), as_json, lambda: _lines(found))


@forget.command()
@json_option
def resume(as_json: bool) -> None:
    """Go on with requests that were broken off."""
    mynah = service()
    done = [mynah.forget_on(each.id) for each in mynah.forgettings() if each.state is not ForgetState.PURGED]
    emit([_data(each) for each in done], as_json, lambda: (line for each in done for line in _lines(each)))
    if not done:
        say("nothing was broken off")


def carry_out(scope: Scope, target: str, *, wait: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Forget something whose kind another command knows already."""
    _forget(scope, target, wait=wait, dry_run=dry_run, yes=yes, as_json=as_json)


def _forget(scope: Scope, typed: str | None, *, wait: bool, dry_run: bool, yes: bool, as_json: bool) -> None:
    mynah = service()
    target = None if typed is None else full_id(mynah, _KINDS[scope], typed)
    planned = mynah.forget_preview(scope, target)
    if dry_run:
        emit(_planned(planned), as_json, lambda: _undone(planned))
        return
    if not yes:
        for line in _undone(planned):
            say(line)
        if sys.stdin.isatty() and not click.confirm("this cannot be undone: forget it?", err=True):
            raise Interrupted("nothing was forgotten")
    asked = mynah.forget(scope, target)
    if wait:
        asked = _waited(mynah, asked)
    emit(_data(asked), as_json, lambda: _lines(asked))


def _waited(mynah: Service, asked: Forgetting) -> Forgetting:
    """Wait for the end; what is erased is erased, whatever becomes of learning the rest anew."""
    try:
        asked = mynah.forget_wait(asked.id, Narrator().tell)
    except Interrupted:
        raise
    except MynahError as error:
        say(f"it is erased, but the rest cannot be learned anew now: {error}")
        return mynah.forgetting(asked.id)
    if asked.state is not ForgetState.PURGED:
        say("learning is paused: it is erased, and the rest is learned anew after `mynah learn resume`")
    return asked


def _undone(planned: Preview) -> Iterator[str]:
    """What a request would undo, for people."""
    what = "everything" if planned.scope is Scope.ALL else f"{planned.scope} {planned.target}"
    if planned.scope is Scope.MEMORY:
        yield f"forgetting {what} erases it in all its versions; the message it was read off stays"
    else:
        gone = f"{counted(planned.messages, 'message')} and {counted(planned.ratings, 'rating')}"
        yield f"forgetting {what} erases {gone}"
    if planned.tainted:
        versions = ", ".join(f"v{version}" for version in planned.versions)
        yield f"deleted with it, because they saw it: {versions}"
    if planned.serving_moves:
        yield f"{planned.serving or 'the base model'} answers from the next turn on"
    if planned.retrain:
        yield "what else they had learned is learned anew, without it"
    for path in planned.backups:
        if path in planned.unreached:
            yield f"backup {path}: {planned.unreached[path]}{_STILL_HOLDS}"
        else:
            yield f"backup {path} is {'deleted' if planned.scope is Scope.ALL else 'written anew without it'}"
    if planned.scope is Scope.ALL:
        yield "kept: settings that say how Mynah runs; not the system prompt and the words to redact"


def _lines(asked: Forgetting) -> Iterator[str]:
    """How far a request got, for people."""
    what = "everything" if asked.scope is Scope.ALL else f"{asked.scope} {asked.target}"
    counts = asked.plan["counts"]
    gone = f"{counted(counts['messages'], 'message')}, {counted(counts['ratings'], 'rating')}"
    yield f"{what}: {asked.state.replace('_', ' ')} (request {asked.id})"
    if "backups" in asked.plan["steps"]:
        yield f"erased: {gone}, {counted(len(asked.plan['tainted']), 'adapter')}"
    for moved in asked.plan["moved"]:
        after = "the base model" if moved["after"] is None else f"v{moved['after_version']}"
        yield f"{after} took over from v{moved['before_version']}"
    for backup in asked.plan.get("backups", []):
        yield f"backup {backup['path']}: {backup['outcome']}{_STILL_HOLDS if backup.get('holds') else ''}"
    yield from _retraining(asked)


def _retraining(asked: Forgetting) -> Iterator[str]:
    retraining = asked.plan.get("retraining", {})
    outcome = retraining.get("outcome")
    if outcome == RunOutcome.PROMOTED:
        yield f"the rest was learned anew: {retraining['adapter']} is live"
    elif outcome == RunOutcome.FAILED:
        yield f"the rest could not be learned anew and waits for the next run: {retraining['error']}"
    elif outcome in (RunOutcome.REJECTED, RunOutcome.NOTHING_TO_LEARN):
        yield f"the rest was not learned anew ({outcome}): its ratings wait for the next run"
    elif asked.state is ForgetState.SERVING_CLEAN and asked.run is not None:
        yield f"the rest is being learned anew in run {asked.run}"


def _planned(planned: Preview) -> dict[str, Any]:
    return {
        "scope": planned.scope,
        "target": planned.target,
        "conversations": planned.conversations,
        "messages": planned.messages,
        "ratings": planned.ratings,
        "units": planned.units,
        "adapters": planned.tainted,
        "serving_moves": planned.serving_moves,
        "serving": planned.serving,
        "retrain": planned.retrain,
        "backups": planned.backups,
        "unreached": planned.unreached,
    }


def _data(asked: Forgetting) -> dict[str, Any]:
    return {
        "request": asked.id,
        "scope": asked.scope,
        "target": asked.target,
        "state": asked.state,
        "created": asked.created,
        "updated": asked.updated,
        "run": asked.run,
        "adapters": asked.plan["tainted"],
        "erased": asked.plan["steps"].get("backups"),
        "receipt": asked.receipt,
    }
