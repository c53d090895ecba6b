"""What running a step again would show. One pure function decides, when the step is written; the answer is stored.

A reply is deterministic where everything that its arithmetic depends on was written down: the weights, the tokens,
the sampler with its seed, the program and processor, and in which batches the prompt was computed. The last one is
no pedantry: a prompt of which a part was still in the cache has other last digits than one computed afresh, and at a
near tie another word is drawn. What a reply took over from the one it goes on with counts as its prompt: these tokens
are given again, not drawn, and how many they are stands in the sampler's settings. Where one of these is missing a
replay is a comparison, not a proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from store.types import EventKind, ReplayClass

PURE = "pure"
"""Key of a step's metadata: true where what was called has no state, so that calling it again gives the same."""

_SAMPLER = ("temperature", "top_p", "top_k", "repeat_penalty")
_MACHINE = ("engine", "mynah", "cpu", "threads", "evaluated")


@dataclass(frozen=True)
class Recorded:
    """What is known of a model call. ``prompt`` and ``completion`` are counts of tokens."""

    base_hash: str | None
    sampler: Mapping[str, Any]
    prompt: int
    completion: int
    machine: Mapping[str, Any] = field(default_factory=dict)


def of_model_call(call: Recorded) -> ReplayClass:
    """The class of a reply."""
    if not (call.base_hash and call.prompt and call.completion and "temperature" in call.sampler):
        return ReplayClass.NOT_REPLAYABLE
    drawn = call.sampler["temperature"] > 0
    settled = all(name in call.sampler for name in _SAMPLER) and (not drawn or "seed" in call.sampler)
    computed = all(call.machine.get(name) for name in _MACHINE)
    return ReplayClass.DETERMINISTIC if settled and computed else ReplayClass.APPROXIMATE


def of_step(kind: EventKind, metadata: Mapping[str, Any]) -> ReplayClass:
    """The class of a step that is no model call. What a person said or did happened once."""
    if kind is EventKind.GUARD_VERDICT:
        return ReplayClass.DETERMINISTIC if metadata.get(PURE) is not False else ReplayClass.APPROXIMATE
    if kind in (EventKind.TOOL_CALL, EventKind.MEMORY_READ):
        return ReplayClass.DETERMINISTIC if metadata.get(PURE) is True else ReplayClass.APPROXIMATE
    return ReplayClass.NOT_REPLAYABLE
