"""Pins: one for each base model, each holding its own version and nothing else."""

from __future__ import annotations

from store import adapters, pins, settings
from store.adapters import Adapter
from store.db import Store
from tests import seed

OTHER = "c" * 64
GATE = {"passed": True, "summary": "better", "checks": []}


def made(store: Store, name: str, base: str) -> Adapter:
    scratch = store.home.scratch / name
    scratch.mkdir()
    (scratch / adapters.GGUF_NAME).write_bytes(name.encode())
    adapter = adapters.install(store, scratch)
    return adapters.add_candidate(store, adapter, base_hash=base, run="r1", manifest={}, uses=[])


def live(store: Store, name: str, base: str) -> Adapter:
    adapter = made(store, name, base)
    assert adapters.publish(store, adapter.id, GATE)
    return adapter


def test_a_pin_holds_the_versions_of_its_own_base_back_and_no_others(store: Store) -> None:
    held = live(store, "one", seed.BASE)
    pins.pin(store, held.id)
    assert not adapters.publish(store, made(store, "two", seed.BASE).id, GATE)
    elsewhere = live(store, "three", OTHER)
    assert adapters.active(store, OTHER).adapter == adapters.get(store, elsewhere.id)
    assert adapters.active(store, seed.BASE).adapter == adapters.get(store, held.id)


def test_each_base_has_a_pin_of_its_own(store: Store) -> None:
    one, other = live(store, "one", seed.BASE), live(store, "two", OTHER)
    pins.pin(store, one.id)
    pins.pin(store, other.id)
    assert (pins.of(store, seed.BASE), pins.of(store, OTHER)) == (one.id, other.id)
    # What is chosen for one base says nothing about the other.
    adapters.use(store, OTHER, None)
    assert (pins.of(store, seed.BASE), pins.of(store, OTHER)) == (one.id, None)
    pins.unpin(store, seed.BASE)
    assert settings.get(store, settings.PINNED) is None


def test_a_pin_takes_the_place_of_the_one_before(store: Store) -> None:
    first, second = live(store, "one", seed.BASE), live(store, "two", seed.BASE)
    pins.pin(store, first.id)
    pins.pin(store, second.id)
    assert pins.every(store) == [second.id]
    adapters.withdraw(store, second.id, "damaged")
    assert pins.every(store) == []


def test_a_pin_of_an_earlier_mynah_is_understood(store: Store) -> None:
    adapter = live(store, "one", seed.BASE)
    settings.put(store, settings.PINNED, adapter.id)
    assert pins.of(store, seed.BASE) == adapter.id
    assert not adapters.publish(store, made(store, "two", seed.BASE).id, GATE)
    pins.unpin(store, seed.BASE)
    assert pins.of(store, seed.BASE) is None
