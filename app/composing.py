"""What the writing of messages needs of the service: drafts, what was written before, and the owner's taste."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from store import conversations, drafts, settings
from store.db import Store

REMEMBERED = 200


@dataclass(frozen=True)
class Preferences:
    """How the owner wants the chat: a theme by name, and keys by the command they are for."""

    theme: str = "dark"
    keys: dict[str, str] = field(default_factory=dict)


class Composing(ABC):
    """The part of `app.service.Service` that serves the writing."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    def draft(self, conversation: str | None) -> str:
        """What was typed in a conversation, or on the empty page, and not sent."""
        return drafts.get(self.store, conversation)

    def keep_draft(self, conversation: str | None, text: str) -> None:
        """Replace that text."""
        drafts.keep(self.store, conversation, text)

    def written(self) -> list[str]:
        """The owner's last messages over all conversations, oldest first."""
        return drafts.written(self.store, REMEMBERED)

    def preferences(self) -> Preferences:
        """The owner's choices; a value that cannot be used counts as not chosen."""
        keys = settings.get(self.store, settings.KEYS)
        chosen = {str(name): str(value) for name, value in keys.items()} if isinstance(keys, dict) else {}
        return Preferences(str(settings.get(self.store, settings.THEME)), chosen)

    def offer_lesson(self) -> bool:
        """Whether the lesson is to be offered now: once, in a home where nothing was ever said."""
        store = self.store
        if not settings.get(store, settings.LESSON) or conversations.list_(store, 1):
            return False
        settings.put(store, settings.LESSON, False)
        return True

    def choose_theme(self, name: str) -> None:
        """Remember a theme."""
        settings.put(self.store, settings.THEME, name)
