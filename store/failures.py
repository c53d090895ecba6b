"""Which class a failure is of: one function, and one rule for what a class means.

A failure of the machinery says nothing about what the model can do. Counting it would teach the model that a full
disk was its fault, so whoever reads quality out of replies asks `counts_as_quality` first, and what nobody can name
counts as the machinery's too: a personal model must not train on noise.
"""

from __future__ import annotations

import errno

from store.errors import (
    AdapterFileError,
    ContextOverflow,
    DiskFull,
    HostSilent,
    HostUnavailable,
    Interrupted,
    ModelFileError,
    OutOfMemory,
)
from store.types import ErrorClass

_CLASSES: list[tuple[type[BaseException], ErrorClass]] = [
    (ContextOverflow, ErrorClass.CONTEXT_OVERFLOW),
    (DiskFull, ErrorClass.DISK_FULL),
    (HostSilent, ErrorClass.TIMEOUT),
    (HostUnavailable, ErrorClass.HOST_DOWN),
    (ModelFileError, ErrorClass.LOAD_FAILED),
    (AdapterFileError, ErrorClass.LOAD_FAILED),
    (Interrupted, ErrorClass.CANCELLED),
    (OutOfMemory, ErrorClass.OUT_OF_MEMORY),
    (MemoryError, ErrorClass.OUT_OF_MEMORY),
    (TimeoutError, ErrorClass.TIMEOUT),
    (ConnectionError, ErrorClass.HOST_DOWN),
]
"""The first that fits decides, so the special stand before the general."""

_CODES = {
    errno.ENOSPC: ErrorClass.DISK_FULL,
    errno.EDQUOT: ErrorClass.DISK_FULL,
    errno.ENOMEM: ErrorClass.OUT_OF_MEMORY,
}


def class_of(error: BaseException) -> ErrorClass:
    """The class of any exception; unknown where it is none of those that have one."""
    if isinstance(error, OSError) and error.errno in _CODES:
        return _CODES[error.errno]
    return next((found for kind, found in _CLASSES if isinstance(error, kind)), ErrorClass.UNKNOWN)


def counts_as_quality(error_class: ErrorClass | None) -> bool:
    """Whether a reply that ended like this says anything about the model: only one that met no failure does."""
    return error_class is None
