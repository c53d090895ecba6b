"""How strongly what was learned speaks: everywhere and in one conversation, for the chat and the commands alike."""

from __future__ import annotations

from abc import ABC, abstractmethod

from store import settings, strengths
from store.db import Store


class Strengths(ABC):
    """The part of `app.service.Service` that serves the choice of strength."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    def strength(self, conversation: str | None = None) -> float | None:
        """The strength everywhere; with a conversation the one chosen for it, None where it has none of its own."""
        if conversation is not None:
            return strengths.of(self.store, conversation)
        return float(settings.get(self.store, settings.ADAPTER_STRENGTH))

    def choose_strength(self, strength: float | None, conversation: str | None = None) -> None:
        """From the next reply on; None goes back to what holds without a choice.

        Raises:
            UsageError: it is not between 0 and 1.
            NotFound: there is no such conversation.
        """
        if conversation is not None:
            strengths.choose(self.store, conversation, strength)
        else:
            strengths.checked(strength)
            settings.put(self.store, settings.ADAPTER_STRENGTH, strength)
