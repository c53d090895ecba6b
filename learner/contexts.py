"""Contexts of the learner's own on the served file: all cores, large batches, and out of the way when a reply begins.

Threads that never wait for each other while somebody is answered may be many, and an evaluation that can be broken off
may be long: 64 prompt tokens on two cores are 160 ms (401 tokens/s, against 95 for batches of 16 on one), which a
reply would otherwise share its caches and its memory bus with. llama.cpp asks at each operation of the graph whether
to go on; it is given the lease itself to look at.
"""

from __future__ import annotations

from pathlib import Path

from app.model.llama import ContextSettings, LlamaContext, LlamaModel
from learner.yielding import Yielding, usable_threads

_BATCH = 64


def load_served(path: Path) -> LlamaModel:
    """The served file, all of it on the processor (see device.py). Close it. Raises ModelFileError."""
    return LlamaModel.load(path, gpu_layers=0)


def polite_context(model: LlamaModel, yielding: Yielding, window: int, sequences: int = 1) -> LlamaContext:
    """A context of ``sequences`` windows that breaks off its evaluation when a reply begins and repeats it after.

    Close it. Raises LlamaMemoryError when there is no memory for it.
    """
    threads = usable_threads()
    context = model.context(ContextSettings(window, sequences, threads, threads, _BATCH))
    if yielding.signal is not None:
        context.give_way(yielding.signal, yielding.within)
    return context
