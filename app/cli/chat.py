"""Opening the chat: only here does the command line know that there are widgets, and when there are none.

Without a terminal on both sides there is nothing to draw on, so the chat is then lines of text; `--plain` asks for
that on a terminal too.
"""

from __future__ import annotations

import sys

import click

from app.cli.session import Kind, full_id, service
from store import cipher


@click.command()
@click.option("--plain", is_flag=True, help="Line by line, for screen readers: nothing on the screen moves.")
@click.option("-c", "--conversation", metavar="ID", help="Go on with this conversation.")
@click.pass_context
def chat(ctx: click.Context, plain: bool, conversation: str | None) -> None:
    """Open the chat, as `mynah` alone does.

    In a pipe each line of the input is a message, and the output is the replies.
    """
    ctx.exit(open_chat(plain=plain, conversation=conversation))


def open_chat(*, plain: bool = False, conversation: str | None = None) -> int:
    """Open the chat, with the conversation whose id begins so or empty, and return the exit code it ends with.

    Raises:
        NotFound, UsageError: no conversation's id begins so, or several do.
        MynahError: it failed where nobody could try again.
    """
    if plain or not (sys.stdin.isatty() and sys.stdout.isatty()):
        from app.cli.plain import PlainChat, read_line

        mynah = service()
        chat_ = PlainChat(mynah, read_line, person=sys.stdin.isatty())
        if conversation is not None:
            chat_.go_on(full_id(mynah, Kind.CONVERSATION, conversation))
        return chat_.run()
    mynah = service()
    # Asked now: once the chat is drawn nobody can be.
    cipher.unlock(mynah.home.db)
    wanted = None if conversation is None else full_id(mynah, Kind.CONVERSATION, conversation)
    from app.tui.app import run

    return run(mynah, wanted)
