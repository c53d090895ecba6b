"""Where computed conversations lie between two runs of the host, and how they are wiped.

A cache of keys and values is the conversation in another form: who forgets a conversation forgets it here too. The
directory is wiped whole, because what it holds is never worth more than the seconds it saves.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from store.db import Store
from store.home import Home


def directory(home: Home) -> Path:
    """The directory; it need not exist."""
    return home.root / "warm"


def wipe(home: Home) -> None:
    """Delete everything that was computed of any conversation."""
    shutil.rmtree(directory(home), ignore_errors=True)


def may_keep(store: Store, conversation: str | None, since: str) -> bool:
    """Whether something computed of a conversation from ``since`` on (as `ids.now` writes it) may be on the disk.

    Not where the conversation is gone or keeps no history, and not where anything was forgotten since: a cache does
    not say which of its messages it holds.
    """
    row = store.conn.execute(
        "SELECT 1 FROM conversations WHERE id = ? AND keep_history = 'allow' "
        "AND NOT EXISTS (SELECT 1 FROM forgettings WHERE updated >= ?)",
        (conversation, since),
    ).fetchone()
    return row is not None
