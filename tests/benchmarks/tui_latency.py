"""From a key to the screen while a reply streams: `python -m tests.benchmarks.tui_latency`.

The chat runs headless on a scripted model that says 150 tokens/s, with 10,000 conversations in the list and 2,000
messages in the open one. A key is posted as the terminal's reader posts it, and the time runs until the first frame
that was drawn with the letter in it. The same program without a stream is what it is held against. Memory is this
process's resident set before the conversation is opened, with it open, and after as many messages again.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import psutil
from textual import events

from app.tui.app import MynahApp
from app.tui.composer import Composer
from store import conversations
from store.home import Home
from store.types import Role
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat

CONVERSATIONS = 10_000
MESSAGES = 2_000
RATE = 150.0
KEYS = 120
EXCHANGES = 20
CODE = ["value", " =", " function", "(", "number", ",", " 'text'", ")", "\n"]
WORDS = "the bird listens and learns a word at a time and says it back ".split()


class Watched(MynahApp):
    """The chat with a note of when each frame was handed to the terminal."""

    drawn: float = 0.0
    wanted: str = ""

    def _display(self, screen: Any, renderable: Any) -> None:
        super()._display(screen, renderable)
        if self.wanted and self.screen.query_one(Composer).text == self.wanted:
            self.drawn = perf_counter()
            self.wanted = ""


def fill(service: ScriptedService) -> str:
    """Write the conversations; returns the long one."""
    store, conversation, parent = service.store, "", None
    with store.write():
        for number in range(CONVERSATIONS):
            conversation = conversations.create(store, f"conversation {number}", "chat")
            parent = conversations.append_user(store, conversation, f"question {number}", None).id
        for number in range(MESSAGES - 1):
            role = Role.USER if number % 2 else Role.ASSISTANT
            text = " ".join(random.choices(WORDS, k=40))
            parent = conversations.append(store, conversation, role, text, parent).id
    return conversation


async def typed(chat: Chat, app: Watched) -> list[float]:
    """Press keys at a person's pace; seconds from each to its frame."""
    spent = []
    chat.composer.put("")
    await asyncio.sleep(0.5)
    for number in range(KEYS):
        letter = "abcdefghij"[number % 10]
        app.drawn, app.wanted = 0.0, chat.composer.text + letter
        began = perf_counter()
        app.post_message(events.Key(letter, letter))
        while not app.drawn:
            await asyncio.sleep(0.001)
        spent.append(app.drawn - began)
        await asyncio.sleep(random.uniform(0.03, 0.12))
        if number % 40 == 39:
            chat.composer.put("")
    return spent


def row(name: str, spent: list[float]) -> dict[str, Any]:
    """Milliseconds."""
    ordered = sorted(spent)
    return {
        "what": name,
        "keys": len(ordered),
        "p50_ms": round(1000 * median(ordered), 1),
        "p95_ms": round(1000 * ordered[int(0.95 * len(ordered))], 1),
        "max_ms": round(1000 * ordered[-1], 1),
    }


def resident() -> float:
    """MB of this process that are in memory."""
    return float(round(psutil.Process().memory_info().rss / 1e6, 1))


async def measure(service: ScriptedService, conversation: str) -> list[dict[str, Any]]:
    """All rows."""
    app = Watched(service)
    async with app.run_test(size=(120, 40)) as pilot:
        chat = Chat(app, pilot, service)
        await chat.until(lambda: service.host_starts)
        await pilot.pause(1.0)
        before, began = resident(), perf_counter()
        chat.view.open(conversation)
        await chat.until(lambda: chat.transcript.messages)
        await pilot.pause()
        opened = perf_counter() - began
        with_it = resident()
        quiet = await typed(chat, app)
        piece = [f"{word} " for word in WORDS] + ["\n\n```python\n", *CODE * 20, "```\n\n"]
        service.scripts = [Script(piece * 40, delay=1 / RATE)]
        await chat.send("go on")
        await chat.until(lambda: chat.view.turn and chat.view.turn.text)
        streaming = await typed(chat, app)
        assert chat.view.turn is not None, "the reply ended too early"
        await chat.press("escape")
        await chat.settled()
        service.scripts = []
        for number in range(EXCHANGES):
            await chat.ask(f"question {number}")
        return [
            row("without a stream", quiet),
            row(f"while a reply streams at {RATE:.0f} tokens/s", streaming),
            {
                "what": "memory and opening",
                "conversations": CONVERSATIONS,
                "messages": MESSAGES,
                "open_s": round(opened, 2),
                "before_mb": before,
                "with_messages_mb": with_it,
                f"after_{2 * EXCHANGES}_more_mb": resident(),
                "mounted": len(chat.transcript.messages),
            },
        ]


def main() -> None:
    """Print one JSON object per row."""
    os.umask(0o077)
    random.seed(7)
    with tempfile.TemporaryDirectory() as root:
        service = ScriptedService(Home(Path(root)))
        for each in asyncio.run(measure(service, fill(service))):
            print(json.dumps(each), flush=True)
        service.close()


if __name__ == "__main__":
    main()
