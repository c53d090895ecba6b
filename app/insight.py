"""What the owner can see of the learning, and how conversations are found and sorted: the reading half of the service.

Kept apart from `app.service` because none of it can fail for want of a host: each call is a short look at the store,
or one small change of what only the list of conversations shows.
"""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod

from store import conversations, finding, labels, progress, runs, settings, story, timeline
from store.conversations import Conversation
from store.db import Store
from store.progress import Tally
from store.search import Hit
from store.story import Story
from store.timeline import Moment, Since
from store.types import RunOutcome, Shelf

_CARRIED_OUT = (RunOutcome.PROMOTED, RunOutcome.REJECTED)
_RECENT_RUNS = 20


class Insight(ABC):
    """The part of `app.service.Service` that looks."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    @abstractmethod
    def base_hash(self) -> str:
        """The identity of the model in use."""

    def story(self, message: str) -> Story:
        """What was said of a reply, what was made of it, and which versions and decisions came of that."""
        return story.of(self.store, message)

    def progress_by_day(self, since: str) -> dict[str, Tally]:
        """How content the owner was, by local date, from a moment on (as `ids.now` writes it)."""
        return progress.by_day(self.store, since)

    def progress_by_adapter(self) -> dict[str | None, Tally]:
        """How content the owner was with the replies of each adapter; None is the base model."""
        return progress.by_adapter(self.store)

    def timeline(self) -> list[Moment]:
        """What happened to the versions of the model in use, oldest first."""
        return timeline.moments(self.store, self.base_hash())

    def changes(self, since: str) -> Since:
        """What changed since a moment (as `ids.now` writes it)."""
        return timeline.changes(self.store, self.base_hash(), since)

    def usual_seconds(self) -> float | None:
        """How long a learning run takes as a rule: the median of the last five that were carried out."""
        took = [
            float(run.result["seconds"])
            for run in runs.list_(self.store, _RECENT_RUNS)
            if run.outcome in _CARRIED_OUT and run.result.get("seconds")
        ]
        return statistics.median(took[:5]) if took else None

    def find(self, text: str, limit: int = 50) -> list[Hit]:
        """Messages by words and filters, as in ``egg rated:down since:7d``; newest first.

        Raises:
            UsageError: nothing is sought, or a filter has a value it does not know.
        """
        return finding.find(self.store, finding.parse(text), limit)

    def reply_to(self, message: str) -> str | None:
        """The newest reply to one of the owner's messages."""
        below = conversations.children(self.store, message)
        return below[-1].id if below else None

    def archived(self, limit: int = 200) -> list[Conversation]:
        """The conversations that are out of the list."""
        return conversations.list_(self.store, limit, Shelf.ARCHIVED)

    def pin_conversation(self, conversation: str) -> None:
        """Keep a conversation at the top of the list."""
        labels.pin(self.store, conversation)

    def unpin_conversation(self, conversation: str) -> None:
        """Let a conversation take its place by time again."""
        labels.unpin(self.store, conversation)

    def archive(self, conversation: str) -> None:
        """Take a conversation out of the list; a search still finds it."""
        labels.archive(self.store, conversation)

    def unarchive(self, conversation: str) -> None:
        """Put a conversation back into the list."""
        labels.unarchive(self.store, conversation)

    def set_tags(self, conversation: str, tags: list[str]) -> list[str]:
        """Give a conversation exactly these tags; returns them as they are stored."""
        return labels.set_tags(self.store, conversation, tags)

    def tags(self) -> dict[str, int]:
        """Every tag with the number of conversations that have it."""
        return labels.all_tags(self.store)

    def wants_titles(self) -> bool:
        """Whether the model may name conversations."""
        return bool(settings.get(self.store, settings.TITLES))

    def bring_into_path(self, message: str) -> None:
        """Show the branch that a message is on, unless the visible one has it already."""
        found = conversations.get_message(self.store, message)
        head = conversations.get(self.store, found.conversation).head
        if head is None or all(each.id != message for each in conversations.path(self.store, head)):
            conversations.select(self.store, message)

    def untitled(self, conversation: str) -> str | None:
        """The first question of a conversation that was answered and still bears its first line as its title."""
        return labels.untitled(self.store, conversation)

    def entitle(self, conversation: str, title: str) -> bool:
        """Give a conversation a title that the model made; False where the owner has named it meanwhile."""
        return labels.entitle(self.store, conversation, title)
