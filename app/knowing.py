"""What Mynah knows of its owner, and the rules and guards it keeps to: read and changed, for chat and commands.

Everything the owner does here is typed as what it is, so it holds at once. Guards go through `app.harness.guards`,
which refuses parameters that no check could work with.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from app.harness import guards, recall
from app.harness.statements import stated
from store import forgetting, items, purging
from store.db import Store
from store.forgetting import Forgetting
from store.items import TYPED, Item
from store.types import ItemKind, ItemState, Scope

_TOPIC_WORDS = 6


class Knowing(ABC):
    """The part of `app.service.Service` that serves memories, instructions and guards."""

    @property
    @abstractmethod
    def store(self) -> Store:
        """The calling thread's connection."""

    def items(self, kind: ItemKind | None = None, states: Sequence[ItemState] | None = None) -> list[Item]:
        """The newest version of each topic, newest first; see `store.items.list_`."""
        return items.list_(self.store, kind, states)

    def item(self, item: str) -> Item:
        """One memory, instruction or guard."""
        return items.get(self.store, item)

    def item_versions(self, item: str) -> list[Item]:
        """Everything that was ever said of an item's topic, oldest first."""
        found = items.get(self.store, item)
        return items.versions(self.store, found.kind, found.topic)

    def item_diff(self, item: str, other: str | None = None) -> str:
        """What changed up to an item from another one, or from the version before it, as a unified diff."""
        found = items.get(self.store, item)
        earlier = items.before(self.store, found) if other is None else items.get(self.store, other)
        return items.diff(earlier, found)

    def item_uses(self, item: str) -> int:
        """How many replies an item reached."""
        return len(items.uses(self.store, item))

    def add_item(
        self, kind: ItemKind, body: dict[str, Any], topic: str | None = None, seconds: float | None = None
    ) -> Item:
        """Add what the owner typed; it holds at once, and takes the place of what was said of the topic before.

        Raises:
            UsageError: it is empty, too long, or a guard that cannot be.
        """
        checked = checked_body(kind, body)
        return items.add(
            self.store,
            kind,
            topic or topic_of(kind, checked),
            checked,
            source=TYPED,
            confidence=1.0,
            state=ItemState.ACTIVE,
            expires=None if seconds is None else items.seconds_from_now(seconds),
        )

    def edit_item(self, item: str, body: dict[str, Any]) -> Item:
        """The owner's own version of an item, as its next one.

        Raises:
            UsageError: nothing is changed, or it is a guard that cannot be.
        """
        found = items.get(self.store, item)
        return items.edit(self.store, item, checked_body(found.kind, body), expires=found.expires)

    def switch_item(self, item: str, state: ItemState) -> Item:
        """Switch an item on or off."""
        return items.switch(self.store, item, state)

    def forget_item(self, item: str) -> Forgetting:
        """Forget an item in all its versions, to the last byte; see `store.forgetting`."""
        return purging.proceed(self.store, forgetting.request(self.store, Scope.MEMORY, item).id)

    def remembered(self, message: str) -> list[Item]:
        """What was read off one message of the owner's and holds now."""
        return items.read_off(self.store, message)

    def take_back(self, item: str) -> None:
        """Undo what was just remembered: what was known of it before holds again, else it is forgotten."""
        earlier = items.before(self.store, items.get(self.store, item))
        if earlier is None or earlier.state is ItemState.FORGOTTEN:
            self.forget_item(item)
        else:
            items.switch(self.store, earlier.id, ItemState.ACTIVE)


def checked_body(kind: ItemKind, body: dict[str, Any]) -> dict[str, Any]:
    """A body as it is kept: guards with their parameters checked, memories with their type."""
    if kind is ItemKind.GUARD:
        return guards.checked(body)
    text = str(body.get("text", "")).strip()
    if kind is ItemKind.INSTRUCTION:
        return {"text": text}
    said = stated(text)
    plain = said[0].value_type if len(said) == 1 else recall.FACT
    return {"text": text, "value_type": body.get("value_type") or plain}


def topic_of(kind: ItemKind, body: dict[str, Any]) -> str:
    """What an item is about where nobody says: a known kind of statement, a guard's template, the first words."""
    if kind is ItemKind.GUARD:
        return f"{body['template']} {body['parameters'].get('tool', '')}"
    text = str(body["text"])
    said = stated(text) if kind is ItemKind.MEMORY else []
    return said[0].topic if len(said) == 1 else " ".join(text.split()[:_TOPIC_WORDS])
