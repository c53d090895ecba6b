"""Notes in which batches each position of the cache was computed: what a replay needs to get the same last digits.

Sixty-four tokens computed at once differ in their last digits from the same computed one by one, and a prompt's start
may have been computed turns ago, token by token, as somebody's reply. Drawn with a seed, a near tie then falls the
other way. So beside every sequence stands a list of its batches; what is computed of a row depends on how many rows
were computed with it, not on what they held, so a batch whose end was dropped again is its size and what is left.
An evaluation that was broken off leaves nothing behind and is not noted.

The trace wraps the lane because every evaluation passes there, whoever asks for it, a warming included; and it goes
with what is saved of a sequence, so that a conversation read back from the disk is known as well as one that stayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from app.host.jobs import Sampling
from app.host.prefix import PrefixCache, Slot
from app.host.runtime import BrokenOff, Lane, Sampler
from store.errors import MynahError

_FILLER = 0
"""A token for the part of a batch that was dropped: what it says does not reach the positions before it."""


class Batch(NamedTuple):
    """``times`` equal evaluations in a row: ``size`` tokens each, of which the first ``kept`` are still there."""

    kept: int
    size: int
    times: int


class Traced:
    """A lane that knows how what it holds was computed."""

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.sequences = lane.sequences
        self._batches: dict[int, list[Batch]] = {}

    def batches(self, sequence: int) -> tuple[Batch, ...]:
        """How the positions of a sequence were computed, from the first on."""
        return tuple(self._batches.get(sequence, ()))

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on."""
        self._lane.attach(adapter, scale)

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute tokens at a position of a sequence, and note how many at once."""
        self._lane.evaluate(tokens, position, sequence)
        size = len(tokens)
        noted = self._batches.setdefault(sequence, [])
        if noted and noted[-1][:2] == (size, size):
            noted[-1] = Batch(size, size, noted[-1].times + 1)
        else:
            noted.append(Batch(size, size, 1))

    def interrupt(self) -> None:
        """Break off the evaluation under way, and all to come."""
        self._lane.interrupt()

    def proceed(self) -> None:
        """Take an `interrupt` back."""
        self._lane.proceed()

    def sampler(self, sampling: Sampling, grammar: str | None, after: str | None = None) -> Sampler:
        """A sampler for one reply."""
        return self._lane.sampler(sampling, grammar, after)

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""
        self._lane.truncate(sequence, length)
        self._batches[sequence] = cut(self._batches.get(sequence, ()), length)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""
        self._lane.copy_prefix(source, target, length)
        self._batches[target] = cut(self._batches.get(source, ()), length)

    def save(self, sequence: int) -> bytes:
        """What the cache holds of a sequence, after a line that says how it was computed."""
        return json.dumps(self.batches(sequence)).encode() + b"\n" + self._lane.save(sequence)

    def restore(self, sequence: int, state: bytes) -> None:
        """Make a sequence what was saved.

        Raises:
            MynahError: it is not of this model and window, or does not say how it was computed.
        """
        line, _, held = state.partition(b"\n")
        try:
            batches = [Batch(*map(int, each)) for each in json.loads(line)]
        except (TypeError, ValueError):
            raise MynahError("a saved sequence does not say how it was computed") from None
        self._batches[sequence] = []
        self._lane.restore(sequence, held)
        self._batches[sequence] = batches

    def clear(self) -> None:
        """Drop all sequences."""
        self._lane.clear()
        self._batches.clear()

    def close(self) -> None:
        """Free it."""
        self._lane.close()


def evaluate_as_recorded(
    lane: Traced, cache: PrefixCache, slot: Slot, prompt: list[int], batches: Sequence[tuple[int, int, int]]
) -> Iterator[None]:
    """Bring a slot to a prompt in given batches, one evaluation between two borders; none follows the last."""
    lane.truncate(slot.sequence, 0)
    sizes = [(kept, size) for kept, size, times in batches for _ in range(times)]
    for number, (kept, size) in enumerate(sizes):
        if number:
            yield
        position = len(slot.tokens)
        piece = prompt[position : position + kept]
        while not _evaluated(lane, [*piece, *[_FILLER] * (size - kept)], position, slot.sequence):
            yield
        if kept < size:
            lane.truncate(slot.sequence, position + kept)
        cache.extend(slot, piece)


def _evaluated(lane: Traced, tokens: Sequence[int], position: int, sequence: int) -> bool:
    try:
        lane.evaluate(tokens, position, sequence)
    except BrokenOff:
        return False
    return True


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
