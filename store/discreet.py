"""Logs that cannot quote a conversation: where something failed and with what kind of error, never its words.

The words of an unexpected exception come from anywhere, and may hold the text that was being worked on. A log is a
file that nobody thinks of when an incognito chat is closed or a conversation is forgotten, so what is logged of an
exception are its frames (files, lines and our own source) and its type. Our own errors are sentences written here,
and the operating system's name files, so those keep their words.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import sys
import threading
import traceback
from types import TracebackType
from typing import Any

from store.errors import MynahError

_OWN_WORDS = (MynahError, OSError, sqlite3.Error)


def described(error: BaseException) -> str:
    """An exception and what caused it, as a traceback without words of unknown origin. Ends with a line end."""
    parts = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        frames = "".join(traceback.format_tb(current.__traceback__))
        words = f": {current}" if isinstance(current, _OWN_WORDS) else ""
        parts.append(f"Traceback (most recent call last):\n{frames}{type(current).__name__}{words}\n")
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return "\nwhich led to:\n\n".join(reversed(parts))


class DiscreetFormatter(logging.Formatter):
    """Formats exceptions without their words."""

    def formatException(  # noqa: N802
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return "" if ei[1] is None else described(ei[1]).rstrip()


def set_up(level: int, form: str) -> None:
    """Log to standard error without quoting anybody, whatever fails in whichever thread."""
    logging.basicConfig(level=level, stream=sys.stderr, force=True)
    for handler in logging.getLogger().handlers:
        handler.setFormatter(DiscreetFormatter(form))
    sys.excepthook = lambda _kind, error, _trace: _log_uncaught(error)
    threading.excepthook = lambda fault: _log_uncaught(fault.exc_value)


def _log_uncaught(error: BaseException | None) -> None:
    logging.getLogger("mynah").critical("an uncaught fault", exc_info=error)


def log_fault(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What an event loop does with an exception that nobody awaited; by itself it would print the exception."""
    logging.getLogger("mynah").error(
        "a task failed: %s", type(context.get("exception")).__name__, exc_info=context.get("exception")
    )
