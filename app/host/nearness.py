"""How near memories are to a question by what they mean; for the host, where nobody may wait for it.

The encoder takes 50 MB and, on a new machine, a second to be written, so it is loaded when there is a memory, in a
thread of its own: until it is there, and where it cannot be had, memories are found by their words alone.
A memory's vector is kept with it; a question's is not. It is asked in the one thread that has the host's store.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from app.host.runtime import Encoder
from store import items
from store.db import Store
from store.items import Item
from store.types import ItemKind

log = logging.getLogger("mynah.host")

MOST_AT_ONCE = 8
"""Memories that are turned into vectors before one reply, 11 ms each: an import must not hold up a question."""


BEGINNING = 300
"""Characters of a question that are looked at: a page that was pasted would take a third of a second."""


class Nearness:
    """Similarities of a question to memories, as `app.harness.recall.ranked` takes them."""

    def __init__(self, load: Callable[[], Encoder | None]) -> None:
        self._load = load
        self._encoder: Encoder | None = None
        self._loading: threading.Thread | None = None

    def prepare(self, store: Store) -> None:
        """Begin to load the encoder where there are memories, so that it is there for the first question."""
        if items.active(store, ItemKind.MEMORY):
            self._begin()

    def of(self, store: Store, question: str, memories: Sequence[Item]) -> Mapping[str, float]:
        """Cosine, -1 to 1, of each memory whose vector is known by now; none for a question that cannot be read."""
        self._begin()
        encoder = self._encoder
        if encoder is None or not encoder.reads(question):
            return {}
        vectors: dict[str, Sequence[float]] = dict(items.vectors(store, encoder.name))
        fresh = [each for each in memories if each.id not in vectors and encoder.reads(each.text)]
        for memory in fresh[-MOST_AT_ONCE:]:
            vectors[memory.id] = encoder.embed(memory.text)
            items.set_vector(store, memory.id, encoder.name, vectors[memory.id])
        known = [memory.id for memory in memories if memory.id in vectors]
        if not known:
            return {}
        cosines = np.array([vectors[name] for name in known]) @ np.array(encoder.embed(question[:BEGINNING]))
        return dict(zip(known, cosines.tolist(), strict=True))

    def settle(self) -> None:
        """Wait until what is being loaded is there."""
        if self._loading is not None:
            self._loading.join()

    def close(self) -> None:
        """Free the encoder."""
        self.settle()
        if self._encoder is not None:
            self._encoder.close()
            self._encoder = None

    def _begin(self) -> None:
        if self._loading is None:
            self._loading = threading.Thread(target=self._get, name="encoder", daemon=True)
            self._loading.start()

    def _get(self) -> None:
        try:
            self._encoder = self._load()
        except Exception:
            # Finding by words works without it, so whatever is wrong with it is for the log alone.
            log.warning("memories are found by their words alone", exc_info=True)
