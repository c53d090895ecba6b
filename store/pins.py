"""Pinned adapters: the version of a model that stays, whatever is learned. One for each base model.

An adapter fits one base, so a pin on one model says nothing about another: it must not keep that one's new versions
from going live, nor be lost because something else is chosen there. The setting holds the ids of all pinned adapters,
and earlier versions of Mynah wrote a single one.
"""

from __future__ import annotations

from collections.abc import Collection

from store import settings
from store.db import Store


def of(store: Store, base_hash: str) -> str | None:
    """The pinned adapter of a base, if any."""
    return next((adapter for adapter in every(store) if _base(store, adapter) == base_hash), None)


def every(store: Store) -> list[str]:
    """The pinned adapters of all bases."""
    kept = settings.get(store, settings.PINNED)
    return [str(each) for each in kept] if isinstance(kept, list) else [] if kept is None else [str(kept)]


def pin(store: Store, adapter: str) -> None:
    """Pin an adapter, in place of the one of its base."""
    with store.write():
        base = _base(store, adapter)
        _keep(store, [*(each for each in every(store) if _base(store, each) != base), adapter])


def unpin(store: Store, base_hash: str) -> None:
    """Let the next version of a base go live again."""
    with store.write():
        _keep(store, [each for each in every(store) if _base(store, each) != base_hash])


def drop(store: Store, adapters: Collection[str]) -> None:
    """Unpin these adapters: they cannot serve any more."""
    before = every(store)
    if any(each in adapters for each in before):
        _keep(store, [each for each in before if each not in adapters])


def _keep(store: Store, adapters: list[str]) -> None:
    settings.put(store, settings.PINNED, adapters or None)


def _base(store: Store, adapter: str) -> str | None:
    row = store.conn.execute("SELECT base_hash FROM adapters WHERE id = ?", (adapter,)).fetchone()
    return None if row is None else str(row["base_hash"])
