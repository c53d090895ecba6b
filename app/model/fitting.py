"""What a model takes and what this machine has, so that nobody fetches a gigabyte to learn that it does not fit.

Three sums. Weights: a quantised file is repacked for the processor, and what was measured after loading is up to 1.7
times the file (1117 MB took 1806 MiB); models up to 700 million weights are served as F16, two bytes a weight. Cache:
layers x (keys + values) x tokens x two bytes, for each conversation that is kept computed. Teaching: the weights in
single precision with gradients of an adapter, measured as 1.9 GiB for 135 million and 5.1 GiB for 630 million
weights, so about seven bytes a weight and 0.9 GiB beside them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from enum import StrEnum

from app.model.catalogue import F16_MAX_PARAMETERS
from app.model.gguf_info import GgufInfo
from app.model.memory import CacheShape

GIB = 2**30
CONVERSATIONS = 3
"""The fewest that the host keeps computed: one for each level of priority."""
_REPACKED = 1.7
_F16_BYTES = 2
_TEACHING_BYTES = 7
_TEACHING_BESIDE = int(0.9 * GIB)
_FOR_OTHERS = GIB
"""Left to the system and everything else that is open."""
_LEAST_WINDOW = 512


class Fit(StrEnum):
    """How a model suits a machine."""

    LEARNS = "fits"
    CHATS = "chats, too large to learn"
    NOT = "too large"


@dataclass(frozen=True)
class Gpu:
    """A GPU by name, with its memory in bytes."""

    name: str
    memory: int


@dataclass(frozen=True)
class Machine:
    """What there is: memory in bytes, cores that may be used, GPUs."""

    memory: int
    cores: int
    gpus: tuple[Gpu, ...] = ()


@dataclass(frozen=True)
class Needs:
    """Bytes of memory: the weights as they are served, the cache of the window, and learning beside them."""

    weights: int
    cache: int
    teaching: int

    @property
    def chat(self) -> int:
        """What answering takes."""
        return self.weights + self.cache


@dataclass(frozen=True)
class Advice:
    """What a model takes here, and how that suits; ``longest`` is the longest window that would fit, in tokens."""

    needs: Needs
    fit: Fit
    longest: int


def shape_of(info: GgufInfo) -> CacheShape:
    """What one token takes in a model's cache, from its file's header."""
    architecture = info.architecture
    width = info.number(f"{architecture}.embedding_length")
    head = width // max(1, info.heads)
    key = info.number(f"{architecture}.attention.key_length", head)
    value = info.number(f"{architecture}.attention.value_length", head)
    layers = info.number(f"{architecture}.block_count")
    return CacheShape(layers, info.kv_heads * key, info.kv_heads * value)


def needs(size: int, parameters: int, shape: CacheShape, window: int) -> Needs:
    """What a file of so many bytes and weights takes with a window of so many tokens."""
    small = parameters <= F16_MAX_PARAMETERS
    weights = parameters * _F16_BYTES if small else int(size * _REPACKED)
    return Needs(
        weights, shape.bytes(window * CONVERSATIONS), parameters * _TEACHING_BYTES + _TEACHING_BESIDE
    )


def advise(machine: Machine, needed: Needs, shape: CacheShape, trained: int) -> Advice:
    """How a model suits a machine. ``trained`` is the longest window it was made for, 0 where that is unknown."""
    room = machine.memory - _FOR_OTHERS
    if needed.chat > room:
        fit = Fit.NOT
    elif needed.chat + needed.teaching > room:
        fit = Fit.CHATS
    else:
        fit = Fit.LEARNS
    per_token = max(1, shape.bytes(CONVERSATIONS))
    longest = max(0, room - needed.weights) // per_token
    longest = min(longest, trained) if trained else longest
    return Advice(needed, fit, longest if longest >= _LEAST_WINDOW else 0)


def this_machine() -> Machine:
    """What there is here; asks `nvidia-smi` where that is installed (0.1 s)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), cores, tuple(_gpus()))


def _gpus() -> list[Gpu]:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name,memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(query, capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.SubprocessError):
        return []
    return gpus_in(answer.stdout) if answer.returncode == 0 else []


def gpus_in(listing: str) -> list[Gpu]:
    """The GPUs of nvidia-smi's list, ``name, MiB`` a line."""
    found = []
    for line in listing.splitlines():
        name, _, size = line.rpartition(",")
        if size.strip().isdigit():
            found.append(Gpu(name.strip(), int(size) * 2**20))
    return found
