"""Opening the chat: only here does the command line know that there are widgets, and when there are none.

Without a terminal on both sides there is nothing to draw on, so the chat is then lines of text; `--plain` asks for
that on a terminal too.
"""

from __future__ import annotations

import sys

import click

from app.cli.session import service
from store import cipher


@click.command()
@click.option("--plain", is_flag=True, help="Line by line, for screen readers: nothing on the screen moves.")
@click.pass_context
def chat(ctx: click.Context, plain: bool) -> None:
    """Open the chat, as `mynah` alone does.

    In a pipe each line of the input is a message, and the output is the replies.
    """
    ctx.exit(open_chat(plain=plain))


def open_chat(*, plain: bool = False) -> int:
    """Open the chat and return the exit code it ends with.

    Raises:
        MynahError: it failed where nobody could try again.
    """
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        from app.cli.plain import PlainChat, read_line

        return PlainChat(service(), read_line, person=sys.stdin.isatty()).run()
    mynah = service()
    # Asked now: once the chat is drawn nobody can be.
    cipher.unlock(mynah.home.db)
    from app.tui.app import run

    return run(mynah)
