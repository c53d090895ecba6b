"""Leases by which the learner is made to wait, without a host: one that nobody holds, and one on a script."""

from __future__ import annotations


class Free:
    """A lease that nobody holds, and that counts how often it was looked at."""

    held = False
    signal = None

    def __init__(self) -> None:
        self.looks = 0

    def wait_until_free(self, max_wait: float) -> float:
        self.looks += 1
        return 0.0


class ScriptedLease:
    """A lease that is held for the next ``held_for`` looks; a wait sleeps in name only."""

    signal = None

    def __init__(self, held_for: int = 0, for_ever: bool = False) -> None:
        self.held_for = held_for
        self.for_ever = for_ever
        self.looks = 0

    @property
    def held(self) -> bool:
        return self.for_ever or self.held_for > 0

    def wait_until_free(self, max_wait: float) -> float:
        self.looks += 1
        if self.for_ever:
            return max_wait
        waited = 0.01 * self.held_for
        self.held_for = 0
        return waited
