"""Taking what was forgotten out of a backup that was made before: unpacked, forgotten there, and packed again.

A backup is a copy the owner had us make, so "forget" means it too; deleting it would lose everything else in it, and
leaving it would make forgetting a word. It is written anew under its name, whole or not at all, without the item and
without the adapters that saw it. One that is no longer where it was made cannot be reached: the receipt names it, and
putting it back forgets the item again (see `store.exchange.restore`).
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing
from enum import StrEnum
from pathlib import Path

from store import cipher
from store.db import Store, explained
from store.errors import DiskFull, ExchangeFileError, MynahError
from store.exchange.backup import ADAPTERS, DATABASE, SCRATCH, pack
from store.exchange.restore import first_page, unpack
from store.files import whole_file
from store.home import Home
from store.types import AdapterState


class Cleansed(StrEnum):
    """What became of one backup."""

    CLEAN = "held none of it"
    REWRITTEN = "written anew without it"
    DELETED = "deleted"
    MISSING = "no longer where it was made"
    UNREADABLE = "cannot be read or written"
    LOCKED = "made under another passphrase, so it was not opened"

    @property
    def reached(self) -> bool:
        """Whether nothing that was to be forgotten is left in it."""
        return self in (Cleansed.CLEAN, Cleansed.REWRITTEN, Cleansed.DELETED)


Forget = Callable[[Store], bool]


def rewrite(home: Home, path: Path, forget: Forget) -> Cleansed:
    """Let ``forget`` work on the database in a backup, and pack it again where it says that something changed.

    Raises:
        DiskFull: there is no room for it.
    """
    if not path.exists():
        return Cleansed.MISSING
    with explained(home), tempfile.TemporaryDirectory(dir=home.scratch, prefix=SCRATCH) as scratch:
        made = Path(scratch)
        try:
            manifest = unpack(path, made)
            if cipher.locked(made / DATABASE):
                return Cleansed.LOCKED
            (made / ADAPTERS).mkdir(exist_ok=True)
            with closing(Store.open(Home(made))) as store:
                if not forget(store):
                    return Cleansed.CLEAN
                for row in store.conn.execute(
                    "SELECT id FROM adapters WHERE state = ?", (AdapterState.TAINTED,)
                ).fetchall():
                    shutil.rmtree(made / ADAPTERS / row["id"], ignore_errors=True)
                store.conn.execute("PRAGMA journal_mode = DELETE")
            with whole_file(path) as temporary:
                pack(made, temporary, str(manifest.get("version", "")), str(manifest.get("created", "")))
        except DiskFull:
            raise
        except MynahError:
            return Cleansed.UNREADABLE
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise
            return Cleansed.UNREADABLE
    return Cleansed.REWRITTEN


def foresee(home: Home, path: Path) -> Cleansed:
    """What will become of a backup that holds something, without touching it."""
    if not path.exists():
        return Cleansed.MISSING
    if not os.access(path.parent, os.W_OK):
        return Cleansed.UNREADABLE
    try:
        page, size = first_page(path)
    except ExchangeFileError:
        return Cleansed.UNREADABLE
    return Cleansed.REWRITTEN if cipher.opens(cipher.key_of(home.db), page, size) else Cleansed.LOCKED


def delete(path: Path) -> Cleansed:
    """Delete a backup, where everything is forgotten."""
    try:
        path.unlink()
    except FileNotFoundError:
        return Cleansed.MISSING
    except OSError:
        return Cleansed.UNREADABLE
    return Cleansed.DELETED
