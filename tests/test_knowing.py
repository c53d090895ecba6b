"""What the owner can undo of what was remembered."""

from __future__ import annotations

from app.service import Service
from store import items
from store.home import Home
from store.types import ItemKind, ItemState


def test_taking_back_brings_back_what_was_known_before(home: Home) -> None:
    service = Service(home)
    first = service.add_item(ItemKind.MEMORY, {"text": "my name is Evelyn"}, topic="name")
    second = service.add_item(ItemKind.MEMORY, {"text": "my name is Ada"}, topic="name")
    service.take_back(second.id)
    assert [each.id for each in items.active(service.store)] == [first.id]
    assert [each.id for each in service.items()] == [first.id], "what holds is what is listed"
    service.take_back(first.id)
    assert items.active(service.store) == []
    assert items.get(service.store, first.id).state is ItemState.FORGOTTEN
    service.close()
