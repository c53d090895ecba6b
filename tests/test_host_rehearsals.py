"""Recorded questions answered again by a real host, with an item that nobody has added yet."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from app.host.client import HostClient
from app.host.events import Done, TurnRequest
from store import decisions, items, settings, signals
from store.db import Store
from store.home import Home
from store.types import ItemKind, SignalKind
from tests.scripted import scripted_host

LISTED = "raw Here it is:\n- one\n- two"
SECONDS = 20.0


@pytest.fixture
def host(home: Home) -> Iterator[HostClient]:
    with scripted_host(home) as client:
        yield client


def objected(host: HostClient, store: Store, question: str, note: str, correction: str) -> None:
    """A reply with a thumb down, a note, and the owner's own version."""
    done = list(host.turn(TurnRequest(text=question, sampler={"temperature": 0.0})))[-1]
    assert isinstance(done, Done)
    signals.record(store, str(done.message), SignalKind.THUMB, value=-1.0, text=note)
    signals.record(store, str(done.message), SignalKind.CORRECTION, text=correction)


def proposed(host: HostClient, store: Store) -> items.Item:
    """The item that the host's controller adds."""
    host.learn()
    deadline = time.monotonic() + SECONDS
    while not items.active(store) and time.monotonic() < deadline:
        time.sleep(0.05)
    (item,) = items.active(store)
    return item


def test_a_rule_that_changes_no_reply_is_not_tried_on_its_owner(host: HostClient, store: Store) -> None:
    for _ in range(3):
        objected(host, store, LISTED, "no lists please", "Here it is: one and two.")
    messages = len(store.conn.execute("SELECT 1 FROM messages").fetchall())
    item = proposed(host, store)
    assert (item.kind, item.body["template"]) == (ItemKind.GUARD, "no_list")
    (record,) = [each for each in decisions.list_(store) if each.kind == "control"]
    assert {knob: count["failures"] for knob, count in record.inputs["rehearsed"].items()} == {
        "instruction": 3,
        "guard": 0,
    }
    assert len(store.conn.execute("SELECT 1 FROM messages").fetchall()) == messages, "nothing of it is kept"


def test_a_rule_that_is_heeded_is_taken(host: HostClient, store: Store) -> None:
    """The scripted model answers this question with its system prompt, in which the rule stands."""
    rule = "tell me in more detail, for this is far from all that I want to know of it, please"
    for _ in range(3):
        objected(host, store, "system", rule, "one two three " * 7)
    item = proposed(host, store)
    assert (item.kind, item.text) == (ItemKind.INSTRUCTION, rule)
    assert item.effect is not None
    assert (item.effect["with"], item.effect["n"]) == (1.0, 3)


def test_a_guard_that_can_only_ask_again_is_rehearsed_by_asking_again(host: HostClient, store: Store) -> None:
    """The scripted model says `fine` where a guard refused its reply, which is no question either."""
    settings.put(store, settings.APPROVE_INSTRUCTION, "never")
    for _ in range(3):
        objected(
            host, store, "echo Bread is baked.", "finish with a question", "Bread is baked. Do you bake?"
        )
    host.learn()
    deadline = time.monotonic() + SECONDS
    while not decisions.list_(store) and time.monotonic() < deadline:
        time.sleep(0.05)
    (record,) = decisions.list_(store)
    assert record.inputs["rehearsed"]["guard"]["failures"] == 3
    assert items.active(store) == []
