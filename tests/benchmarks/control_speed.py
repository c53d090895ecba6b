"""What deciding costs: all statistics over 100,000 steps anew, one more turn, and a whole look of the controller.

    python -m tests.benchmarks.control_speed [--steps 100000] [--json]

Wanted are 2 s for everything anew and 20 ms for one more turn. The store is filled by plain inserts, with the full text
index left out, because no statistic reads it: one reply in twenty is rated down, corrected or asked again, on five
hundred topics, in conversations of ten turns. Ends with 1 where a figure is over its limit.

Times depend on the machine and on what else it does, so each comes with its ratio to a baseline of the same minute: all
statistics anew to a bare read of the same rows (what it costs to only fetch them), and one more turn to all of it anew
(what it would cost without following the store).
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from app.control.step import Controller
from store import changes, evidence
from store.control import Knob
from store.db import Store
from store.evidence import Evidence
from store.home import Home
from tests.people import disliked
from tests.seed import BASE

ANEW_SECONDS, MORE_SECONDS = 2.0, 0.02
HINTS = (
    "Answer in one or two short sentences.",
    "Answer in plain sentences, without any list or bullet points.",
    "use metric units please",
    None,
)
REPETITIONS = 15


def fill(store: Store, steps: int) -> None:
    """Put turns into a store."""
    draw = random.Random(7)
    connection = store.conn
    triggers = "SELECT name FROM sqlite_master WHERE type = 'trigger' AND instr(name, 'fts') OR name = ?"
    for row in connection.execute(triggers, ("unjudged_asked_next",)).fetchall():
        connection.execute(f"DROP TRIGGER {row['name']}")
    with store.write():
        parent: str | None = None
        for number in range(steps):
            conversation = f"c{number // 10:010d}"
            if number % 10 == 0:
                parent = None
                connection.execute(
                    "INSERT INTO conversations (id, title, created, updated, source, keep_history, feed_memory, train) "
                    "VALUES (?, 'a title', ?, ?, 'cli', 'allow', 'allow', 'allow')",
                    (conversation, _moment(number), _moment(number)),
                )
            parent = _turn(connection, conversation, number, parent, draw)


def _turn(
    connection: sqlite3.Connection, conversation: str, number: int, parent: str | None, draw: random.Random
) -> str:
    asked, reply, moment = f"mq{number:09d}", f"mr{number:09d}", _moment(number)
    question = f"What should I know about subject{draw.randrange(500)} in the year {number}?"
    answer = " ".join(f"word{draw.randrange(1000)}" for _ in range(40))
    row = "INSERT INTO messages (id, conversation, parent, role, text, status, created, base_hash, left_out) "
    connection.execute(
        row + "VALUES (?, ?, ?, 'user', ?, 'complete', ?, NULL, 0)",
        (asked, conversation, parent, question, moment),
    )
    connection.execute(
        row + "VALUES (?, ?, ?, 'assistant', ?, 'complete', ?, ?, 0)",
        (reply, conversation, asked, answer, moment, BASE),
    )
    if draw.random() < 0.05:
        correction = draw.random() < 0.5
        connection.execute(
            "INSERT INTO units (id, message, conversation, kind, reward, target, hint, weight, state, signals, "
            "content_hash, created, updated) VALUES (?, ?, ?, ?, -1, ?, ?, 1, 'used', '[]', ?, ?, ?)",
            (
                f"u{number:010d}",
                reply,
                conversation,
                "correction" if correction else "thumb_down",
                answer[: draw.randrange(20, 200)] if correction else None,
                None if correction else draw.choice(HINTS),
                f"h{number}",
                moment,
                moment,
            ),
        )
    return reply


def _moment(number: int) -> str:
    return f"2025-{1 + number // 20000:02d}-01T00:00:{number % 20000 / 400:09.6f}+00:00"


def plain_read(store: Store) -> int:
    """Fetch what the statistics are made of, and make nothing of it."""
    replies = store.conn.execute(
        "SELECT m.id, m.created, m.status, m.text, m.context_items, q.text FROM messages AS m "
        "LEFT JOIN messages AS q ON q.id = m.parent WHERE m.role = 'assistant'"
    ).fetchall()
    return len(replies) + len(store.conn.execute("SELECT * FROM units").fetchall())


def timed(work: Callable[[], object]) -> float:
    """Seconds that something takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def main() -> int:
    """Fill, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        home = Home(Path(scratch) / "home").open()
        with Store.open(home) as store, Store.open(home) as host:
            fill(store, options.steps)
            report = measure(store, host, options.steps)
    print(
        json.dumps(report)
        if options.json
        else "\n".join(f"{name}: {value}" for name, value in report.items())
    )
    return 0 if report["anew_s"] < ANEW_SECONDS and report["one_more_ms"] < 1000 * MORE_SECONDS else 1


def measure(store: Store, host: Store, steps: int) -> dict[str, float]:
    """The figures."""
    pairs = [(timed(lambda: plain_read(host)), timed(lambda: evidence.of(host))) for _ in range(3)]
    read, anew = (median(each) for each in zip(*pairs, strict=True))
    seen = Evidence()
    seen.update(host)
    counted = timed(lambda: [seen.count(each) for each in seen.signatures])
    more = []
    for number in range(REPETITIONS):
        disliked(store, f"What about subject {number}?", hint=HINTS[0])
        more.append(timed(lambda: seen.update(host)))
    controller = Controller()
    first = timed(lambda: controller.look(host))
    looks = []
    for number in range(REPETITIONS):
        disliked(store, f"What about thing {number}?", hint=HINTS[0])
        looks.append(timed(lambda: controller.look(host)))
    idle = median(timed(lambda: controller.look(host)) for _ in range(REPETITIONS))
    return {
        "steps": steps,
        "signatures": len(seen.signatures),
        "plain_read_s": round(read, 3),
        "anew_s": round(anew, 3),
        "anew_to_plain_read": round(median(anew / read for read, anew in pairs), 2),
        "all_counts_ms": round(1000 * counted, 1),
        "one_more_ms": round(1000 * median(more), 2),
        "one_more_to_anew": round(median(more) / anew, 5),
        "first_look_s": round(first, 2),
        "look_after_a_turn_ms": round(1000 * median(looks), 1),
        "look_with_nothing_new_ms": round(1000 * idle, 3),
        "changes_made": sum(each.knob is not Knob.WEIGHTS for each in changes.changes(store)),
    }


if __name__ == "__main__":
    sys.exit(main())
