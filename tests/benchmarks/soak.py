"""Eight hours of a busy host in a minute, to see whether anything grows, sticks or leaks.

Turns of people, programs and practice on the scripted model, with random stops, clients that hang up while they
wait, swaps, roll-backs, faults and branches, all on the real engine, cache and store. Every reply is checked against
what the script says to that question, and against the version that was live when it began. Printed: what became of
the turns, memory after a tenth of them and at the end, and what is left behind, which must be nothing.

    python -m tests.benchmarks.soak [--turns N]
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from app.host.events import Done, Failed
from app.host.jobs import Priority, Serve
from app.model.renderer import Turn
from store import adapters, conversations
from store.home import Home
from store.types import ErrorClass, MessageStatus, Role
from tests.benchmarks.kill import home_of_its_own
from tests.host_helpers import Answer, Desk, desk, live_adapter
from tests.scripted import BASE_HASH

_VERSIONS = 5
_CONVERSATIONS = 12


class Soak:
    """A host's busy day."""

    def __init__(self, at: Desk, seed: int) -> None:
        self._at = at
        self._rng = random.Random(seed)
        self._versions = [live_adapter(at.store, b"version %d" % number) for number in range(_VERSIONS)]
        self._histories: dict[int, list[Turn]] = {}
        self._open: list[tuple[Answer, str, int]] = []
        self.counts: Counter[str] = Counter()

    def turn(self, number: int) -> None:
        """Ask something; now and then change the version; keep no more than six at once."""
        if self._rng.random() < 0.05:
            self._swap()
        runtime = self._at.runtime
        if number % 100 == 0:
            # The script's own records, which would hide what the engine keeps.
            for record in (runtime.evaluated, runtime.samplings, runtime.grammars, runtime.drawn_from):
                record.clear()
        self._ask(number)
        while len(self._open) > self._rng.randrange(6):
            self._close(*self._open.pop(0))

    def finish(self) -> None:
        """Wait for all that is open."""
        for each in self._open:
            self._close(*each)
        self._open.clear()

    def _swap(self) -> None:
        choice = self._rng.choice([*self._versions, None])
        adapters.use(self._at.store, BASE_HASH, choice)
        self.counts["swaps"] += 1

    def _ask(self, number: int) -> None:
        rng = self._rng
        chat = rng.randrange(_CONVERSATIONS)
        history = self._histories.setdefault(chat, [])
        # A branch goes on from somewhere earlier; a conversation that got long begins anew.
        if rng.random() < 0.1:
            del history[: 2 * rng.randrange(len(history) // 2 + 1)]
            self.counts["branches"] += 1
        if len(history) > 20:
            history.clear()
        kind = rng.random()
        if kind < 0.03:
            text, expected = "fail 3", "1 2 3 "
        elif kind < 0.06:
            text, expected = "version", ""
        elif kind < 0.16:
            text, expected = "forever", "".join(f"{count} " for count in range(1, 400))
        else:
            text = expected = f"{number} " + "word " * rng.randrange(30) + "end"
            text = f"echo {text}"
        answer = self._at.ask(
            text,
            before=history,
            client=rng.choice("abcde"),
            priority=rng.choice(list(Priority)),
            temperature=rng.choice([0.0, 0.7]),
            serve=rng.choice([Serve.ACTIVE, Serve.ACTIVE, Serve.ACTIVE, Serve.BASE]),
            incognito=rng.random() < 0.2,
        )
        self._open.append((answer, expected, chat))
        history += [Turn(Role.USER, text), Turn(Role.ASSISTANT, expected[:40] or "v")]
        if text == "forever" or rng.random() < 0.15:
            threading.Timer(rng.random() * 0.02, answer.job.cancelled.set).start()

    def _close(self, answer: Answer, expected: str, _chat: int) -> None:
        event = answer.until(lambda event: isinstance(event, Done | Failed))
        if isinstance(event, Failed):
            hung_up = event.error_class is ErrorClass.CANCELLED
            on_purpose = expected == "1 2 3 " == answer.text
            self.counts["hung up" if hung_up else "failed on purpose" if on_purpose else "wrong"] += 1
            return
        assert isinstance(event, Done)
        right = answer.text == event.text
        if event.finish_reason == "cancelled":
            self.counts["stopped"] += 1
            right = right and (expected == "" or expected.startswith(event.text))
        else:
            self.counts["complete"] += 1
            said = expected or (f"{event.adapter}*1" if event.adapter else "base")
            right = right and event.text == said
        self.counts["wrong"] += not right


def soak(home: Home, turns: int, seed: int = 1) -> dict[str, Any]:
    """Run it; the figures."""
    began = time.monotonic()
    with desk(home) as at:
        day = Soak(at, seed)
        early = 0
        for number in range(turns):
            day.turn(number)
            if number == turns // 10:
                early = _resident()
        day.finish()
        deadline = time.monotonic() + 20.0
        while at.engine.busy and time.monotonic() < deadline:
            time.sleep(0.05)
        left = {
            "queue": at.engine.status().queue,
            "busy": at.engine.busy,
            "pinned_sequences": _pinned(at),
            "lanes": len(at.runtime.lanes),
            "open_rows": at.store.conn.execute(
                "SELECT count(*) FROM messages WHERE status = ?", (MessageStatus.GENERATING,)
            ).fetchone()[0],
        }
        rows = at.store.conn.execute("SELECT count(*) FROM messages").fetchone()[0]
        title = conversations.list_(at.store, 1)[0].title
        assert title
    return {
        "turns": turns,
        "seconds": round(time.monotonic() - began, 1),
        "became": dict(day.counts),
        "rows": rows,
        "memory_mb": {"after_a_tenth": early, "at_the_end": _resident()},
        "left": left,
    }


def _pinned(at: Desk) -> int:
    """Sequences that nobody could take any more, on all lanes."""
    return sum(slot.pinned for bench in at.engine.benches.all for slot in bench.cache.slots)


def _resident() -> int:
    """Memory of this process, in MB."""
    gc.collect()
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS:")).split()[1]) // 1024


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=5000)
    given = parser.parse_args()
    with home_of_its_own() as home:
        print(json.dumps(soak(home, given.turns), indent=1))


if __name__ == "__main__":
    main()
