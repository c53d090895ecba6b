"""Memories by meaning: loaded late, never waited for, kept with the memory, and without it words find as before."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from app.harness import recall
from app.harness.dressing import Harness, dressed
from app.host import nearness
from app.host.client import HostClient
from app.host.events import Done, TurnRequest
from app.host.nearness import Nearness
from app.host.runtime import Encoder
from app.model.renderer import Turn
from store import items
from store.db import Store
from store.errors import ModelFileError
from store.home import Home
from store.items import TYPED, Item
from store.types import ItemKind, ItemState, Role
from tests.scripted import scripted_host
from tests.scripted_encoder import ScriptedEncoder


def memory(store: Store, topic: str, text: str) -> Item:
    body = {"text": text, "value_type": recall.FACT}
    return items.add(
        store, ItemKind.MEMORY, topic, body, source=TYPED, confidence=1.0, state=ItemState.ACTIVE
    )


@pytest.fixture
def encoder() -> ScriptedEncoder:
    return ScriptedEncoder()


@pytest.fixture
def near(encoder: ScriptedEncoder) -> Iterator[Nearness]:
    made = Nearness(lambda: encoder)
    yield made
    made.close()
    assert encoder.closed


def loaded(near: Nearness, store: Store) -> Nearness:
    near.prepare(store)
    near.settle()
    return near


def told(store: Store, near: Nearness | None, question: str) -> str:
    turns = [Turn(Role.USER, question)]
    asked = None if near is None else near.of
    return dressed(store, turns, Harness.ALL, None, 4096, len, nearness=asked).turns[-1].content


def test_a_memory_is_found_by_what_it_means(store: Store, near: Nearness) -> None:
    memory(store, "dog", "my dog is Pablo")
    memory(store, "home", "I live in Utrecht")
    assert told(store, None, "Which pet is mine?") == "Which pet is mine?"
    assert told(store, loaded(near, store), "Which pet is mine?").startswith(
        f"{recall.HEADING}\n> my dog is Pablo\n\n"
    )


def test_a_vector_is_made_once_and_goes_with_the_memory(
    store: Store, near: Nearness, encoder: ScriptedEncoder
) -> None:
    item = memory(store, "dog", "my dog is Pablo")
    for _ in range(2):
        told(store, loaded(near, store), "Which pet?")
    assert encoder.given == ["my dog is Pablo", "Which pet?", "Which pet?"]
    assert list(items.vectors(store, "script")[item.id]) == [1.0, 0.0, 0.0]
    assert items.without_vector(store, "script") == []


def test_nothing_is_loaded_without_memories(store: Store, encoder: ScriptedEncoder) -> None:
    asked: list[None] = []

    def load() -> Encoder | None:
        asked.append(None)
        return encoder

    near = loaded(Nearness(load), store)
    assert told(store, near, "Which pet?") == "Which pet?"
    near.close()
    assert not asked


def test_nobody_waits_for_it(store: Store, encoder: ScriptedEncoder) -> None:
    may = threading.Event()

    def slow() -> Encoder | None:
        may.wait()
        return encoder

    near = Nearness(slow)
    memory(store, "dog", "my dog is Pablo")
    assert told(store, near, "Which pet?") == "Which pet?"
    assert "Pablo" in told(store, near, "Which dog?")
    may.set()
    near.settle()
    assert "Pablo" in told(store, near, "Which pet?")
    near.close()


def test_where_it_cannot_be_had_words_find(store: Store) -> None:
    def missing() -> Encoder | None:
        raise ModelFileError("not installed")

    memory(store, "dog", "my dog is Pablo")
    near = loaded(Nearness(missing), store)
    assert told(store, near, "Which pet?") == "Which pet?"
    assert "Pablo" in told(store, near, "Which dog?")
    near.close()


def test_what_it_cannot_read_is_left_to_the_words(
    store: Store, near: Nearness, encoder: ScriptedEncoder
) -> None:
    memory(store, "dog", "제 개 이름은 파블로")
    assert told(store, loaded(near, store), "Which pet?") == "Which pet?"
    assert "파블로" in told(store, near, "제 개 이름은?")
    assert encoder.given == []


def test_many_memories_at_once_hold_up_no_question(
    store: Store, near: Nearness, encoder: ScriptedEncoder
) -> None:
    for number in range(nearness.MOST_AT_ONCE + 3):
        memory(store, f"fact {number}", f"fact {number}")
    told(store, loaded(near, store), "x" * 1000)
    assert len(encoder.given) == nearness.MOST_AT_ONCE + 1
    assert len(encoder.given[-1]) == nearness.BEGINNING
    told(store, near, "And now?")
    assert items.without_vector(store, "script") == []


@pytest.fixture
def host(home: Home) -> Iterator[HostClient]:
    with scripted_host(home, "--encoder") as client:
        yield client


def test_the_host_asks_it(host: HostClient, store: Store) -> None:
    memory(store, "dog", "my dog is Pablo")
    for _ in range(50):
        *_, done = host.turn(TurnRequest(text="prompt Which pet?", sampler={"max_tokens": 200}))
        assert isinstance(done, Done)
        if "Pablo" in done.text:
            break
    else:
        pytest.fail("the memory was never found")
