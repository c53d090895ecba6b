"""What encryption at rest costs: opening, appending and searching, plain against encrypted, in one run.

`python -m tests.benchmarks.encryption [MESSAGES]`. Both databases hold the same messages; each figure is the median
of its repeats, taken in turn (plain, encrypted, plain, …) so that a busy machine slows both alike. The first opening
of a process includes the 256,000 rounds from passphrase to key; later ones in the same process do not.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from store import cipher, conversations, encryption, search
from store.db import Store
from store.home import Home
from store.types import Role
from tests.seed import say

PASSPHRASE = "only for this benchmark"
REPEATS = 15
_ALL = "SELECT sum(length(text)) FROM messages"
_WORDS = "the heron waits in shallow water and a lamp burns late over seven letters nobody sent".split()


def fill(home: Home, messages: int) -> None:
    """A home with so many messages, forty to a conversation."""
    conversation, parent = "", None
    with Store.open(home) as store, store.write():
        for number in range(messages):
            if number % 40 == 0:
                conversation, parent = conversations.create(store, f"c{number}", "cli"), None
            words = " ".join(_WORDS[(number * 7 + step * 5) % len(_WORDS)] for step in range(30))
            role = Role.ASSISTANT if number % 2 else Role.USER
            parent = conversations.append(store, conversation, role, f"{number} {words}", parent).id


def spent(work: Callable[[], object]) -> float:
    """Milliseconds."""
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1000


def first_open(home: Home) -> float:
    """Opening in a process that does not know the key yet."""
    cipher._keys.clear()
    return spent(lambda: Store.open(home).close())


def main() -> None:
    """Print the table."""
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    cipher.give(PASSPHRASE)
    with tempfile.TemporaryDirectory() as scratch:
        plain, secret = (Home(Path(scratch) / name).open() for name in ("plain", "secret"))
        fill(plain, messages)
        fill(secret, messages)
        took = spent(lambda: encryption.encrypt(secret, PASSPHRASE, lambda _share: None))
        print(f"{messages} messages; encrypting them all took {took / 1000:.1f} s")
        print(f"{'':<24}{'plain ms':>10}{'encrypted ms':>14}{'ratio':>8}")
        row("first open of a process", [(first_open(plain), first_open(secret)) for _ in range(5)])
        with Store.open(plain) as one, Store.open(secret) as other:
            works: list[tuple[str, int, Callable[[Store], object]]] = [
                ("later open", REPEATS, lambda store: Store.open(store.home).close()),
                ("append a turn", REPEATS, lambda store: say(store, "Q one two", "A")),
                ("search a phrase", REPEATS, lambda store: search.search(store, "lamp burns late")),
                ("search a number", REPEATS, lambda store: search.search(store, "77 ")),
                ("search in vain", REPEATS, lambda store: search.search(store, "zzz")),
                ("read all texts", 5, lambda store: store.conn.execute(_ALL).fetchone()),
            ]
            for name, repeats, work in works:
                row(name, [(spent(partial(work, one)), spent(partial(work, other))) for _ in range(repeats)])
        print(f"size of the file: {plain.db.stat().st_size} and {secret.db.stat().st_size} bytes")


def row(name: str, pairs: list[tuple[float, ...]]) -> None:
    """One line of the table."""
    plain, encrypted = (statistics.median(each) for each in zip(*pairs, strict=True))
    print(f"{name:<24}{plain:>10.2f}{encrypted:>14.2f}{encrypted / plain:>8.2f}")


if __name__ == "__main__":
    main()
