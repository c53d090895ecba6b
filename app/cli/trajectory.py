"""`mynah conversations events` and `replay`: what happened step by step, and whether it happens again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import click

from app.cli.output import emit, json_option, put, put_json, say, short_time, table
from app.cli.session import Kind, full_id, service
from app.replays import BASE, RECORDED, Comparison, of_conversation, of_message
from app.service import Service
from store import trajectory
from store.errors import NotFound
from store.trajectory import Step
from store.types import EventKind

_SHOWN_TEXT = 48
_AS_RECORDED = (RECORDED, "served-as-recorded")


@click.command()
@click.argument("conversation", metavar="ID")
@json_option
def events(conversation: str, as_json: bool) -> None:
    """Print the steps of the conversation ID, with the reactions to each.

    Messages, replies, tool calls, memory, guards and ratings in the order they happened, all branches together.
    """
    mynah = service()
    steps = trajectory.read(mynah.store, full_id(mynah, Kind.CONVERSATION, conversation))
    emit(
        [asdict(step) for step in steps],
        as_json,
        lambda: table(
            ("time", "step", "message", "replay", "reward", "what"),
            [
                (
                    short_time(step.created),
                    step.kind.replace("_", " "),
                    step.message,
                    step.replay.replace("_", " "),
                    _reward(step),
                    _what(step),
                )
                for step in steps
            ],
        ),
    )
    if any(step.id is None for step in steps):
        say("(some steps are older than this record, or were imported: read from what was kept of them)")


@click.command()
@click.argument("which", metavar="MESSAGE|CONVERSATION")
@click.option(
    "--adapter",
    metavar=f"ID|{BASE}|{RECORDED}",
    default=RECORDED,
    show_default=True,
    help="Compute with this adapter, the model alone, or what served then.",
)
@json_option
def replay(which: str, adapter: str, as_json: bool) -> None:
    """Compute a reply, or all of a conversation, once more from the recorded tokens, and show what differs.

    Nothing is written. With what served then, on the same machine, a reply comes out token for token.
    """
    mynah = service()
    chosen = RECORDED if adapter in _AS_RECORDED else adapter
    if chosen not in (RECORDED, BASE):
        chosen = full_id(mynah, Kind.ADAPTER, chosen)
    one = _message(mynah, which)
    if one is not None:
        found = [of_message(mynah, one, chosen)]
        if as_json:
            put_json(_data(found[0]))
    else:
        conversation = full_id(mynah, Kind.CONVERSATION, which)
        if as_json:
            put_json([_data(each) for each in of_conversation(mynah, conversation, chosen)])
        found = [] if as_json else list(of_conversation(mynah, conversation, chosen))
    if not as_json:
        for line in (line for each in found for line in _lines(each)):
            put(line)


def _message(mynah: Service, typed: str) -> str | None:
    """The message that was meant, or None where the id is a conversation's."""
    try:
        return full_id(mynah, Kind.MESSAGE, typed)
    except NotFound:
        if typed.startswith("m"):
            raise
        return None


def _data(found: Comparison) -> dict[str, Any]:
    return {**asdict(found), "identical": found.identical}


def _lines(found: Comparison) -> Iterator[str]:
    yield f"{found.message} · {found.replay.replace('_', ' ')} · {_served(found)}"
    if found.changed:
        yield f"  not as it was then: {', '.join(found.changed)}"
    if found.largest_difference is not None:
        yield (
            f"  log-probabilities differ by {found.largest_difference:.2g} at the most, "
            f"{found.mean_difference:.2g} on average"
        )
    if found.first_difference is None:
        yield f"  the same {len(found.now.tokens)} tokens"
        return
    yield f"  differs from token {found.first_difference + 1} of {len(found.recorded.tokens)} on"
    yield f"  then: {found.recorded.text}"
    yield f"  now:  {found.now.text}"


def _served(found: Comparison) -> str:
    then, now = found.recorded.adapter or BASE, found.now.adapter or BASE
    return then if then == now else f"{then} then, {now} now"


def _reward(step: Step) -> str | None:
    said = [each for each in step.rewards if not each.superseded]
    return (
        ", ".join(each.kind if each.value is None else f"{each.kind} {each.value:+g}" for each in said)
        or None
    )


def _what(step: Step) -> str:
    if step.error_class is not None:
        return f"failed: {step.error_class}"
    if step.kind is EventKind.REACTION:
        return " ".join(str(step.action[name]) for name in ("kind", "value", "text") if name in step.action)
    text = " ".join(str(step.action.get("text") or step.action or step.outcome).split())
    return text if len(text) <= _SHOWN_TEXT else f"{text[:_SHOWN_TEXT]}…"
