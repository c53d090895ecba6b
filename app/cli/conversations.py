"""`mynah conversations`: list, read, search, rename, delete, import and export what was said."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from app.cli import sorting
from app.cli.consent import of_conversation
from app.cli.exchange import FORMATS, import_, write_export
from app.cli.output import emit, json_option, put, put_json, say, short_time, table
from app.cli.session import Kind, full_id, service
from app.cli.trajectory import events, replay
from app.service import Thread, ThreadMessage
from store.conversations import Conversation
from store.errors import UsageError
from store.types import MessageStatus, Role

_SPEAKERS = {Role.USER: "you", Role.ASSISTANT: "mynah", Role.SYSTEM: "system", Role.TOOL: "tool"}
_SHOWN = click.option(
    "--limit", type=click.IntRange(min=1), default=50, show_default=True, help="How many at most."
)


@click.group()
def conversations() -> None:
    """Conversations: list, read, search, rename, delete, import, export, and what each may be used for."""


conversations.add_command(import_)
conversations.add_command(events)
conversations.add_command(replay)
conversations.add_command(of_conversation)
for command in sorting.COMMANDS:
    conversations.add_command(command)


@conversations.command("list")
@_SHOWN
@click.option("--archived", is_flag=True, help="List the archived ones instead.")
@json_option
def list_(limit: int, archived: bool, as_json: bool) -> None:
    """List the conversations: pinned ones, then the last used first."""
    mynah = service()
    found = mynah.archived(limit + 1) if archived else mynah.conversations(limit + 1)
    shown = found[:limit]
    emit(
        [_head(conversation) for conversation in shown],
        as_json,
        lambda: table(
            ("id", "last used", "messages", "title"),
            [(each.id, short_time(each.updated), each.messages, _title(each)) for each in shown],
        ),
    )
    if not found:
        say("no conversation is archived" if archived else "there are no conversations yet")
    if len(found) > limit:
        say(f"(there are more: --limit {2 * limit})")


@conversations.command()
@click.argument("conversation", metavar="ID")
@json_option
def show(conversation: str, as_json: bool) -> None:
    """Print the conversation ID along its visible branch."""
    mynah = service()
    thread = mynah.thread(full_id(mynah, Kind.CONVERSATION, conversation))
    emit(_whole(thread), as_json, lambda: _readable(thread))


@conversations.command()
@click.argument("query", nargs=-1, required=True)
@_SHOWN
@json_option
def search(query: tuple[str, ...], limit: int, as_json: bool) -> None:
    """Find the messages that contain QUERY, newest first.

    Filters may stand between the words: rated:up, rated:down, corrected:yes, used:v3, fate:queued, tag:WORD,
    since:2026-11-29 or since:7d, before:2026-11-29, in:open or in:archived.
    """
    wanted = " ".join(query)
    if not wanted.strip():
        raise UsageError("there is nothing to search for: give at least one visible character")
    found = service().find(wanted, limit + 1)
    shown = found[:limit]
    emit(
        [
            {
                "conversation": hit.conversation,
                "title": hit.title,
                "message": hit.message,
                "role": hit.role,
                "excerpt": hit.excerpt,
                "created": hit.created,
            }
            for hit in shown
        ],
        as_json,
        lambda: table(
            ("conversation", "message", "by", "text"),
            [(hit.conversation, hit.message, _SPEAKERS[hit.role], hit.excerpt) for hit in shown],
        ),
    )
    if not found:
        say("nothing found")
    if len(found) > limit:
        say(f"(there are more: --limit {2 * limit})")


@conversations.command()
@click.argument("conversation", metavar="ID")
@click.argument("title", nargs=-1, required=True)
@json_option
def rename(conversation: str, title: tuple[str, ...], as_json: bool) -> None:
    """Give the conversation ID another TITLE."""
    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    mynah.rename(found, " ".join(title))
    named = mynah.thread(found).conversation
    emit(_head(named), as_json, lambda: [f"{named.id} is now called: {named.title}"])


@conversations.command()
@click.argument("conversation", metavar="ID")
@json_option
def delete(conversation: str, as_json: bool) -> None:
    """Delete the conversation ID, unless an adapter learned from it."""
    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    title = mynah.thread(found).conversation.title
    mynah.delete_conversation(found)
    emit({"deleted": found}, as_json, lambda: [f"deleted {found}: {title}"])


@conversations.command()
@click.argument("conversation", metavar="ID")
@click.option(
    "--format",
    "form",
    type=click.Choice(["markdown", "json", *FORMATS]),
    default="markdown",
    show_default=True,
    help="For reading, or as `mynah export` writes it: redacted JSON lines.",
)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file.")
def export(conversation: str, form: str, out: Path | None) -> None:
    """Print the conversation ID, or write it to a file."""
    mynah = service()
    found = full_id(mynah, Kind.CONVERSATION, conversation)
    if form in FORMATS:
        write_export(mynah, form, out, found, redact=True)
        return
    thread = mynah.thread(found)
    if out is None:
        if form == "json":
            put_json(_whole(thread))
        else:
            put(_markdown(thread), newline=False)
        return
    text = _markdown(thread) if form == "markdown" else _json_text(thread)
    try:
        with out.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{out} exists already: choose a new file") from None
    except OSError as error:
        raise UsageError(f"cannot write {out}: {error.strerror}") from error
    say(f"wrote {out}")


def _head(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": conversation.id,
        "title": conversation.title,
        "created": conversation.created,
        "updated": conversation.updated,
        "source": conversation.source,
        "messages": conversation.messages,
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "tags": list(conversation.tags),
    }


def _title(conversation: Conversation) -> str:
    tags = "".join(f" #{tag}" for tag in conversation.tags)
    return f"{'* ' if conversation.pinned else ''}{conversation.title}{tags}"


def _whole(thread: Thread) -> dict[str, Any]:
    return {**_head(thread.conversation), "messages": [_message(each) for each in thread.messages]}


def _message(shown: ThreadMessage) -> dict[str, Any]:
    message = shown.message
    fate = shown.fate
    return {
        "id": message.id,
        "parent": message.parent,
        "role": message.role,
        "text": message.text,
        "status": message.status,
        "created": message.created,
        "adapter": message.adapter,
        "version": shown.version,
        "made_by": shown.elsewhere,
        "finish_reason": message.finish_reason,
        "rating": None if not shown.rating else "up" if shown.rating > 0 else "down",
        "corrected": shown.corrected,
        "fate": None if fate is None else {"state": fate.state, "text": fate.text},
        "siblings": shown.siblings,
    }


def _readable(thread: Thread) -> Iterator[str]:
    yield f"{thread.conversation.title}  ({thread.conversation.id})"
    for shown in thread.messages:
        yield ""
        yield " · ".join(_caption(shown))
        yield shown.message.text


def _caption(shown: ThreadMessage) -> Iterator[str]:
    message = shown.message
    yield _speaker(shown)
    yield message.id
    if message.status is not MessageStatus.COMPLETE:
        yield str(message.status) if message.error is None else f"{message.status}: {message.error}"
    if len(shown.siblings) > 1:
        yield f"version {shown.sibling + 1} of {len(shown.siblings)}"
    if shown.corrected:
        yield "corrected"
    if shown.rating:
        yield "rated up" if shown.rating > 0 else "rated down"
    if shown.fate is not None:
        yield shown.fate.text


def _speaker(shown: ThreadMessage) -> str:
    speaker = _SPEAKERS[shown.message.role]
    if shown.message.role is not Role.ASSISTANT:
        return speaker
    if shown.elsewhere is not None:
        return f"assistant ({shown.elsewhere})"
    return f"{speaker} ({'base' if shown.version is None else f'v{shown.version}'})"


def _markdown(thread: Thread) -> str:
    parts = [f"# {thread.conversation.title}\n"]
    for shown in thread.messages:
        by = "assistant" if shown.elsewhere is not None else _SPEAKERS[shown.message.role]
        parts.append(f"## {by}\n\n{shown.message.text}\n")
    return "\n".join(parts)


def _json_text(thread: Thread) -> str:
    import json

    return json.dumps(_whole(thread), ensure_ascii=False, indent=2) + "\n"
