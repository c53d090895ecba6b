"""How strongly what was learned speaks in one conversation, where the owner wants it otherwise than elsewhere.

Strength 0 is the model as it was made, so "answer here without what was learned" is one value of the same choice and
not a second one. It is a row of the settings for each such conversation, read with every question to it; rows of
conversations that are gone are cleared away when the next choice is made.
"""

from __future__ import annotations

import json
import math

from store import conversations, settings
from store.db import Store
from store.errors import UsageError

_KEY = f"{settings.ADAPTER_STRENGTH}:"


def of(store: Store, conversation: str) -> float | None:
    """The strength chosen for a conversation; None where the setting holds."""
    row = store.conn.execute("SELECT value FROM settings WHERE key = ?", (_KEY + conversation,)).fetchone()
    return None if row is None else float(json.loads(row["value"]))


def choose(store: Store, conversation: str, strength: float | None) -> None:
    """Choose the strength for a conversation from its next reply on; None goes back to the setting.

    Raises:
        NotFound: there is no such conversation.
        UsageError: it is not between 0 and 1.
    """
    checked(strength)
    conversations.get(store, conversation)
    with store.write() as connection:
        connection.execute(
            "DELETE FROM settings WHERE key = ? OR (substr(key, 1, ?) = ? AND "
            "substr(key, ?) NOT IN (SELECT id FROM conversations))",
            (_KEY + conversation, len(_KEY), _KEY, len(_KEY) + 1),
        )
        if strength is not None:
            connection.execute(
                "INSERT INTO settings (key, value) VALUES (?, ?)",
                (_KEY + conversation, json.dumps(float(strength))),
            )


def checked(strength: float | None) -> None:
    """Raises UsageError for what is no strength."""
    if strength is not None and not (math.isfinite(strength) and 0.0 <= strength <= 1.0):
        raise UsageError(f"a strength is between 0 (the base model) and 1, not {strength:g}")
