"""How the owner sorts conversations: pinned, archived, tagged, and by a title.

All of it is about finding something again and none of it is ever learned from. An archived conversation is out of
the list and still found by a search; nothing is hidden for good. A title that the model made takes the place of the
first line only while that is what is there: whatever the owner wrote wins, whoever comes first.
"""

from __future__ import annotations

import re

from store import conversations
from store.db import Store
from store.errors import UsageError
from store.ids import now
from store.types import Role

MAX_TAG = 30
_TAG = re.compile(r"[^\s#:,]+")


def pin(store: Store, conversation: str) -> None:
    """Keep a conversation at the top of the list."""
    _mark(store, conversation, "pinned", now())


def unpin(store: Store, conversation: str) -> None:
    """Let a conversation take its place by time again."""
    _mark(store, conversation, "pinned", None)


def archive(store: Store, conversation: str) -> None:
    """Take a conversation out of the list; a search still finds it."""
    _mark(store, conversation, "archived", now())


def unarchive(store: Store, conversation: str) -> None:
    """Put a conversation back into the list."""
    _mark(store, conversation, "archived", None)


def _mark(store: Store, conversation: str, column: str, value: str | None) -> None:
    conversations.get(store, conversation)
    with store.write() as connection:
        connection.execute(f"UPDATE conversations SET {column} = ? WHERE id = ?", (value, conversation))


def clean_tag(text: str) -> str:
    """A tag as it is stored: lower case, without the #.

    Raises:
        UsageError: it is empty, too long, or holds a blank, a comma or a colon.
    """
    tag = text.strip().removeprefix("#").casefold()
    if not _TAG.fullmatch(tag) or len(tag) > MAX_TAG:
        raise UsageError(
            f"a tag is one word of at most {MAX_TAG} characters without # , or : inside, not {text.strip()!r}"
        )
    return tag


def set_tags(store: Store, conversation: str, tags: list[str]) -> list[str]:
    """Give a conversation exactly these tags; returns them as they are stored."""
    conversations.get(store, conversation)
    wanted = sorted({clean_tag(tag) for tag in tags})
    with store.write() as connection:
        connection.execute("DELETE FROM tags WHERE conversation = ?", (conversation,))
        connection.executemany(
            "INSERT INTO tags (conversation, tag) VALUES (?, ?)", [(conversation, tag) for tag in wanted]
        )
    return wanted


def all_tags(store: Store) -> dict[str, int]:
    """Every tag with the number of conversations that have it, the most used first."""
    rows = store.conn.execute("SELECT tag, count(*) AS used FROM tags GROUP BY tag ORDER BY used DESC, tag")
    return {row["tag"]: row["used"] for row in rows}


def untitled(store: Store, conversation: str) -> str | None:
    """The question that was answered first, while the conversation still bears its first line as its title."""
    head = conversations.get(store, conversation)
    path = conversations.path(store, head.head) if head.head else []
    asked = next((message for message in path if message.role is Role.USER), None)
    answered = any(message.role is Role.ASSISTANT and message.text for message in path)
    if asked is None or not answered or head.title != conversations.title_from(asked.text):
        return None
    return asked.text


def entitle(store: Store, conversation: str, title: str) -> bool:
    """Give a conversation a title that the model made; False where the owner has named it meanwhile."""
    with store.write() as connection:
        if untitled(store, conversation) is None or not title.strip():
            return False
        connection.execute("UPDATE conversations SET title = ? WHERE id = ?", (title.strip(), conversation))
    return True
