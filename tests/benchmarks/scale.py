"""What a long history costs: everyday actions on ten thousand messages and on a million, side by side.

Each action is one that somebody waits for, done through the code that does it in daily use: the chat on a pilot with
a scripted host, the service, the supervisor's look, the command line as a process. A figure is the median of its
repetitions. An action holds where it costs no more than twice as much on the large store; below the resolution (0.5 ms)
a ratio says nothing and is not held against it. Ends with 1 where one does not hold.

    python -m tests.benchmarks.scale [--messages 10000 1000000] [--keep DIRECTORY] [--json]

The large store takes ten minutes and 4 GB of disk to make. With --keep the stores stay, and a later run finds them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from app.host.supervisor import gather
from app.tui.sidebar import ConversationList
from store import conversations, units
from store.conversations import ReplyEnd, ReplyStart
from store.db import Store
from store.home import Home
from store.types import FinishReason, MessageStatus
from tests.benchmarks.history import BASE, History
from tests.scripted_service import ScriptedService
from tests.tui_pilot import chatting

ALLOWED = 2.0
RESOLUTION_MS = 0.5
WHOLE_TIMES = 7
"""So often are the screens and the commands measured."""

DISK_PER_MESSAGE = 6_000
SEARCHES = {
    "a common word": "which",
    "a rare word": "#3141",
    "a word nobody said": "xylophonist",
    "a phrase": "it was the",
    "a rare phrase": "was the #27",
    "Korean, three": "데이터베이스",
    "Korean, two": "검색",
    "Korean, one": "왜",
    "Korean, one, rare": "뷁",
    "Korean, two, rare": "뷁뷁",
    "C++": "C++",
    "it's": "it's",
    "foo-bar": "foo-bar",
}


@dataclass(frozen=True)
class Subject:
    """One store with what the actions are done to."""

    home: Home
    service: ScriptedService
    short: str
    long: str
    reply: str


@dataclass(frozen=True)
class Action:
    """One thing to do, ``times`` times over."""

    name: str
    times: int
    do: Callable[[], object]


def actions(at: Subject) -> Iterator[Action]:
    """Everything that is measured inside this process."""
    service, store = at.service, at.service.store
    yield Action("list conversations", 30, service.conversations)
    yield Action("read a conversation of 10", 30, lambda: service.thread(at.short))
    yield Action("read a conversation of 100", 5, lambda: service.thread(at.long))
    for name, words in SEARCHES.items():
        yield Action(f"search {name} ({words})", 15, partial(service.search, words))
    yield Action("append a turn", 100, lambda: append(store, at.short))
    yield Action("rate a reply", 30, lambda: service.rate(at.reply, 1))
    yield Action("find an id by its prefix", 30, lambda: service.resolve("messages", at.reply[:-1]))
    yield Action("status snapshot", 30, service.snapshot)
    yield Action("supervisor: gather", 30, lambda: gather(store, 0.0))
    yield Action("units: waiting", 30, lambda: units.waiting(store))
    yield Action("units: fresh", 30, lambda: units.fresh(store))
    yield Action("units: unjudged", 30, lambda: units.unjudged(store))
    yield Action("host start: recover", 10, lambda: conversations.recover(store))
    yield Action("open the store", 10, lambda: Store.open(at.home).close())


def append(store: Store, conversation: str) -> None:
    """What the host writes for one turn: the question, the reply's row, two checkpoints, the end."""
    head = conversations.get(store, conversation).head
    asked = conversations.append_user(
        store, conversation, "What does a long history cost? #" + "word " * 12, head
    )
    start = ReplyStart(BASE, None, 1.0, {"seed": 7}, "template", list(range(600)))
    reply = conversations.begin_reply(store, conversation, asked.id, start)
    text = "It should cost what a short one does, whatever was said before it. " * 4
    conversations.checkpoint(store, reply.id, text[:90])
    conversations.checkpoint(store, reply.id, text[:180])
    end = ReplyEnd(text, MessageStatus.COMPLETE, FinishReason.STOP, list(range(80)), [-0.5] * 80)
    conversations.finish_reply(store, reply.id, end)
    with store.write() as connection:
        # The next turn is appended to a conversation of the same length.
        connection.execute("UPDATE conversations SET head = ? WHERE id = ?", (head, conversation))


async def screens(at: Subject) -> dict[str, float]:
    """Milliseconds to the first screen with its list, and to a conversation on it."""
    began = time.perf_counter()
    async with chatting(at.service, (120, 40)) as chat:
        await chat.until(lambda: chat.app.screen.query_one(ConversationList).option_count)
        shown = time.perf_counter()
        chat.view.open(at.short)
        await chat.until(lambda: chat.replies)
        opened = time.perf_counter()
    return {"open the chat": 1000 * (shown - began), "open a conversation": 1000 * (opened - shown)}


