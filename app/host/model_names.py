"""The names under which one model is served: as it is now, as it was made, and as each adapter left it.

`name` is whatever serves at the moment, so that a client that is set up once gets better with its owner. The
others stay what they are: `name@base` is the model without anything learned, `name@` and an adapter's id is that
adapter, live or not (`name@v3` means the same and is shorter to type). `mynah` may stand for the name, so that a
program's settings outlive a change of model. What is none of these is not answered by another model: whoever
compares two versions must be able to rely on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.host.jobs import Exactly, Serve, Weights
from app.host.runtime import ModelInfo
from store import adapters
from store.adapters import Adapter
from store.db import Store
from store.errors import NotFound
from store.types import AdapterState

_BASE = "base"
_ALIAS = "mynah"
_USABLE = (AdapterState.ACTIVE, AdapterState.RETIRED)


class UnknownModel(NotFound):
    """No model is served under a name."""


@dataclass(frozen=True)
class Served:
    """One name and what it stands for."""

    name: str
    serve: Weights
    adapter: Adapter | None = None

    def as_json(self, created: int) -> dict[str, Any]:
        """One entry of the list of models."""
        entry = {"id": self.name, "object": "model", "created": created, "owned_by": "mynah"}
        if self.adapter is None:
            return {**entry, "mynah": {"adapter": None, "version": None}}
        return {**entry, "mynah": {"adapter": self.adapter.id, "version": self.adapter.version}}


def all_of(store: Store, info: ModelInfo) -> list[Served]:
    """Every name, what serves now first, then the base, then the adapters from the newest on."""
    found = [adapter for adapter in adapters.list_(store, info.base_hash) if _usable(store, adapter)]
    return [
        Served(info.name, Serve.ACTIVE, adapters.active(store, info.base_hash).adapter),
        Served(f"{info.name}@{_BASE}", Serve.BASE),
        *(Served(f"{info.name}@{adapter.id}", Exactly(adapter.id, 1.0), adapter) for adapter in found),
    ]


def find(store: Store, info: ModelInfo, name: str | None) -> Served:
    """What a name stands for; None is what serves now.

    Raises:
        UnknownModel: nothing.
    """
    if name in (None, info.name, _ALIAS):
        return Served(info.name, Serve.ACTIVE)
    prefix, _, which = str(name).rpartition("@")
    if prefix in (info.name, _ALIAS):
        for served in all_of(store, info)[1:]:
            version = None if served.adapter is None else f"v{served.adapter.version}"
            if which in (version, served.name.rpartition("@")[2]):
                return served
    raise UnknownModel(f"there is no model called {name!r} here: ask /v1/models for the names")


def _usable(store: Store, adapter: Adapter) -> bool:
    if adapter.state not in _USABLE:
        return False
    return (adapters.files(store, adapter.id) / adapters.GGUF_NAME).exists()
