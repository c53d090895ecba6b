"""Full-text search over all conversations: any characters, any script, never a syntax error.

Peers pass the query to FTS as it is, so `C++`, `it's` and `foo-bar` raise; and the usual tokenizer finds nothing
inside Chinese, Japanese or Korean text. Here the query is one quoted string on a trigram index.
"""

from __future__ import annotations

from dataclasses import dataclass

from store.db import Store
from store.types import Role

TRIGRAM = 3


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
    """Messages that contain the query as a substring, the newest first; any characters, any script.

    The trigram index answers from three characters on; below that the text is scanned.
    """
    # SQLite ends a text at a NUL, which would leave the quoted string open.
    wanted = query.replace("\x00", "").strip()
    if not wanted:
        return []
    if len(wanted) >= TRIGRAM:
        condition, value = (
            "messages.rowid IN (SELECT rowid FROM messages_fts WHERE messages_fts MATCH ?)",
            _quoted(wanted),
        )
    else:
        condition, value = "messages.text LIKE ? ESCAPE '\\'", _like(wanted)
    rows = store.conn.execute(
        "SELECT messages.id, messages.conversation, conversations.title, messages.role, messages.text, "
        "messages.created FROM messages JOIN conversations ON conversations.id = messages.conversation "
        f"WHERE conversations.keep_history = 'allow' AND {condition} ORDER BY messages.rowid DESC LIMIT ?",
        (value, limit),
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


def _quoted(text: str) -> str:
    """As one FTS5 string: operators, quotes and punctuation in it mean nothing but themselves."""
    return '"' + text.replace('"', '""') + '"'


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{escaped}%"


def _excerpt(text: str, wanted: str, width: int = 100) -> str:
    at = max(text.lower().find(wanted.lower()), 0)
    start = max(at - width // 3, 0)
    piece = " ".join(text[start : start + width].split())
    return ("…" if start else "") + piece + ("…" if start + width < len(text) else "")
