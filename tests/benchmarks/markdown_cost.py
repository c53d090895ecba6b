"""What a streamed token costs to draw, early and late in one long block: `python -m tests.benchmarks.markdown_cost`.

Every text of 2,000 tokens is streamed twice, by Textual's own append per token and by the chat's paced stream at
150 tokens/s; printed is the processor time per token over the first and the last quarter, in milliseconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from time import process_time
from typing import Any

from textual.app import App, ComposeResult
from textual.containers import VerticalScroll

from app.tui.app import MynahApp
from app.tui.markdown import ChatMarkdown, PacedMarkdown

TOKENS = 2000
RATE = 150.0


def texts() -> dict[str, list[str]]:
    """The pieces of each text."""
    line = ["    ", "value", " =", " function", "(", "number", ",", " 'text'", ")", "\n"]
    words = ["the ", "bird ", "listens ", "and ", "learns "]
    return {
        "code": ["```python\n", *(line * TOKENS)[:TOKENS]],
        "prose": (([*words * 12, "\n\n"]) * TOKENS)[:TOKENS],
        "list": ((["- ", *words * 2, "\n"]) * TOKENS)[:TOKENS],
        "one paragraph": (words * TOKENS)[:TOKENS],
    }


class Page(App[None]):
    """A reply alone."""

    CSS_PATH = MynahApp.CSS_PATH

    def compose(self) -> ComposeResult:
        with VerticalScroll() as page:
            page.anchor()
            yield ChatMarkdown()


async def paced(pieces: list[str]) -> dict[str, Any]:
    """Stream as the chat does; milliseconds of processor per token in the first and last quarter."""
    app = Page()
    async with app.run_test(size=(100, 40)) as pilot:
        view = app.query_one(ChatMarkdown)
        stream = PacedMarkdown(view)
        loop, began, marks = asyncio.get_running_loop(), asyncio.get_running_loop().time(), [process_time()]
        for place, piece in enumerate(pieces):
            await asyncio.sleep(max(0.0, began + place / RATE - loop.time()))
            stream.write(piece)
            if place % (len(pieces) // 4) == len(pieces) // 4 - 1:
                marks.append(process_time())
        seconds = loop.time() - began
        before = process_time()
        await stream.finish("".join(pieces))
        await pilot.pause()
        quarter = len(pieces) // 4
        return {
            "first_quarter_ms": round(1000 * (marks[1] - marks[0]) / quarter, 2),
            "last_quarter_ms": round(1000 * (marks[4] - marks[3]) / quarter, 2),
            "wall_s": round(seconds, 1),
            "ideal_s": round(len(pieces) / RATE, 1),
            "last_update_ms": round(1000 * (process_time() - before)),
        }


async def naive(pieces: list[str]) -> dict[str, Any]:
    """Append every token by itself."""
    app = Page()
    async with app.run_test(size=(100, 40)) as pilot:
        view, marks = app.query_one(ChatMarkdown), [process_time()]
        for place, piece in enumerate(pieces):
            await view.append(piece)
            if place % (len(pieces) // 4) == len(pieces) // 4 - 1:
                marks.append(process_time())
        await pilot.pause()
        quarter = len(pieces) // 4
        return {
            "first_quarter_ms": round(1000 * (marks[1] - marks[0]) / quarter, 2),
            "last_quarter_ms": round(1000 * (marks[4] - marks[3]) / quarter, 2),
        }


def main() -> None:
    """Print one JSON object per text; `--naive` also measures appending each token, which takes minutes."""
    for name, pieces in texts().items():
        row: dict[str, Any] = {"text": name, "tokens": len(pieces), **asyncio.run(paced(pieces))}
        if "--naive" in sys.argv:
            row["naive"] = asyncio.run(naive(pieces))
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
