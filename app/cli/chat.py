"""Opening the chat: only here does the command line know that there are widgets."""

from __future__ import annotations

import sys

from app.cli.session import service
from store import cipher
from store.errors import UsageError


def open_chat() -> int:
    """Open the chat and return the exit code it ends with.

    Raises:
        UsageError: there is no terminal to open it in.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("the chat needs a terminal: use `mynah ask` in scripts and pipes")
    mynah = service()
    # Asked now: once the chat is drawn nobody can be.
    cipher.unlock(mynah.home.db)
    from app.tui.app import run

    return run(mynah)
