"""Full-text search over all conversations: any characters, any script, never a syntax error.

Peers pass the query to FTS as it is, so `C++`, `it's` and `foo-bar` raise; and the usual tokenizer finds nothing
inside Chinese, Japanese or Korean text. Here the query is one string, sought as it is. Messages are read as they are
found, newest first, until there are enough: what a search costs does not grow with what was ever said.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from store import containing
from store.db import Store
from store.types import Role


@dataclass(frozen=True)
class Hit:
    """One message that a search found."""

    conversation: str
    title: str
    message: str
    role: Role
    excerpt: str
    created: str


def search(store: Store, query: str, limit: int = 50) -> list[Hit]:
    """Messages that contain the query as a substring, the newest first; any characters, any script."""
    # SQLite ends a text at a NUL, which would leave the quoted string open.
    wanted = query.replace("\x00", "").strip()
    found: list[Hit] = []
    if not wanted:
        return found
    with closing(containing.newest_first(store, wanted)) as rows:
        while len(found) < limit and (some := list(itertools.islice(rows, limit))):
            condition = f"messages.rowid IN ({', '.join('?' * len(some))})"
            found += hits(store, condition, some, wanted, limit)
    return found[:limit]


def hits(store: Store, condition: str, values: Sequence[object], wanted: str, limit: int) -> list[Hit]:
    """Messages of conversations that are kept in history and for which an SQL condition holds, the newest first."""
    rows = store.conn.execute(
        "SELECT messages.id, messages.conversation, conversations.title, messages.role, messages.text, "
        "messages.created FROM messages JOIN conversations ON conversations.id = messages.conversation "
        f"WHERE conversations.keep_history = 'allow' AND {condition} ORDER BY messages.rowid DESC LIMIT ?",
        (*values, limit),
    )
    return [
        Hit(
            row["conversation"],
            row["title"],
            row["id"],
            Role(row["role"]),
            _excerpt(row["text"], wanted),
            row["created"],
        )
        for row in rows
    ]


def _excerpt(text: str, wanted: str, width: int = 100) -> str:
    """One line of a text around what was looked for in it."""
    at = max(text.lower().find(wanted.lower()), 0)
    start = max(at - width // 3, 0)
    piece = " ".join(text[start : start + width].split())
    return ("…" if start else "") + piece + ("…" if start + width < len(text) else "")
