"""What commands print, and how they read text: standard output is data, standard error is narration.

Kept free of everything but click, because `mynah ask` imports it. Model text is untrusted: what goes to a
terminal is stripped of control characters, so that a reply cannot move the cursor or retitle the window; what
goes to a file or a pipe is left as it is.
"""

from __future__ import annotations

import json
import math
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click

from store.errors import UsageError

# C0 without newline and tab, DEL, C1, and the marks that turn the direction of the text around.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def say(message: str) -> None:
    """Narration for the person at the terminal."""
    click.echo(shown(message, sys.stderr.isatty()), err=True)


def say_remembered(items: Iterable[Mapping[str, str]]) -> None:
    """What was read off the owner's message (``id``, ``text``), with the command that undoes it."""
    for item in items:
        text = " ".join(item["text"].split())
        say(f"(remembered: “{text}”; `mynah memory forget {item['id']}` takes it back)")


def put(text: str, *, newline: bool = True) -> None:
    """A piece of data in human form, out at once."""
    click.echo(shown(text, sys.stdout.isatty()), nl=newline)


def put_json(data: Any) -> None:
    """Data as one line of JSON."""
    click.echo(json.dumps(data, ensure_ascii=False, allow_nan=False))


def emit(data: Any, as_json: bool, lines: Callable[[], Iterable[str]]) -> None:
    """Data as JSON, or the lines a person reads instead of it."""
    if as_json:
        put_json(data)
        return
    for line in lines():
        put(line)


def shown(text: str, to_terminal: bool) -> str:
    """Text fit for where it goes."""
    return _CONTROL.sub("", text) if to_terminal else text


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Rows as aligned columns under a header; one line per row, wide characters counted as two. No rows, no lines."""
    if not rows:
        return []
    from tabulate import tabulate

    cells = [[_one_line(cell) for cell in row] for row in rows]
    text = tabulate(cells, headers=[name.upper() for name in header], tablefmt="plain", disable_numparse=True)
    return [line.rstrip() for line in text.splitlines()]


def _one_line(cell: object) -> str:
    return "-" if cell is None else " ".join(str(cell).split())


def short_time(moment: str | None) -> str | None:
    """An ISO time as a person writes it, in local time."""
    if moment is None:
        return None
    from datetime import datetime

    return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")


def text_argument(words: Sequence[str], what: str) -> str:
    """The text of a command: its words, or all of standard input for a single ``-``.

    Raises:
        UsageError: there is nothing in it, or it is not text.
    """
    text = " ".join(words)
    if text == "-":
        if sys.stdin.isatty():
            say("reading from the terminal; end with Ctrl-D")
        text = sys.stdin.read()
        # The newline that ends a text file is not part of the text.
        text = text[:-1] if text.endswith("\n") else text
    if "\0" in text:
        raise UsageError(
            f"the {what} is not text, it holds null bytes: give it as words, or a text file for -"
        )
    if not text.strip():
        raise UsageError(f"there is no {what}: give it as words, or - to read it from standard input")
    return text


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A line on standard error that is written over while the work goes on; nothing where nobody is looking."""
    if not sys.stderr.isatty():
        yield lambda _share: None
        return
    last = time.monotonic()
    width = 0

    def told(share: float) -> None:
        nonlocal last, width
        # Work that is over within half a second needs no line.
        if time.monotonic() - last < 0.5:
            return
        last = time.monotonic()
        text = f"{what} {min(share, 1.0):4.0%}"
        width = len(text)
        click.echo(f"\r{text}", err=True, nl=False)

    try:
        yield told
    finally:
        if width:
            click.echo(f"\r{' ' * width}\r", err=True, nl=False)


def finite(ctx: click.Context, parameter: click.Parameter, value: float | None) -> float | None:
    """Click callback: refuse nan and inf, which pass every range check."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter("must be a number", ctx, parameter)
    return value
