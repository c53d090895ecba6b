"""Memories, rules and guards on the real SmolLM2: recall reaches a fresh conversation, and every attempt replays."""

from __future__ import annotations

import pytest

from app import measuring, replays
from app.host.client import TurnRequest, ensure_host, stop_host
from app.host.events import Done
from app.service import Service
from store import conversations, items
from store.db import Store
from store.home import Home
from store.types import ItemKind, ReplayClass

pytestmark = pytest.mark.model


def test_what_is_told_once_is_known_in_the_next_conversation_and_all_of_it_replays(
    home: Home, store: Store
) -> None:
    client, mynah = ensure_host(home), Service(home)

    def ask(text: str) -> Done:
        *_, last = client.turn(TurnRequest(text=text, sampler={"temperature": 0.0, "max_tokens": 40}))
        assert isinstance(last, Done), last
        return last

    try:
        assert "Zyrian" not in ask("What is the name of my dog?").text
        ask("My dog is called Zyrian.")
        (memory,) = items.active(store)
        assert memory.text == "My dog is called Zyrian"
        told = ask("What is the name of my dog?")
        assert "Zyrian" in told.text
        assert items.uses(store, memory.id) == [told.message]
        mynah.add_item(ItemKind.GUARD, {"template": "length", "parameters": {"sentences": 1}})
        short = ask("Tell me about rivers.")
        mynah.add_item(ItemKind.GUARD, {"template": "must_contain", "parameters": {"text": "qqq"}})
        left = ask("Name a river.")
        assert left.notes == ["not as asked for: it must contain “qqq”"]
        assert len(conversations.siblings(store, str(left.message))) == 3
        for done in (told, short, left):
            compared = list(replays.of_conversation(mynah, str(done.conversation), replays.RECORDED))
            assert all(each.identical for each in compared)
            assert {each.replay for each in compared} == {ReplayClass.DETERMINISTIC}
        measured = measuring.measure(mynah, memory.id, 2)
        assert measured.effect["n"] == 2
    finally:
        mynah.close()
        stop_host(home)
