"""What the engine needs of a model, as two protocols: llama.cpp behind one pair of classes, a script behind another.

The scripted twin is how queue, cancel, capture and wire format are tested without weights, at the speed and
with the failures a test dictates. Nothing here knows which of the two it is.

A model is loaded once; a lane is one place where it computes, with an adapter and a cache of its own. Two lanes
may compute at once in two threads, which is what lets a new version be warmed while the one before still writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.host.jobs import Sampling
from app.model.renderer import Fitted, Turn

STEPS = 4
"""A conversation that is too long loses a quarter of its room at once: were it cut further with every turn, the whole
window would be computed again for each."""


class BrokenOff(Exception):
    """An evaluation ended early because `Lane.interrupt` asked for it; the sequence holds what it held before."""


@dataclass(frozen=True)
class ModelInfo:
    """What is served. ``context``: tokens of one conversation's window; ``template``: the renderer's fingerprint."""

    name: str
    base_hash: str
    served: str
    context: int
    template: str
    decode_threads: int
    batch_threads: int
    engine: str = ""
    """The library that computes, with its version."""


class Sampler(Protocol):
    """Draws the tokens of one reply."""

    def sample(self) -> tuple[int, float]:
        """The next token from the last evaluation, and its natural log-probability at temperature 1."""

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        """The likeliest tokens of the evaluation that was sampled last, likeliest first, as `sample` gives them."""

    def close(self) -> None:
        """Free what it holds."""


class Encoder(Protocol):
    """Turns texts into vectors whose products are cosines. For one thread at a time."""

    name: str

    def reads(self, text: str) -> bool:
        """Whether its vectors say something of a text."""

    def embed(self, text: str) -> Sequence[float]:
        """The vector of a text, of length 1."""

    def close(self) -> None:
        """Free it."""


class Lane(Protocol):
    """One place to compute. Belongs to one thread at a time; `interrupt` alone may be called in any."""

    sequences: int

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on. Raises AdapterFileError and keeps the one before."""

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute at most ``chunk`` tokens at a position of a sequence. Raises BrokenOff."""

    def interrupt(self) -> None:
        """Break off the evaluation under way, and all to come until `proceed`."""

    def proceed(self) -> None:
        """Take an `interrupt` back."""

    def sampler(self, sampling: Sampling, grammar: str | None, after: str | None = None) -> Sampler:
        """A sampler for one reply; the grammar holds from the text ``after`` on, or from the start.

        Raises UsageError where the grammar cannot be used.
        """

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""

    def save(self, sequence: int) -> bytes:
        """What the cache holds of a sequence, for `restore`."""

    def restore(self, sequence: int, state: bytes) -> None:
        """Make a sequence what was saved. Raises MynahError where it is not of this model and window."""

    def clear(self) -> None:
        """Drop all sequences."""

    def close(self) -> None:
        """Free it."""


class Runtime(Protocol):
    """One loaded model. All of it may be called in any thread."""

    info: ModelInfo
    chunk: int
    stop_strings: tuple[str, ...]

    @property
    def lane(self) -> Lane:
        """The lane that was made when the model was loaded."""

    def spare_lane(self) -> Lane | None:
        """Another lane; None where there is no memory for it."""

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        """The prompt for a conversation, oldest turns left out in steps where the window is too small."""

    def continuation(self, text: str) -> list[int]:
        """The tokens of a reply that has come as far as this text."""

    def is_end(self, token: int) -> bool:
        """Whether this token ends a reply."""

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text; none for special tokens."""

    def encoder(self) -> Encoder | None:
        """Load what compares texts by meaning; None where there is no such thing. Raises MynahError."""

    def close(self) -> None:
        """Free the model, and its lanes."""
