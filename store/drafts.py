"""What was typed and not sent yet, one text per conversation, and what the owner wrote before.

A draft goes with its conversation: deleting that deletes it. The one without a conversation belongs to the empty
page. Whoever keeps nothing of a conversation does not call `keep`.
"""

from __future__ import annotations

from store.db import Store
from store.ids import now
from store.types import Role

LONGEST_REMEMBERED = 20_000


def get(store: Store, conversation: str | None) -> str:
    """The draft of a conversation, or of the empty page; "" where there is none."""
    row = store.conn.execute("SELECT text FROM drafts WHERE conversation IS ?", (conversation,)).fetchone()
    return "" if row is None else str(row["text"])


def keep(store: Store, conversation: str | None, text: str) -> None:
    """Replace the draft of a conversation; an empty text deletes it."""
    with store.write() as connection:
        connection.execute("DELETE FROM drafts WHERE conversation IS ?", (conversation,))
        if text:
            # The conversation may have been deleted meanwhile; its draft went with it.
            connection.execute(
                "INSERT INTO drafts (conversation, text, updated) SELECT ?, ?, ? "
                "WHERE ? IS NULL OR EXISTS (SELECT 1 FROM conversations WHERE id = ?)",
                (conversation, text, now(), conversation, conversation),
            )


def written(store: Store, limit: int) -> list[str]:
    """The owner's own messages over all conversations, oldest first, without what would be no use to type again."""
    rows = store.conn.execute(
        "SELECT text FROM messages JOIN conversations ON conversations.id = messages.conversation "
        "WHERE role = ? AND source IN ('chat', 'cli') AND length(text) <= ? "
        "ORDER BY messages.rowid DESC LIMIT ?",
        (Role.USER, LONGEST_REMEMBERED, limit),
    )
    return [str(row["text"]) for row in rows][::-1]
