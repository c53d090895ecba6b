"""What Mynah decides about itself, for its owner: why, whether it worked, and taking it back.

All of it is short transactions on the store, so it works while the host is down; the host's controller reads what was
ordered at its next look.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from store import changes, decisions, selfview, steering
from store.db import Store
from store.decisions import Decision
from store.selfview import SelfView, Told
from store.steering import Done


class Governing(ABC):
    """The part of `app.service.Service` that speaks about decisions."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    def decisions(self, limit: int = 50, without: Sequence[str] = ()) -> list[Decision]:
        """What was decided, newest first, but for some kinds of records."""
        return decisions.list_(self.store, limit, without)

    def why(self, decision: str) -> Told:
        """One decision with all that followed from it."""
        return selfview.told(self.store, decision)

    def undo(self, decision: str) -> Done:
        """Take a decision back; see `store.steering.undo`."""
        return steering.undo(self.store, decision)

    def approve(self, decision: str) -> Done:
        """Carry out what waits for the owner's word."""
        return steering.approve(self.store, decision)

    def decline(self, decision: str) -> Done:
        """Say no to what waits for the owner's word."""
        return steering.decline(self.store, decision)

    def freeze(self, on: bool) -> None:
        """Let nothing be changed by itself any more, or again."""
        steering.freeze(self.store, on)

    def self_view(self) -> SelfView:
        """What the agent knows of itself, read from the evidence and the decisions."""
        return selfview.of(self.store)

    def log_fault(self) -> str | None:
        """The first record of the log that was tampered with, or that its own rules do not lead to; None if sound."""
        return decisions.broken_at(self.store) or next(iter(changes.unlike(self.store)), None)