def commands(at: Subject) -> dict[str, float]:
    """Milliseconds of whole processes of the command line."""
    wanted = {
        "mynah rate": ("rate", at.reply, "up"),
        "mynah conversations list": ("conversations", "list"),
        "mynah conversations search": ("conversations", "search", "foo-bar"),
    }
    return {name: _milliseconds(partial(_mynah, at.home, words)) for name, words in wanted.items()}


def _mynah(home: Home, words: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "app.cli.main", *words],
        env={**os.environ, "MYNAH_HOME": str(home.root)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=True,
    )


def measured(homes: list[Home]) -> list[dict[str, float]]:
    """The median milliseconds of every action on each store, which take turns: what else runs meets them alike."""
    with ExitStack() as stack:
        subjects = [subject(home, stack.enter_context(closing(ScriptedService(home)))) for home in homes]
        took: list[dict[str, list[float]]] = [{} for _ in homes]
        for _ in range(WHOLE_TIMES):
            for at, figures in zip(subjects, took, strict=True):
                for name, each in (asyncio.run(screens(at)) | commands(at)).items():
                    figures.setdefault(name, []).append(each)
        for alike in zip(*map(actions, subjects), strict=True):
            for action in alike:
                action.do()
            for _ in range(alike[0].times):
                for action, figures in zip(alike, took, strict=True):
                    figures.setdefault(action.name, []).append(_milliseconds(action.do))
        return [{name: median(each) for name, each in figures.items()} for figures in took]


def subject(home: Home, service: ScriptedService) -> Subject:
    """A short and a long conversation of a store, and a reply to rate."""
    rows = service.store.conn.execute(
        "SELECT id, head FROM conversations WHERE source = 'chat' ORDER BY rowid LIMIT 600"
    ).fetchall()
    lengths: dict[str, int] = {
        str(row["id"]): len(conversations.path(service.store, row["head"])) for row in rows
    }

    def of(length: int) -> str:
        return min(lengths, key=lambda each: abs(lengths[each] - length))

    short = of(10)
    replies = [each.message.id for each in service.thread(short).messages if each.message.role == "assistant"]
    return Subject(home, service, short, of(100), replies[-1])


def _milliseconds(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - began)


@contextmanager
def stores(counts: list[int], keep: Path | None) -> Iterator[list[Home]]:
    """A store of each size, made where it is not there, and deleted afterwards unless it is to be kept."""
    with tempfile.TemporaryDirectory(prefix="mynah-scale-") as scratch:
        place = keep or Path(scratch)
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        yield [made(place / str(count), count) for count in counts]


def made(root: Path, count: int) -> Home:
    """The home with a history of so many messages, whole or not there."""
    if root.exists():
        return Home(root).open()
    free, wanted = shutil.disk_usage(root.parent).free, count * DISK_PER_MESSAGE
    if free < wanted:
        sys.exit(f"{root.parent} has {free >> 20} MiB free, and {wanted >> 20} are needed")
    unfinished = root.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    with Store.open(Home(unfinished).open()) as store:
        History(store, count).write(
            lambda share: print(f"\rmaking {count} messages: {share:4.0%}", end="", file=sys.stderr)
        )
    print(file=sys.stderr)
    unfinished.rename(root)
    return Home(root).open()


def table(figures: list[dict[str, float]], counts: list[int]) -> tuple[list[list[Any]], bool]:
    """The rows of the report, and whether every action holds."""
    rows, holds = [], True
    for name in figures[0]:
        small, large = figures[0][name], figures[-1][name]
        fine = large <= max(ALLOWED * small, RESOLUTION_MS)
        holds = holds and fine
        rows.append([name, f"{small:.2f}", f"{large:.2f}", f"{large / small:.2f}", "" if fine else "GROWS"])
    return rows, holds


def main() -> None:
    """Measure, print the table, and say whether it holds."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--messages", type=int, nargs=2, default=[10_000, 1_000_000])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.umask(0o077)
    with stores(arguments.messages, arguments.keep) as homes:
        figures = measured(homes)
    rows, holds = table(figures, arguments.messages)
    if arguments.json:
        print(json.dumps(dict(zip(map(str, arguments.messages), figures, strict=True)), indent=1))
    else:
        from tabulate import tabulate

        header = ["ms (median)", *(f"{count:,}" for count in arguments.messages), "ratio", ""]
        print(
            tabulate(
                rows, headers=header, disable_numparse=True, colalign=("left", "right", "right", "right")
            )
        )
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
