"""`mynah consent` and `mynah conversations consent`: the three dials, for what is to come and for one conversation.

Two commands with the same options, because people look for the switch in both places. What a dial cannot do is said
where it is turned: an adapter that learned from a conversation keeps what it learned until that is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import click

from app.cli.output import emit, json_option, say
from app.cli.session import Kind, full_id, service
from app.counting import counted
from store.consent import Change, Dials
from store.types import Consent, Dial

_LABELS = {Dial.HISTORY: "kept in history", Dial.MEMORY: "may feed memory", Dial.TRAIN: "may be trained on"}
_value = click.Choice([value.value for value in Consent])


def _dials(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options of both commands."""
    for name, what in (
        ("--train", "Whether replies, ratings and corrections may teach."),
        ("--memory", "Whether facts may be remembered from it."),
        ("--history", "Whether it is kept, listed and searched; denied, it is deleted after use."),
    ):
        command = click.option(name, type=_value, help=what)(command)
    return command


@click.command()
@_dials
@json_option
def consent(history: str | None, memory: str | None, train: str | None, as_json: bool) -> None:
    """Show or choose what new conversations may be used for.

    Conversations that exist keep their dials: `mynah conversations consent ID` turns those. A conversation that is
    not kept in history is deleted an hour after its last message, or when Mynah stops, and teaches nothing; `mynah
    ask --incognito` writes nothing at all.
    """
    mynah = service()
    for dial, value in _chosen(history, memory, train):
        mynah.set_default_consent(dial, value)
    found = mynah.consent()
    emit(_data(found), as_json, lambda: _lines(found))
    if not as_json:
        say("(for new conversations; one that exists: mynah conversations consent ID)")


@click.command("consent")
@click.argument("conversation", metavar="ID")
@_dials
@json_option
def of_conversation(
    conversation: str, history: str | None, memory: str | None, train: str | None, as_json: bool
) -> None:
    """Show or choose what the conversation ID may be used for.

    Denying --train takes what still waits to be learned out of the queue, and allowing it brings it back. What an
    adapter has learned already stays learned until it is forgotten. Denying --history also denies the other two:
    the conversation is listed nowhere any more, and deleted an hour after its last message or when Mynah stops.
    """
    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    changes = [mynah.set_consent(found, dial, value) for dial, value in _chosen(history, memory, train)]
    dials = mynah.consent(found)
    data = {
        "conversation": found,
        **_data(dials),
        "refused": sum(change.refused for change in changes),
        "queued": sum(change.queued for change in changes),
        "taught": list(changes[-1].taught) if changes else [],
    }
    emit(data, as_json, lambda: _lines(dials))
    for remark in _remarks(found, changes, dials):
        say(remark)
    if history == Consent.ALLOW and (still := _still_denied(dials)):
        say(
            f"it is kept; off are still {' and '.join(still)} ({' '.join(f'--{each} allow' for each in still)})"
        )


def _chosen(history: str | None, memory: str | None, train: str | None) -> list[tuple[Dial, Consent]]:
    """The dials to turn, history first: allowing it makes the others possible."""
    given = ((Dial.HISTORY, history), (Dial.MEMORY, memory), (Dial.TRAIN, train))
    return [(dial, Consent(value)) for dial, value in given if value is not None]


def _data(dials: Dials) -> dict[str, str]:
    return {dial.value: value.value for dial, value in dials.items()}


def _lines(dials: Dials) -> Iterator[str]:
    for dial, value in dials.items():
        yield f"{dial:<8} {value:<6} {_LABELS[dial]}{'' if value is Consent.ALLOW else ': no'}"


def _still_denied(dials: Dials) -> list[Dial]:
    """What history had taken along and does not bring back: more is allowed by the owner's word alone."""
    return [dial for dial, value in dials.items() if dial is not Dial.HISTORY and value is Consent.DENY]


_RATINGS = ("rating or correction", "ratings and corrections")


def _remarks(conversation: str, changes: list[Change], dials: Dials) -> Iterator[str]:
    """What the owner should know of what was just done."""
    refused, queued = (sum(getattr(change, name) for change in changes) for name in ("refused", "queued"))
    if refused:
        yield f"{counted(refused, *_RATINGS)} will not be learned"
    if queued:
        yield f"{counted(queued, *_RATINGS)} can be learned again"
    if changes and dials[Dial.TRAIN] is Consent.DENY and changes[-1].taught:
        yield (
            f"adapters learned from it before ({', '.join(changes[-1].taught)}), and the dial does not undo that: "
            f"`mynah forget conversation {conversation}` does"
        )
    along = [dial for change in changes for dial in change.along if dials[dial] is Consent.DENY]
    if along:
        yield f"{' and '.join(along)} went off with it, and stay off when history is allowed again"
    if changes and dials[Dial.HISTORY] is Consent.DENY:
        yield "it is deleted an hour after its last message, or when Mynah stops; --history allow keeps it"
