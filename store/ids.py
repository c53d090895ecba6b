"""Short ids that a person can type: a letter that tells the kind, then ten base-32 digits (50 random bits).

Random rather than counted, so that conversations made on two machines can be merged. Commands accept any
unambiguous prefix.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

from store.db import Store
from store.errors import NotFound, UsageError

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"


def new_id(kind: str) -> str:
    """A fresh id such as ``m4k0d9x2v7q`` for kind ``m``."""
    bits = secrets.randbits(50)
    return kind + "".join(_DIGITS[(bits >> shift) & 31] for shift in range(0, 50, 5))


def now(shift: float = 0.0) -> str:
    """The present, or ``shift`` seconds from it, as ISO 8601 UTC with microseconds: sorts as text."""
    return datetime.fromtimestamp(time.time() + shift, UTC).isoformat(timespec="microseconds")


def resolve(store: Store, table: str, prefix: str) -> str:
    """The full id for an unambiguous prefix in one of the tables that are named by id.

    Raises:
        NotFound: nothing starts with it.
        UsageError: several do.
    """
    kind = {
        "conversations": "conversation",
        "messages": "message",
        "adapters": "adapter",
        "learning_runs": "learning run",
        "units": "learning unit",
        "decisions": "decision",
        "forgettings": "request to forget",
        "items": "memory, instruction or guard",
    }[table]
    rows = store.conn.execute(
        f"SELECT id FROM {table} WHERE id >= ? AND id < ? LIMIT 3", (prefix, prefix + "\U0010ffff")
    ).fetchall()
    if not prefix or not rows:
        raise NotFound(f"no {kind} has the id {prefix!r}")
    if len(rows) > 1 and prefix not in [row["id"] for row in rows]:
        raise UsageError(f"{prefix!r} fits more than one {kind}: type more of its id")
    return prefix if len(rows) > 1 else str(rows[0]["id"])
