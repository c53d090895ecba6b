"""What of a prompt need not be computed again: sequences of the KV cache by the tokens they hold.

A sequence is keyed by what it was computed with (adapter and scale; the base is the process's own), since a
switch of adapter does not touch the cache: tokens of one version read by another would be neither's.

Equal tokens do not make equal bits: 64 tokens computed at once differ in their last digits from the same 64
computed one by one, and at temperature 0 a near tie then falls the other way. A reply at temperature 0 must
not depend on what happened before it, so such a job reuses only positions that were computed in whole,
aligned chunks from the start, which is how a cold start would compute them: its own reply of the last turn is
computed again (0.6 s for 512 tokens on two cores), the prompt before that is not. Any other job reuses all.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

WORTH_COPYING = 128
"""Tokens. Copying a sequence of 4096 positions takes as long as computing some 20 to 60 tokens."""


@dataclass(eq=False)
class Slot:
    """One sequence of the cache: its tokens, and how many of them were computed as a cold start would.

    ``owner``: the conversation they are of, None where nothing of it may be kept. ``since``: wall-clock seconds of
    the oldest of them. While a reply is made in it, or waits half-made, a slot is ``pinned``.
    """

    sequence: int
    key: Hashable = None
    tokens: list[int] = field(default_factory=list)
    exact: int = 0
    used: int = 0
    owner: str | None = None
    since: float = 0.0
    pinned: bool = False


@dataclass(frozen=True)
class Plan:
    """How to bring a slot to a prompt: copy from another slot if named, keep so many positions, compute chunks."""

    slot: Slot
    source: Slot | None
    keep: int
    chunks: tuple[tuple[int, int], ...]


class PrefixCache:
    """The slots of one context, and the choice among them. Pure bookkeeping: the caller does what a plan says."""

    def __init__(self, sequences: int, chunk: int) -> None:
        self.chunk = chunk
        self.slots = [Slot(sequence) for sequence in range(sequences)]
        self._clock = itertools.count(1)

    def plan(self, key: Hashable, prompt: Sequence[int], *, exact: bool) -> Plan:
        """Choose a slot for a prompt (at least one token) and take it over; the last token is always computed.

        A pinned slot is never taken, only copied from; one at least must not be.
        """
        source, keep = self._best(key, prompt, exact)
        slot = self._target(source, prompt)
        if slot is not source and keep < WORTH_COPYING:
            source, keep = None, 0
        held = [] if source is None else source.tokens[:keep]
        computed = 0 if source is None else min(source.exact, keep)
        slot.key, slot.tokens, slot.used = key, held, next(self._clock)
        slot.exact = computed // self.chunk * self.chunk
        slot.since = source.since if source is not None and keep else time.time()
        slot.owner = None
        return Plan(slot, None if source is slot else source, keep, tuple(self._chunks(keep, len(prompt))))

    def extend(self, slot: Slot, tokens: Sequence[int]) -> None:
        """Note that these tokens were computed, in one evaluation, after what the slot holds."""
        if len(slot.tokens) == slot.exact and len(tokens) == self.chunk:
            slot.exact += self.chunk
        slot.tokens.extend(tokens)

    def fill(self, slot: Slot, key: Hashable, tokens: Sequence[int], like: Slot) -> None:
        """Note that a slot holds these tokens, computed before; the rest as with another slot."""
        slot.key, slot.tokens, slot.exact, slot.used = key, list(tokens), like.exact, next(self._clock)
        slot.owner, slot.since = like.owner, like.since

    def forget(self) -> None:
        """Drop everything, after an evaluation that failed half-way."""
        for slot in self.slots:
            slot.key, slot.tokens, slot.exact, slot.used, slot.owner = None, [], 0, 0, None

    def warm(self, key: Hashable, tokens: Sequence[int]) -> int:
        """How many leading tokens of a prompt are held now for this key, in any slot."""
        held = (common_prefix(slot.tokens, tokens) for slot in self.slots if slot.key == key)
        return max(held, default=0)

    @property
    def unused(self) -> bool:
        """Whether no slot holds anything."""
        return all(slot.key is None for slot in self.slots)

    def recent(self, key: Hashable) -> list[Slot]:
        """The slots that hold something for this key, the latest used first."""
        return sorted((slot for slot in self.slots if slot.key == key), key=lambda slot: -slot.used)

    def _best(self, key: Hashable, prompt: Sequence[int], exact: bool) -> tuple[Slot | None, int]:
        best: tuple[Slot | None, int] = (None, 0)
        for slot in self.slots:
            if slot.key != key:
                continue
            usable = min(common_prefix(slot.tokens, prompt), len(prompt) - 1)
            if exact:
                usable = min(usable, slot.exact) // self.chunk * self.chunk
            if usable > best[1]:
                best = (slot, usable)
        return best

    def _target(self, source: Slot | None, prompt: Sequence[int]) -> Slot:
        """The source itself where most of it stays, so that a chat keeps its slot; else the slot idle for longest."""
        if source is not None and not source.pinned:
            common = common_prefix(source.tokens, prompt)
            if len(source.tokens) - common <= common:
                return source
        free = [slot for slot in self.slots if not slot.pinned]
        others = [slot for slot in free if slot is not source]
        return min(others or free, key=lambda slot: (slot.key is not None, slot.used))

    def _chunks(self, start: int, end: int) -> list[tuple[int, int]]:
        """Whole chunks from where it goes on: aligned wherever that is of use, since nothing after an odd start is.

        Every evaluation reads all weights, so one more for the sake of alignment would be a third of a short turn.
        """
        return list(itertools.pairwise([*range(start, end, self.chunk), end]))


def common_prefix(left: Sequence[int], right: Sequence[int]) -> int:
    """How many leading tokens two sequences share."""
    length = min(len(left), len(right))
    return next((index for index in range(length) if left[index] != right[index]), length)
