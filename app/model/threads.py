"""How many threads compute: measured, because it depends on the machine, and never all of them.

Decoding is bound by memory: with SmolLM2 one thread gives 134 tokens a second and two give 139. But
llama.cpp's threads spin where they wait for each other, so with as many as there are cores any other busy
program stalls them all (0.4 tokens a second was seen). One core is therefore always left free, and of what
is left the smallest number within a tenth of the best is taken.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from app.model.llama import ContextSettings, LlamaContext, LlamaModel

_TOLERANCE = 1.10
_TOKENS = 6
_ROUNDS = 2


@dataclass(frozen=True)
class Threads:
    """Threads for single tokens (`decode`) and for prompts (`batch`, bound by arithmetic)."""

    decode: int
    batch: int


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0))


def choose_threads(model: LlamaModel) -> Threads:
    """Measure decoding with 1, 2, 4, … threads up to all cores but one. Takes 0.2 s per step with SmolLM2."""
    most = max(1, usable_cores() - 1)
    if most == 1:
        return Threads(decode=1, batch=1)
    context = model.context(ContextSettings(n_ctx=256))
    try:
        seconds: dict[int, float] = {}
        for threads in _candidates(most):
            seconds[threads] = _seconds_per_token(context, threads)
            # More threads have stopped helping: the machine is at its memory's speed.
            if seconds[threads] > min(seconds.values()) * _TOLERANCE:
                break
    finally:
        context.close()
    return Threads(decode=smallest_near_best(seconds), batch=most)


def smallest_near_best(seconds: dict[int, float]) -> int:
    """The smallest number of threads whose time per token is within a tenth of the best."""
    best = min(seconds.values())
    return min(threads for threads, taken in seconds.items() if taken <= best * _TOLERANCE)


def _candidates(most: int) -> list[int]:
    steps = [1]
    while steps[-1] * 2 < most:
        steps.append(steps[-1] * 2)
    return [*steps, most]


def _seconds_per_token(context: LlamaContext, threads: int) -> float:
    context.set_threads(threads, threads)
    context.clear()
    context.evaluate([0], 0)
    best = float("inf")
    for round_ in range(_ROUNDS):
        start = time.perf_counter()
        for index in range(_TOKENS):
            context.evaluate([0], 1 + round_ * _TOKENS + index)
        best = min(best, (time.perf_counter() - start) / _TOKENS)
    return best
