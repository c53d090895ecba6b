"""What the engine needs of a model, as a protocol: llama.cpp behind one class, a script behind another.

The scripted twin is how queue, cancel, capture and wire format are tested without weights, at the speed and
with the failures a test dictates. Nothing here knows which of the two it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from app.host.jobs import Sampling
from app.model.renderer import Fitted, Turn


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


class Sampler(Protocol):
    """Draws the tokens of one reply."""

    def sample(self) -> tuple[int, float]:
        """The next token from the last evaluation, and its natural log-probability at temperature 1."""

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        """The likeliest tokens of the evaluation that was sampled last, likeliest first, as `sample` gives them."""

    def close(self) -> None:
        """Free what it holds."""


class Runtime(Protocol):
    """One loaded model. `fit`, `is_end` and `piece` may be called in any thread, the rest in the engine's alone."""

    info: ModelInfo
    chunk: int
    sequences: int
    stop_strings: tuple[str, ...]

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        """The prompt for a conversation, oldest turns left out where the window is too small."""

    def is_end(self, token: int) -> bool:
        """Whether this token ends a reply."""

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text; none for special tokens."""

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on. Raises AdapterFileError and keeps the one before."""

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute at most ``chunk`` tokens at a position of a sequence."""

    def sampler(self, sampling: Sampling, grammar: str | None) -> Sampler:
        """A sampler for one reply. Raises UsageError where the grammar cannot be used."""

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""

    def clear(self) -> None:
        """Drop all sequences."""

    def close(self) -> None:
        """Free the model."""
