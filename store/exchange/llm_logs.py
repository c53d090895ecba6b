"""Reads the log database of the `llm` program, in both of the forms it has had.

Older versions keep a prompt and its response as one row, and a conversation as a chain of rows; newer ones keep
messages as a tree, in which threads that were forked share their beginnings and a thread is known by its tip. Both
may be in one file, with the same conversation ids, so each conversation is read from the newer form where it is
there. The file is opened read-only and never migrated: `llm` would do that, and it is not ours.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from store.errors import ExchangeFileError
from store.exchange.drafts import Draft, DraftMessage, Skipped, Source, clean, digest, moment, one_line
from store.types import Role

_ROLES = {"user": Role.USER, "assistant": Role.ASSISTANT, "system": Role.SYSTEM, "tool": Role.TOOL}


def drafts(path: Path, progress: Callable[[float], None]) -> Iterator[Draft | Skipped]:
    """The conversations of a log database. Raises ExchangeFileError: it is none, or damaged."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            connection.row_factory = sqlite3.Row
            tables = {row["name"] for row in connection.execute("SELECT name FROM sqlite_master")}
            new = "threads" in tables and "turns" in tables and "parts" in tables
            if not new and "responses" not in tables:
                raise ExchangeFileError(
                    f"{path} is a database, but not one of the llm program: `mynah restore` reads our backups"
                )
            threads = list(_threads(connection)) if new else []
            known = {draft.key for draft in threads}
            older = list(_responses(connection, tables)) if "responses" in tables else []
            found = [draft for draft in older if draft.key not in known] + threads
    except (sqlite3.DatabaseError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ExchangeFileError(f"{path} cannot be read ({error})") from error
    for number, draft in enumerate(found, start=1):
        if draft.messages:
            yield draft
        else:
            yield Skipped(f"conversation {draft.key}", draft.title, "it holds no message with text")
        progress(number / len(found))


def _responses(connection: sqlite3.Connection, tables: set[str]) -> Iterator[Draft]:
    """Conversations of the older form, oldest first."""
    fragments = {
        table: _fragments(connection, table) if table in tables else {}
        for table in ("prompt_fragments", "system_fragments")
    }
    names = {row["id"]: row["name"] for row in connection.execute("SELECT id, name FROM conversations")}
    chains: dict[str, list[sqlite3.Row]] = {}
    for row in connection.execute("SELECT * FROM responses ORDER BY datetime_utc, rowid"):
        chains.setdefault(row["conversation_id"] or row["id"], []).append(row)
    for conversation, rows in chains.items():
        messages = tuple(_chain(rows, fragments))
        yield _made(conversation, messages, names.get(conversation), messages[-1].key if messages else None)


def _chain(rows: list[sqlite3.Row], fragments: dict[str, dict[str, list[str]]]) -> Iterator[DraftMessage]:
    parent, told = None, None
    for row in rows:
        system = _joined(fragments["system_fragments"].get(row["id"], []), row["system"])
        prompt = _joined(fragments["prompt_fragments"].get(row["id"], []), row["prompt"])
        time = moment(row["datetime_utc"])
        for name, role, text in (
            ("system", Role.SYSTEM, "" if system == told else system),
            ("prompt", Role.USER, prompt),
            ("response", Role.ASSISTANT, row["response"] or ""),
        ):
            if text.strip():
                key = f"{row['id']}:{name}"
                model = row["model"] if role is Role.ASSISTANT else None
                yield DraftMessage(key, parent, role, clean(text), time, model)
                parent = key
        told = system or told


def _joined(pieces: list[str], text: str | None) -> str:
    return "\n\n".join(piece for piece in (*pieces, text) if piece)


def _fragments(connection: sqlite3.Connection, table: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in connection.execute(
        f"SELECT response_id, content FROM {table} JOIN fragments ON fragments.id = {table}.fragment_id "
        'ORDER BY "order"'
    ):
        found.setdefault(row["response_id"], []).append(row["content"])
    return found


def _threads(connection: sqlite3.Connection) -> Iterator[Draft]:
    """Conversations of the newer form. A fork repeats the beginning it shares, as `llm` itself shows it."""
    fragments = {row["id"]: row["content"] for row in connection.execute("SELECT id, content FROM fragments")}
    texts: dict[str, list[str]] = {}
    for row in connection.execute("SELECT * FROM parts ORDER BY message_hash, position"):
        if text := _part(row, fragments):
            texts.setdefault(row["message_hash"], []).append(text)
    nodes = {
        row["hash"]: (row["parent_hash"], _ROLES.get(row["role"]))
        for row in connection.execute("SELECT hash, parent_hash, role FROM messages")
    }
    turns: dict[str, list[sqlite3.Row]] = {}
    for row in connection.execute("SELECT * FROM turns ORDER BY datetime_utc, rowid"):
        turns.setdefault(row["thread_id"], []).append(row)
    for thread in connection.execute("SELECT * FROM threads ORDER BY datetime_utc, rowid").fetchall():
        mine = turns.get(thread["id"], [])
        tip = thread["tip_message_hash"] or (mine[-1]["tip_message_hash"] if mine else None)
        made_by = {turn["tip_message_hash"]: turn for turn in mine}
        tips = [turn["tip_message_hash"] for turn in mine] + [tip]
        messages: dict[str, DraftMessage] = {}
        ends = [_up(end, nodes, texts, made_by, messages) for end in tips if end is not None]
        yield _made(thread["id"], tuple(messages.values()), thread["name"], ends[-1] if ends else None)


def _up(
    tip: str,
    nodes: dict[str, tuple[str | None, Role | None]],
    texts: dict[str, list[str]],
    made_by: dict[str, sqlite3.Row],
    messages: dict[str, DraftMessage],
) -> str | None:
    """Add the messages from the root to a tip that are not there yet; returns the last one with text."""
    chain: list[str] = []
    above: str | None = tip
    while above is not None and above in nodes and above not in chain:
        chain.append(above)
        above = nodes[above][0]
    parent, time = None, None
    for key in reversed(chain):
        role, text = nodes[key][1], "\n\n".join(texts.get(key, []))
        turn = made_by.get(key)
        time = moment(turn["datetime_utc"]) if turn is not None else time
        if role is None or not text.strip():
            continue
        model = turn["model"] if turn is not None and role is Role.ASSISTANT else None
        messages.setdefault(key, DraftMessage(key, parent, role, clean(text), time, model))
        parent = key
    return parent


def _part(row: sqlite3.Row, fragments: dict[int, str]) -> str:
    """A part as text; reasoning was not said, and a call or a file leaves a word that says what it was."""
    if row["type"] == "reasoning":
        return ""
    payload = json.loads(row["payload"]) if row["payload"] else {}
    if row["text"] is not None:
        return str(row["text"])
    if isinstance(payload.get("text_ref"), list):
        return "".join(
            str(piece["literal"]) if "literal" in piece else fragments.get(piece.get("fragment"), "")
            for piece in payload["text_ref"]
        )
    if row["type"] == "tool_result" and isinstance(payload.get("output"), str):
        return str(payload["output"])
    return f"[{str(row['type']).replace('_', ' ')}{': ' + row['tool_name'] if row['tool_name'] else ''}]"


def _made(key: str | None, messages: tuple[DraftMessage, ...], title: str | None, head: str | None) -> Draft:
    return Draft(
        space=Source.LLM,
        key=key or digest([message.key for message in messages]),
        messages=messages,
        client=Source.LLM,
        title=one_line(title),
        created=messages[0].created if messages else None,
        updated=messages[-1].created if messages else None,
        head=head,
    )
