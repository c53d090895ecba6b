"""Writes docs/commands.md from the help of the commands themselves: `make docs`; a test keeps it true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from app.cli.main import cli

PAGE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
_WIDTH = 100
_OPENING = """\
# Commands

Written by `make docs` from the commands' own help.

Standard output carries data, standard error everything else. With `--json` the data is one line of JSON. Exit
codes: 0 done, 1 failed, 2 the command was wrong, 3 no such thing, 130 interrupted. Ids may be shortened to any
unique beginning.
"""


def page() -> str:
    """The whole page."""
    sections = [_OPENING]
    for context in _commands(
        click.Context(cli, info_name="mynah", terminal_width=_WIDTH, help_option_names=["-h", "--help"])
    ):
        sections.append(f"## {context.command_path}\n\n```text\n{context.get_help().rstrip()}\n```\n")
    return "\n".join(sections)


def _commands(context: click.Context) -> Iterator[click.Context]:
    yield context
    group = context.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield from _commands(click.Context(command, info_name=name, parent=context, terminal_width=_WIDTH))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
