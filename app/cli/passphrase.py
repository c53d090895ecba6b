"""Asking for a passphrase: at the terminal itself, or from a descriptor; never from the command line.

The terminal is opened by its own name, as ssh does, so that a command which reads its text from a pipe can still ask.
"""

from __future__ import annotations

import os
from pathlib import Path

from store.cipher import FROM_ENVIRONMENT
from store.errors import PassphraseNeeded, UsageError

_LONGEST = 1 << 16


def ask(path: Path) -> str:
    """The passphrase of a database. Raises PassphraseNeeded where there is no terminal."""
    return prompt(f"passphrase of {path}: ")


def prompt(question: str) -> str:
    """A passphrase as somebody types it, unseen. Raises PassphraseNeeded where there is no terminal."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        raise PassphraseNeeded(
            f"there is no terminal to ask for the passphrase: set {FROM_ENVIRONMENT}, "
            "or use `mynah --passphrase-fd N …`"
        ) from None
    import getpass

    return getpass.getpass(question)


def read_descriptor(number: int) -> str:
    """The passphrase that a script sends through a descriptor, without the newline at its end.

    Raises:
        UsageError: there is no such descriptor, or nothing comes out of it.
    """
    try:
        with os.fdopen(os.dup(number), "rb") as file:
            given = file.read(_LONGEST).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read a passphrase from descriptor {number} ({error})") from None
    passphrase = given[:-1] if given.endswith("\n") else given
    if not passphrase:
        raise UsageError(f"no passphrase came through descriptor {number}")
    return passphrase
