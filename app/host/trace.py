"""Notes in which batches each position of the cache was computed: what a replay needs to get the same last digits.

Sixty-four tokens computed at once differ in their last digits from the same computed one by one, and a prompt's start
may have been computed turns ago, token by token, as somebody's reply. Drawn with a seed, a near tie then falls the
other way. So beside every sequence stands a list of its batches; what is computed of a row depends on how many rows
were computed with it, not on what they held, so a batch whose end was dropped again is its size and what is left.

The trace wraps the runtime because every evaluation passes there, whoever asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from app.host.jobs import Sampling
from app.host.prefix import PrefixCache, Slot
from app.host.runtime import Runtime, Sampler
from app.model.renderer import Fitted, Turn

_FILLER = 0
"""A token for the part of a batch that was dropped: what it says does not reach the positions before it."""


class Batch(NamedTuple):
    """``times`` equal evaluations in a row: ``size`` tokens each, of which the first ``kept`` are still there."""

    kept: int
    size: int
    times: int


class Traced:
    """A runtime that knows how what it holds was computed."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self.info = runtime.info
        self.chunk = runtime.chunk
        self.sequences = runtime.sequences
        self.stop_strings = runtime.stop_strings
        self._batches: dict[int, list[Batch]] = {}

    def batches(self, sequence: int) -> tuple[Batch, ...]:
        """How the positions of a sequence were computed, from the first on."""
        return tuple(self._batches.get(sequence, ()))

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        """The prompt for a conversation."""
        return self._runtime.fit(turns, reserve)

    def continuation(self, text: str) -> list[int]:
        """The tokens of a reply that has come as far as this text."""
        return self._runtime.continuation(text)

    def is_end(self, token: int) -> bool:
        """Whether this token ends a reply."""
        return self._runtime.is_end(token)

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text."""
        return self._runtime.piece(token)

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on."""
        self._runtime.attach(adapter, scale)

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute tokens at a position of a sequence, and note how many at once."""
        self._runtime.evaluate(tokens, position, sequence)
        size = len(tokens)
        noted = self._batches.setdefault(sequence, [])
        if noted and noted[-1][:2] == (size, size):
            noted[-1] = Batch(size, size, noted[-1].times + 1)
        else:
            noted.append(Batch(size, size, 1))

    def sampler(self, sampling: Sampling) -> Sampler:
        """A sampler for one reply."""
        return self._runtime.sampler(sampling)

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""
        self._runtime.truncate(sequence, length)
        self._batches[sequence] = cut(self._batches.get(sequence, ()), length)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""
        self._runtime.copy_prefix(source, target, length)
        self._batches[target] = cut(self._batches.get(source, ()), length)

    def clear(self) -> None:
        """Drop all sequences."""
        self._runtime.clear()
        self._batches.clear()

    def close(self) -> None:
        """Free the model."""
        self._runtime.close()


def evaluate_as_recorded(
    runtime: Traced,
    cache: PrefixCache,
    prompt: list[int],
    batches: Sequence[tuple[int, int, int]],
    between: Callable[[], None],
) -> Slot:
    """Compute a prompt in given batches, in a sequence of its own; returns its slot."""
    # A key that equals nothing else: neither is anything reused here, nor this by anything later.
    slot = cache.plan(object(), prompt, exact=True).slot
    runtime.truncate(slot.sequence, 0)
    position = 0
    for kept, size, times in batches:
        for _ in range(times):
            between()
            piece = prompt[position : position + kept]
            runtime.evaluate([*piece, *[_FILLER] * (size - kept)], position, slot.sequence)
            position += kept
            if kept < size:
                runtime.truncate(slot.sequence, position)
            cache.extend(slot, piece)
    return slot


def cut(batches: Sequence[Batch], length: int) -> list[Batch]:
    """What is left of some batches when only the first ``length`` positions are kept."""
    left: list[Batch] = []
    for kept, size, times in batches:
        whole = min(times, length // kept)
        if whole:
            left.append(Batch(kept, size, whole))
        length -= whole * kept
        if whole < times:
            if length:
                left.append(Batch(length, size, 1))
            break
    return left


def positions(batches: Sequence[Batch]) -> int:
    """How many positions some batches come to."""
    return sum(kept * times for kept, _, times in batches)
