"""Whole files or none: what is written here appears under its name complete, on the disk, or not at all.

A model or an adapter that is half there would be loaded at the next start, and half a backup trusted, so nothing is
written under its final name: the file is made beside it, forced to the disk, and renamed, one step under POSIX.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from store.errors import DiskFull, HomeError

# None: numpy reports a short write ("884736 requested and 204272 written") without the number of the error.
_FULL = (errno.ENOSPC, errno.EDQUOT, None)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to: it becomes `path` at the end of the block, or is removed if that raised.

    Raises DiskFull and HomeError (cannot be written), each with one line.
    """
    temporary: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
        os.close(descriptor)
        temporary = Path(name)
        yield temporary
        force_to_disk(temporary)
        temporary.replace(path)
        force_to_disk(path.parent)
    except OSError as error:
        if error.errno in _FULL:
            raise DiskFull(
                f"the disk is full and {path} was not written: free some space and try again"
            ) from error
        raise HomeError(
            f"cannot write {path} ({error.strerror or error}): check the owner of its directory"
        ) from error
    finally:
        if temporary is not None:
            with suppress(FileNotFoundError):
                temporary.unlink()


def force_to_disk(path: Path) -> None:
    """Wait until a file's content, or a directory's entries, would survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
