"""Which processor computed: the same weights and tokens give other last digits where other instructions are used.

A short hash stands for it. It says whether two replies were computed on the same kind of processor, and nothing that
would tell an owner's machine from another of its kind.
"""

from __future__ import annotations

import hashlib
import platform
from functools import cache
from pathlib import Path
from typing import Any

from app import __version__
from app.host.runtime import ModelInfo

_CPUINFO = Path("/proc/cpuinfo")
_TELLING = ("model name", "flags", "Features", "CPU part")


def machine_of(info: ModelInfo) -> dict[str, Any]:
    """What a reply's arithmetic depends on besides weights and tokens."""
    threads = {"decode": info.decode_threads, "batch": info.batch_threads}
    return {"engine": info.engine, "mynah": __version__, "cpu": fingerprint(), "threads": threads}


@cache
def fingerprint() -> str:
    """Twelve hex digits for the kind of processor: its name and its instructions."""
    return hashlib.sha256("\n".join([platform.machine(), *_lines()]).encode()).hexdigest()[:12]


def _lines() -> list[str]:
    try:
        lines = _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return [platform.processor()]
    found: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in _TELLING:
            found.setdefault(name.strip(), value.strip())
    return [f"{name}={value}" for name, value in sorted(found.items())]
