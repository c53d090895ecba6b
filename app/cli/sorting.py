"""`mynah conversations pin|unpin|archive|unarchive|tag`: how the owner sorts conversations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from app.cli.output import emit, json_option
from app.cli.session import Kind, full_id, service
from app.service import Service
from store.conversations import Conversation
from store.errors import UsageError

_id = click.argument("conversation", metavar="ID")


@click.command()
@_id
@json_option
def pin(conversation: str, as_json: bool) -> None:
    """Keep the conversation ID at the top of the list."""
    _change(conversation, Service.pin_conversation, as_json, "is pinned to the top")


@click.command()
@_id
@json_option
def unpin(conversation: str, as_json: bool) -> None:
    """Let the conversation ID take its place by time again."""
    _change(conversation, Service.unpin_conversation, as_json, "is no longer pinned")


@click.command()
@_id
@json_option
def archive(conversation: str, as_json: bool) -> None:
    """Take the conversation ID out of the list; a search still finds it."""
    _change(conversation, Service.archive, as_json, "is archived")


@click.command()
@_id
@json_option
def unarchive(conversation: str, as_json: bool) -> None:
    """Put the conversation ID back into the list."""
    _change(conversation, Service.unarchive, as_json, "is back in the list")


@click.command()
@_id
@click.argument("tags", nargs=-1)
@click.option("--off", is_flag=True, help="Take these tags away (without any: all).")
@json_option
def tag(conversation: str, tags: tuple[str, ...], off: bool, as_json: bool) -> None:
    """Give the conversation ID more TAGS, or take some away.

    `mynah conversations search tag:WORD` finds what has one.
    """
    if not tags and not off:
        raise UsageError("name a tag, or take all away with --off")
    from store.labels import clean_tag

    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    named = {clean_tag(each) for each in tags}
    before = set(mynah.thread(found).conversation.tags)
    kept = mynah.set_tags(found, sorted((before - named if named else set()) if off else before | named))
    said = " ".join(f"#{each}" for each in kept) or "no tags"
    emit(sorting(mynah.thread(found).conversation), as_json, lambda: [f"{found} has {said}"])


COMMANDS = (pin, unpin, archive, unarchive, tag)


def sorting(conversation: Conversation) -> dict[str, Any]:
    """How a conversation is sorted, for JSON."""
    return {
        "id": conversation.id,
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "tags": list(conversation.tags),
    }


def _change(conversation: str, do: Callable[[Service, str], None], as_json: bool, said: str) -> None:
    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    do(mynah, found)
    named = mynah.thread(found).conversation
    emit(sorting(named), as_json, lambda: [f"{found} {said}: {named.title}"])
