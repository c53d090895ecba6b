"""Entry point of `mynah`: finds the command, and turns every way of failing into one line and an exit code.

Exit codes are an interface for scripts: 0 done, 1 failed, 2 the command was wrong, 3 no such thing, 130
interrupted. They live on the error classes; this module only carries them out. A command's module is
imported when it is named, which keeps `mynah ask` at click plus the host's client (a test holds it there).
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from typing import Any, NoReturn

import click

import app
from app.cli.passphrase import ask, read_descriptor
from store import cipher
from store.errors import Interrupted, MynahError
from store.home import PRIVATE_FILE, Home

COMMANDS: dict[str, str] = {
    "chat": "app.cli.chat:chat",
    "ask": "app.cli.ask:ask",
    "rate": "app.cli.feedback:rate",
    "correct": "app.cli.feedback:correct",
    "story": "app.cli.story:story",
    "flip": "app.cli.story:flip",
    "conversations": "app.cli.conversations:conversations",
    "consent": "app.cli.consent:consent",
    "learn": "app.cli.learn:learn",
    "adapters": "app.cli.adapters:adapters",
    "status": "app.cli.control:status",
    "decisions": "app.cli.control:decisions",
    "why": "app.cli.control:why",
    "undo": "app.cli.control:undo",
    "approve": "app.cli.control:approve",
    "decline": "app.cli.control:decline",
    "freeze": "app.cli.control:freeze",
    "memory": "app.cli.items:memory",
    "instructions": "app.cli.items:instructions",
    "guards": "app.cli.items:guards",
    "items": "app.cli.items:items",
    "forget": "app.cli.forget:forget",
    "export": "app.cli.exchange:export",
    "backup": "app.cli.exchange:backup",
    "restore": "app.cli.exchange:restore",
    "encrypt": "app.cli.encryption:encrypt",
    "decrypt": "app.cli.encryption:decrypt",
    "models": "app.cli.models:models",
    "serve": "app.cli.host:serve",
    "stop": "app.cli.host:stop",
    "config": "app.cli.config:config",
    "completion": "app.cli.completion:completion",
    "doctor": "app.cli.doctor:doctor",
    "locate": "app.cli.doctor:locate",
    "bench": "app.cli.bench:bench",
}
"""Command name to ``module:attribute``, in the order of the help page."""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, imported now; None for a name that is not one."""
        target = COMMANDS.get(cmd_name)
        if target is None:
            return None
        module, attribute = target.split(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does it, with near names offered for a misspelt one."""
        name = args[0]
        if name in COMMANDS or name.startswith("-"):
            return super().resolve_command(ctx, args)
        import difflib

        near = difflib.get_close_matches(name, COMMANDS, n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else "`mynah --help` lists them"
        raise click.UsageError(f"there is no command {name!r}: {hint}", ctx)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(app.__version__, prog_name="mynah", message="%(prog)s %(version)s")
@click.option(
    "--passphrase-fd",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the passphrase of an encrypted database from this descriptor.",
)
@click.pass_context
def cli(ctx: click.Context, passphrase_fd: int | None) -> None:
    """Chat with a model on your own machine, which learns from what you correct.

    Without a command, the chat opens. Data goes to standard output, everything else to standard error.
    """
    cipher.ask_with(ask)
    cipher.give(None if passphrase_fd is None else read_descriptor(passphrase_fd))
    if ctx.invoked_subcommand is None:
        from app.cli.chat import open_chat

        ctx.exit(open_chat())


def main() -> NoReturn:
    """Run the command line of this process and exit with its code."""
    _replace_closed_streams()
    _speak_utf8()
    if "_MYNAH_COMPLETE" in os.environ:
        cli.main(prog_name="mynah")
    sys.exit(run([_readable(argument) for argument in sys.argv[1:]]))


def run(arguments: list[str]) -> int:
    """Run one command line; returns its exit code, having said on standard error what went wrong."""
    try:
        # Not `cli.main`: that has its own mind about broken pipes and interrupts.
        with cli.make_context("mynah", arguments) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except (KeyboardInterrupt, EOFError, click.Abort, Interrupted) as error:
        # The terminal has put ^C where the cursor was.
        click.echo("", err=True, nl=sys.stderr.isatty())
        _complain(str(error) or "interrupted")
        return Interrupted.exit_code
    except click.exceptions.Exit as leaving:
        return leaving.exit_code
    except MynahError as error:
        _complain(str(error))
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        _complain(_usage_line(error))
        return error.exit_code
    except OSError as error:
        _complain(_disk_full(error) or _log_unexpected(error))
        return 1
    except Exception as error:
        _complain(_log_unexpected(error))
        return 1
    return 0


def _replace_closed_streams() -> None:
    """Give a process that was started without a standard stream (`mynah … 2>&-`) an empty one.

    The descriptors are taken from 0 up, so that a database can never be opened under the number of a stream.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
            setattr(sys, name, os.fdopen(number, "w" if number else "r"))


def _speak_utf8() -> None:
    """Data is UTF-8 whatever the locale says: a script must not lose a reply's text under LC_ALL=C."""
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        reconfigure: Any = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="replace")


def _readable(argument: str) -> str:
    """An argument as the UTF-8 it was typed in, where a narrow locale made something else of its bytes."""
    return os.fsencode(argument).decode("utf-8", "replace")


def _complain(message: str) -> None:
    line = " ".join(message.split())
    click.echo(f"mynah: {line}", err=True)


def _usage_line(error: click.ClickException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None or "--help" in message:
        return message
    takes_text = any(parameter.name == "text" for parameter in context.command.params)
    if isinstance(error, click.NoSuchOption) and takes_text:
        message += "; text that begins with a dash goes after --"
    return f"{message[:1].lower()}{message[1:]} (see `{context.command_path} --help`)"


def _reader_left() -> int:
    """Whoever read our output has what it wanted (`mynah … | head`): end quietly, and let no flush complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _disk_full(error: OSError) -> str | None:
    """What to say when the output's disk is full (the data directory's own has an error of its own)."""
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return None
    return "the output could not be written, its disk is full: free some space and try again"


def _log_unexpected(error: Exception) -> str:
    """Keep the traceback where the owner can find it, without its words; returns the one line to show."""
    log = Home.default().logs / "cli.log"
    summary = f"unexpected error ({type(error).__name__}: {error})"
    from store.discreet import described

    try:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE_FILE)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(described(error))
    except OSError:
        return f"{summary}; its details could not be written to {log}"
    return f"{summary}: the details are in {log}"


if __name__ == "__main__":
    main()
