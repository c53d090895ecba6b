"""Whether a context fits in memory, asked before llama.cpp is: it would not say no.

Linux grants memory that it does not have, and llama.cpp clears what it was granted: a window that is too
large does not fail, it gets the process killed. So the cache's size is computed first and compared with what
the system calls available.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
# Left for the weights' pages that are not read yet, the graph's buffers (12 MiB for SmolLM2) and everybody else.
_SPARE_BYTES = 256 * 2**20
_F16_BYTES = 2


@dataclass(frozen=True)
class CacheShape:
    """What decides the size of a key and value cache: layers, and the width of a token's keys and values."""

    layers: int
    key_width: int
    value_width: int

    def bytes(self, tokens: int) -> int:
        """Size of the cache of so many tokens, kept in F16."""
        return tokens * self.layers * (self.key_width + self.value_width) * _F16_BYTES


def fits(needed: int) -> bool:
    """Whether so many bytes can be used without pushing something else out; true if unknown."""
    available = available_bytes()
    return available is None or needed + _SPARE_BYTES <= available


def available_bytes() -> int | None:
    """What Linux estimates as usable without swapping; None on systems without /proc."""
    try:
        lines = _MEMINFO.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None
