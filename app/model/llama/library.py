"""Starts llama.cpp, and sends what it says to Python's logging.

It would write to file descriptor 2, which is where a full-screen terminal program draws, and no redirection of
Python's own stderr reaches it. So the callback is set as soon as the library is loaded, before it can say anything.
"""

from __future__ import annotations

import logging
import re

import llama_cpp

from store.errors import MynahError, OutOfMemory

log = logging.getLogger("mynah.llama")
# A program that sets up no logging must not get its warnings on the terminal by Python's last resort.
log.addHandler(logging.NullHandler())

# ggml.h: 1 debug, 2 info, 3 warning, 4 error. Its "info" is a hundred lines per model, so it is debug here.
_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}


class LlamaError(MynahError):
    """llama.cpp refused a computation: out of memory, or a decode that failed."""


class LlamaMemoryError(LlamaError, OutOfMemory):
    """There is no memory for a context."""


def library_version() -> str:
    """The library and its version: another one may compute other last digits."""
    return f"llama-cpp-python {llama_cpp.__version__}"


class BrokenOff(LlamaError):
    """An evaluation ended early because `LlamaContext.interrupt` asked for it."""


# Lines of "error" for each evaluation that was broken off because we asked for it (GGML_STATUS_ABORTED is 1, and
# llama_decode then returns 2): a log full of them hides the errors that are some. The last follows any failure.
_BROKEN_OFF = re.compile(
    r"compute_async failed with error 1$|compute status: 1$|failed to decode, ret = 2$|: removing memory module entries"
)


def _forward_log(level: int, text: bytes, _user_data: object) -> None:
    # Level 5 continues a line (progress dots), level 0 has no message: both are dropped.
    if level in _LEVELS:
        line = text.decode("utf-8", "replace").rstrip()
        log.log(logging.DEBUG if _BROKEN_OFF.search(line) else _LEVELS[level], "%s", line)


# A module global, so that it lives as long as the library may call it.
_LOG_CALLBACK = llama_cpp.llama_log_callback(_forward_log)
llama_cpp.llama_log_set(_LOG_CALLBACK, None)
llama_cpp.llama_backend_init()
