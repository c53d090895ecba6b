"""Draws the README's pictures with the real chat on a scripted model: `python -m tests.benchmarks.screens`.

The pictures are Textual's own SVG export, so they cannot show anything the program does not draw.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from app.tui.app import MynahApp
from store.home import Home
from store.reasons import Reason
from tests.scripted_service import Script, ScriptedService
from tests.tui_pilot import Chat

DOCS = Path(__file__).resolve().parents[2] / "docs"
SIZE = (108, 32)

_LESSONS = (
    (
        "How long do I boil an egg?",
        "There are many ways to boil an egg…",
        "Six minutes for soft, eleven for hard.",
    ),
    ("Why is the sky blue?", "The sky is a fascinating subject…", "Air scatters blue light more than red."),
    ("What is a good gift for a gardener?", "1. Gloves\n2. Seeds\n3. …", "A pair of good secateurs."),
    (
        "How do I get wax off a table?",
        "First, gather the following…",
        "Cool it with ice, then lift it off with a card.",
    ),
    ("When do swallows leave?", "Swallows are migratory birds…", "In September, when the insects get few."),
)
_CODE = (
    "Split on white space and count with a `Counter`.\n\n"
    "```python\nfrom collections import Counter\n\n\ndef count_words(text: str) -> Counter[str]:\n"
    '    """How often each word occurs."""\n    return Counter(text.lower().split())\n```'
)

_BEFORE = "There are several ways to do this. First, gather the following:\n\n1. A hair dryer\n2. A soft cloth\n3. …"
_AFTER = "Cool it with ice, then lift it off with a card."


def teach(service: ScriptedService) -> str:
    """Play some days of use; returns the conversation to show."""
    for question, reply, correction in _LESSONS:
        _, message = service.say(question, reply)
        service.correct(message, correction)
    service.learned()
    conversation, message = service.say("How long does a goose egg take?", "About thirteen minutes for hard.")
    service.rate(message, 1)
    service.say("Show me how to count words in Python", _CODE, conversation)
    _, other = service.say("Name a long river", "1. The Nile\n2. The Amazon")
    service.rate(other, -1, reason=Reason.NO_LIST)
    return conversation


async def draw(service: ScriptedService, conversation: str) -> None:
    """Go through the screens and save each."""
    app = MynahApp(service)
    async with app.run_test(size=SIZE) as pilot:
        chat = Chat(app, pilot, service)
        chat.composer.cursor_blink = False
        await chat.until(lambda: "v1" in chat.seen("StatusLine"))
        chat.view.open(conversation)
        await chat.until(lambda: len(chat.replies) == 2)
        for name, keys in (
            ("chat", ()),
            ("reasons", ("f7",)),
            ("correct", ("escape", "f8")),
            ("story", ("escape", "shift+tab", "shift+tab", "f12")),
            ("find", ("escape", "escape", "ctrl+f", *"egg rated:up")),
            ("versions", ("escape", "f3")),
            ("before", ("c",)),
            ("timeline", ("3",)),
            ("incognito", ("escape", "escape", "alt+i")),
        ):
            if name == "before":
                service.scripts = [Script([_BEFORE]), Script([_AFTER])]
            await chat.press(*keys)
            await pilot.pause(0.6)
            (DOCS / f"{name}.svg").write_text(app.export_screenshot(title="mynah"), encoding="utf-8")
            print(DOCS / f"{name}.svg", file=sys.stderr)


def main() -> None:
    """Draw every picture into docs/."""
    os.umask(0o077)
    with tempfile.TemporaryDirectory() as root:
        service = ScriptedService(Home(Path(root)))
        asyncio.run(draw(service, teach(service)))
        service.close()


if __name__ == "__main__":
    main()
