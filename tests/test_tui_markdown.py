"""Code blocks and lists while they stream: one picture at the end, and the last line costs no more than the first."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.pilot import Pilot
from textual.widgets._markdown import MarkdownBullet

from app.tui import lists
from app.tui.app import MynahApp
from app.tui.fences import GOES_ON, PART, CodeBlock, FenceSplitter, code_blocks, fenced
from app.tui.lists import ChatBulletList, ChatOrderedList
from app.tui.markdown import ChatFence, ChatMarkdown, PacedMarkdown
from tests.at_rest import rest

LINES = "".join(f"    value_{number} = function({number}, 'text')\n" for number in range(200))
LONG = f"Look:\n\n```python\ndef long() -> None:\n{LINES}```\n\nThat is **all**.\n"


class Page(App[None]):
    CSS_PATH = MynahApp.CSS_PATH
    CSS = "Screen { overflow-y: scroll; }"

    def compose(self) -> ComposeResult:
        yield ChatMarkdown()


@pytest.fixture
async def pilot() -> AsyncIterator[Pilot[Any]]:
    async with Page().run_test(size=(80, 24)) as pilot:
        yield pilot


def joined(text: str) -> str:
    """What was cut, put together again."""
    return re.sub(rf"^( {{0,3}})(`+|~+)\n\n\1\2[^\n]* {GOES_ON}\n", "", text, flags=re.MULTILINE)


@given(st.lists(st.integers(1, 60), min_size=1), st.sampled_from([LONG, LINES, LONG.replace("```", "~~~~")]))
def test_cuts_do_not_depend_on_the_pieces_and_lose_nothing(sizes: list[int], text: str) -> None:
    splitter, out, at, turn = FenceSplitter(), "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        out += splitter.feed(text[at : at + size])
        at, turn = at + size, turn + 1
    assert joined(out) == text


def test_a_long_block_is_cut_and_a_short_one_is_not() -> None:
    assert FenceSplitter().feed(LONG).count(GOES_ON) >= 200 // PART - 1
    short = "```py\n" + "x = 1\n" * PART + "```\n"
    assert FenceSplitter().feed(short) == short
    assert FenceSplitter().feed("word\n" * 100) == "word\n" * 100


def test_a_line_that_may_end_the_block_is_waited_for() -> None:
    splitter = FenceSplitter()
    said = splitter.feed("```\n" + "x\n" * PART)
    for piece in ("`", "``", "\n", "after\n" * 40):
        said += splitter.feed(piece)
    assert GOES_ON not in said


async def blocks_after(pilot: Pilot[Any], text: str, stream: bool) -> list[tuple[str, object, object]]:
    """Each block and label: its kind, its place, and its styled text."""
    view = pilot.app.query_one(ChatMarkdown)
    await view.update("")
    if stream:
        paced = PacedMarkdown(view)
        for start in range(0, len(text), 7):
            paced.write(text[start : start + 7])
            if start % 210 == 0:
                await pilot.pause(0.01)
        await paced.finish(text)
    else:
        await view.update(text)
    await rest(pilot.app)
    return [
        (type(block).__name__, block.region, block.render()) for block in view.query("MarkdownBlock, Label")
    ]


async def test_a_streamed_block_ends_as_one_update_shows_it(pilot: Pilot[Any]) -> None:
    streamed = await blocks_after(pilot, LONG, stream=True)
    at_once = await blocks_after(pilot, LONG, stream=False)
    assert streamed == at_once
    assert len(pilot.app.query(ChatFence)) == 1


async def test_the_parts_of_a_block_touch_and_the_done_ones_are_left_alone(pilot: Pilot[Any]) -> None:
    view = pilot.app.query_one(ChatMarkdown)
    splitter = FenceSplitter()
    opening = "```python\n" + LINES
    half = len(opening) // 2
    await view.append(splitter.feed(opening[:half]))
    done = list(view.query(ChatFence))[:-1]
    codes = [fence.code for fence in done]
    await view.append(splitter.feed(opening[half:]))
    await rest(pilot.app)
    fences = list(view.query(ChatFence))
    assert fences[: len(done)] == done
    assert [fence.code for fence in done] == codes
    assert {fence.lexer for fence in fences} == {"python"}
    assert "\n".join(fence.code.rstrip("\n") for fence in fences) == LINES.rstrip("\n")
    for above, below in pairwise(fences):
        assert below.region.y == above.region.bottom, "no gap between the parts of one block"
    assert max(len(fence.code.splitlines()) for fence in fences) <= PART + 1


BULLETS = "".join(f"- item {number}\n" for number in range(40))
LISTS = {
    "bullets": BULLETS,
    "between": f"Look:\n\n{BULLETS}\nThat is **all**.\n",
    "loose": BULLETS.replace("\n", "\n\n"),
    "numbers": "".join(f"{number}. item\n" for number in range(91, 131)),
    "ones": "1. item\n" * 40,
    "nested": "".join(f"- item\n  1. inner {number}\n     more\n" for number in range(30)),
    "dashes": "- item\n" * 12 + "---\n\n" + BULLETS,
    "kinds": BULLETS + BULLETS.replace("-", "*"),
}


@pytest.mark.parametrize("kind", LISTS)
async def test_a_streamed_list_ends_as_one_update_shows_it(pilot: Pilot[Any], kind: str) -> None:
    streamed = await blocks_after(pilot, LISTS[kind], stream=True)
    at_once = await blocks_after(pilot, LISTS[kind], stream=False)
    assert streamed == at_once


async def test_the_parts_of_a_list_touch_and_the_done_ones_are_left_alone(pilot: Pilot[Any]) -> None:
    view = pilot.app.query_one(ChatMarkdown)
    half = len(BULLETS) // 2
    await view.append(BULLETS[:half])
    done = list(view.query(ChatBulletList))[:-1]
    assert done
    await view.append(BULLETS[half:])
    await rest(pilot.app)
    parts = list(view.query(ChatBulletList))
    assert parts[: len(done)] == done
    assert [len(part.children) for part in parts] == [lists.PART] * 3 + [40 - 3 * lists.PART]
    for above, below in pairwise(parts):
        assert below.region.y == above.region.bottom, "no gap between the parts of one list"


async def test_numbers_go_on_and_a_list_of_ones_is_one(pilot: Pilot[Any]) -> None:
    view = pilot.app.query_one(ChatMarkdown)
    await view.update(LISTS["numbers"])
    assert [str(each.render()).strip() for each in view.query(MarkdownBullet)] == [
        f"{number}." for number in range(91, 131)
    ]
    await view.update(LISTS["ones"])
    assert len(view.query(ChatOrderedList)) == 1


async def test_the_end_of_a_long_list_draws_the_rest_alone(
    pilot: Pilot[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    view = pilot.app.query_one(ChatMarkdown)
    paced = PacedMarkdown(view)
    paced.write(BULLETS)
    while not view.source:
        await pilot.pause(0.01)
    first = view.query(ChatBulletList).first()
    await paced.finish(BULLETS + "- the last\n")
    await rest(pilot.app)
    assert view.query(ChatBulletList).first() is first
    assert "the last" in str(view.query("MarkdownParagraph").last().render())
    # What is said below of a link above is known only when all of it is read.
    paced = PacedMarkdown(view)
    text = f"{view.source}\n[a link]\n\n[a link]: http://x/\n"
    await paced.finish(text)
    await rest(pilot.app)
    assert view.query(ChatBulletList).first() is not first
    assert view.source == text


def test_code_blocks_of_a_reply() -> None:
    text = (
        "a\n```py\nx = 1\n\ny\n```\nb\n~~~\n```\n~~~\n   ```sh run\n   ls\n   ```\n````\n```\n````\n```\nopen"
    )
    assert code_blocks(text) == [
        CodeBlock("py", "x = 1\n\ny"),
        CodeBlock("", "```"),
        CodeBlock("sh", "ls"),
        CodeBlock("", "```"),
        CodeBlock("", "open"),
    ]


@pytest.mark.parametrize("text", ["plain\n", "```py\nx\n```\n", "````\n```\n````", ""])
def test_a_fenced_text_comes_out_as_it_was(text: str) -> None:
    assert code_blocks(fenced(text, "txt")) == [CodeBlock("txt", text.removesuffix("\n"))]
