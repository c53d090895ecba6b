"""What any teacher gives back, so that a round need not know which one it asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from learner.examples import Example


@dataclass(frozen=True)
class Taught:
    """An example with what was accepted, why the other replies were refused, and why its hint was left out, if it was.

    A local teacher's replies are in `accepted`; an endpoint's one is in `chosen`, since it is a text and no more.
    """

    example: Example
    refused: tuple[str, ...]
    dropped: str | None = None


class Teaches(Protocol):
    """Writes replies to hinted examples. Close it."""

    def teach(
        self, examples: Sequence[Example], seed: int, told: Callable[[float], None]
    ) -> list[Taught]: ...
    def close(self) -> None: ...
