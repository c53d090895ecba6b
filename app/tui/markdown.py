"""Markdown as a chat needs it, streamed with a bounded share of the processor.

Textual's own ``MarkdownStream`` appends as soon as the last append is done: 3000 tokens of one code block at
60 tokens/s then keep the UI loop busy for 167 s instead of 50, since each append highlights the whole block
again, and that on the two cores the model decodes with. ``PacedMarkdown`` appends in batches and
rests ``REST`` times as long as the last one took until it was painted (laying out and painting a page that scrolls
takes longer than the append itself), so drawing takes about a quarter of one core. What an append
costs must not grow with the block either, so while it streams a long code block is drawn as several that
touch (see fences.py), and a long list always is (see lists.py): the newest lines are drawn again, the ones above are
done. A stream always starts from an empty document (a document that is given an open fence through ``update`` loses
the fence at the next append) and ends in one authoritative ``update``, which makes one block of the code again; where
there is a long list, and nothing that changes what stands above, in an append of the rest.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from time import perf_counter

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token
from textual.widgets import Markdown
from textual.widgets.markdown import MarkdownBlock, MarkdownFence

from app.tui.fences import GOES_ON, FenceSplitter
from app.tui.lists import ChatBulletList, ChatOrderedList, part_lists

FRAME = 0.1
REST = 3.0
LONGEST_REST = 1.0
LONGEST_PAINT = 1.0
"""A view that is not on the screen is never painted: seconds after which it is not waited for."""
_REFERENCE = re.compile(r"^[ >*+\d.)-]*\[[^\]\n]+\]:", re.MULTILINE)
"""What may say where a link leads that stands anywhere in the text, above or below."""


def _keep_line_breaks(state: StateCore) -> None:
    """What a model writes on its own line is shown on its own line; CommonMark would join the lines."""
    for block in state.tokens:
        for token in block.children or ():
            if token.type == "softbreak":
                token.type = "hardbreak"


def _parser() -> MarkdownIt:
    """GitHub's flavour, with HTML shown as the text it is: Textual drops HTML tokens and their content."""
    parser = MarkdownIt("gfm-like", {"html": False})
    parser.core.ruler.after("inline", "keep_line_breaks", _keep_line_breaks)
    parser.core.ruler.after("keep_line_breaks", "part_lists", part_lists)
    return parser


_PARSER = _parser()


class ChatFence(MarkdownFence):
    """A code block, or a part of one that is still being streamed."""

    def __init__(self, markdown: Markdown, token: Token, code: str) -> None:
        continues = token.info.endswith(GOES_ON)
        token.info = token.info.removesuffix(GOES_ON).strip()
        super().__init__(markdown, token, code)
        self.set_class(continues, "-continued")

    def on_mount(self) -> None:
        if not self.has_class("-continued") or self.parent is None:
            return
        blocks = self.parent.children
        place = blocks.index(self)
        if place and isinstance(blocks[place - 1], ChatFence):
            blocks[place - 1].add_class("-goes-on")


_PARTED: dict[str, type[MarkdownBlock]] = {
    "fence": ChatFence,
    "code_block": ChatFence,
    "bullet_list_open": ChatBulletList,
    "ordered_list_open": ChatOrderedList,
}


class ChatMarkdown(Markdown):
    """Markdown whose links are shown, never followed: the text comes from a model."""

    def get_block_class(self, block_name: str) -> type[MarkdownBlock]:
        """As Textual has them, with code blocks and lists that may come in parts."""
        return _PARTED.get(block_name) or super().get_block_class(block_name)

    def __init__(self, text: str = "", *, classes: str | None = None) -> None:
        super().__init__(text, parser_factory=lambda: _PARSER, open_links=False, classes=classes)


class PacedMarkdown:
    """Feeds one ``ChatMarkdown`` that starts out empty."""

    def __init__(self, view: ChatMarkdown) -> None:
        self._view = view
        self._splitter = FenceSplitter()
        self._pending: list[str] = []
        self._arrived = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def write(self, text: str) -> None:
        """Add text; it is drawn with the next batch."""
        self._pending.append(self._splitter.feed(text))
        self._arrived.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    async def finish(self, text: str) -> None:
        """End the stream: the whole text is shown, whatever was drawn so far."""
        await self.cancel()
        drawn = self._view.source
        far = bool(_REFERENCE.search(text))
        if text == drawn and not far:
            return
        if drawn and text.startswith(drawn) and not far and self._view.query(".-goes-on"):
            await self._view.append(text[len(drawn) :])
        else:
            await self._view.update(text)

    async def cancel(self) -> None:
        """End the stream and draw nothing more, for a view that is going away."""
        task, self._task = self._task, None
        self._pending.clear()
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = "".join(self._pending)
            self._pending.clear()
            started = perf_counter()
            # Shielded: a half-mounted block would stay half-mounted.
            await asyncio.shield(self._view.append(batch))
            painted = asyncio.Event()
            self._view.call_after_refresh(painted.set)
            with suppress(TimeoutError):
                # Not `wait_for`: in Python 3.11 it can swallow the cancellation by which a stream ends.
                async with asyncio.timeout(LONGEST_PAINT):
                    await painted.wait()
            spent = perf_counter() - started
            await asyncio.sleep(min(LONGEST_REST, max(FRAME, REST * spent)))
