"""`mynah export`, `conversations import`, `backup` and `restore`: what comes in and what goes out.

Whatever leaves is redacted unless the owner says otherwise, and whatever comes in is not learned from until the
owner says so. Long work shows how far it is on standard error, when a person is looking.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import app
from app.cli.output import emit, json_option, progress, put, say
from app.cli.session import Kind, full_id, service
from app.counting import counted
from store.errors import ModelFileError, UsageError
from store.types import ForgetState

if TYPE_CHECKING:
    from app.service import Service
    from store.exchange.export import Tally
    from store.exchange.intake import Report

FORMATS = ("atif", "trl-sft", "trl-kto", "trl-dpo", "sharegpt", "openai")
SOURCES = ("chatgpt", "claude", "atif", "openai", "sharegpt", "llm")
_SHOWN_SKIPPED = 20
_file = click.argument("file", metavar="FILE", type=click.Path(path_type=Path))


@click.command()
@click.option("--format", "form", type=click.Choice(FORMATS), required=True, help="What to write.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Write to this new file.")
@click.option("--conversation", metavar="ID", help="Only this conversation.")
@click.option("--no-redact", is_flag=True, help="Leave secrets and personal data as they are.")
def export(form: str, out: Path | None, conversation: str | None, no_redact: bool) -> None:
    """Write conversations as JSON lines, with secrets and personal data replaced.

    atif holds everything: all branches, ratings and corrections; `mynah conversations import` reads it back. openai
    and sharegpt hold the branch that is shown. trl-sft, trl-kto and trl-dpo are training sets made of accepted
    replies, thumbs and corrections, without the conversations that may not be trained on.
    """
    mynah = service()
    wanted = None if conversation is None else full_id(mynah, Kind.CONVERSATION, conversation)
    write_export(mynah, form, out, wanted, redact=not no_redact)


def write_export(
    mynah: Service, form: str, out: Path | None, conversation: str | None, *, redact: bool
) -> None:
    """Write an export to a new file or to standard output, and say what it holds."""
    from store.exchange import records
    from store.exchange.export import Format, Request, Tally, lines

    redaction = records.redacted(mynah.store) if redact else records.UNREDACTED
    request = Request(Format(form), redaction, app.__version__, conversation, _models(mynah))
    tally = Tally()
    written = lines(mynah.store, request, tally)
    if out is None:
        for line in written:
            put(line)
    else:
        _write_new(out, written)
    place = "" if out is None else f" to {out}"
    say(f"wrote {counted(tally.lines, 'line')} of {counted(tally.conversations, 'conversation')}{place}")
    for remark in _remarks(tally, redact):
        say(remark)


def _remarks(tally: Tally, redact: bool) -> Iterator[str]:
    if tally.without_consent:
        yield f"left out {counted(tally.without_consent, 'conversation')} that may not be trained on"
    if not redact:
        yield "nothing was redacted: secrets and personal data are in it as they were written"


def _write_new(out: Path, written: Iterator[str]) -> None:
    from store.files import whole_file

    if out.exists():
        raise UsageError(f"{out} exists already: choose a new file")
    with whole_file(out) as temporary, temporary.open("w", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in written)


def _models(mynah: Service) -> dict[str, str]:
    """Names of base models by their hash; only the one in use is known here."""
    try:
        model = mynah.model()
    except ModelFileError:
        return {}
    return {model.base_hash: model.name}


@click.command("import")
@_file
@click.option(
    "--format", "form", type=click.Choice(SOURCES), help="Read it as this; told by itself otherwise."
)
@json_option
def import_(file: Path, form: str | None, as_json: bool) -> None:
    """Import the conversations in FILE, with their branches.

    FILE is an export of ChatGPT or Claude (JSON or ZIP), ATIF, OpenAI messages or ShareGPT (JSON or JSON lines), or
    the logs.db of the llm program. Importing a file again adds only what is new. Imported conversations are not
    trained on until you allow it.
    """
    from store.exchange.drafts import Source
    from store.exchange.intake import import_file

    mynah = service()
    with progress("importing") as told:
        report = import_file(mynah.store, file, Source(form) if form else None, told)
    for skipped in report.skipped[:_SHOWN_SKIPPED]:
        title = f" ({skipped.title})" if skipped.title else ""
        say(f"skipped {skipped.entry}{title}: {skipped.reason}")
    if len(report.skipped) > _SHOWN_SKIPPED:
        say(f"(skipped {len(report.skipped) - _SHOWN_SKIPPED} more: --json lists them)")
    emit(_report(report), as_json, lambda: [_summary(report)])


def _report(report: Report) -> dict[str, Any]:
    return {
        "added": report.added,
        "extended": report.extended,
        "unchanged": report.unchanged,
        "messages": report.messages,
        "skipped": [
            {"entry": each.entry, "title": each.title, "reason": each.reason} for each in report.skipped
        ],
    }


def _summary(report: Report) -> str:
    parts = [f"added {counted(report.added, 'conversation')}"]
    if report.extended:
        parts.append(f"extended {report.extended}")
    parts[-1] += f" ({counted(report.messages, 'message')})"
    if report.unchanged:
        parts.append(f"{report.unchanged} {'was' if report.unchanged == 1 else 'were'} here already")
    if report.skipped:
        parts.append(f"skipped {len(report.skipped)}")
    return ", ".join(parts)


@click.command()
@_file
@json_option
def backup(file: Path, as_json: bool) -> None:
    """Save everything (conversations, ratings, adapters, settings) to the new FILE, also while Mynah runs.

    FILE is a .tar.gz that only you can read. The database in it is encrypted where yours is, with the same passphrase;
    adapters in it are not.
    """
    from store.exchange import backup as backups

    made = backups.write(service().store, file, app.__version__)
    data = {
        "path": str(file.absolute()),
        "conversations": made.conversations,
        "messages": made.messages,
        "adapters": made.adapters,
        "bytes": made.bytes,
    }
    emit(
        data, as_json, lambda: [f"saved {_held(made.conversations, made.messages, made.adapters)} to {file}"]
    )


@click.command()
@_file
@click.option("--replace", is_flag=True, help="Replace what is there now.")
@json_option
def restore(file: Path, replace: bool, as_json: bool) -> None:
    """Put the backup in FILE back. It is checked first; nothing changes unless all of it is whole.

    Stop the host first (`mynah stop`). What is there already is only replaced with --replace. The database is then
    encrypted if it was so in the backup, with the passphrase of the backup; if that is not yours of now, it is asked
    for, or taken from MYNAH_BACKUP_PASSPHRASE. What you had forgotten since is forgotten again, and its receipts stay.
    """
    from store.encryption import State
    from store.exchange import restore as restoring

    mynah = service()
    made = restoring.restore(mynah.home, file, replace=replace)
    for asked in mynah.forgettings():
        if asked.state is not ForgetState.PURGED:
            mynah.forget_on(asked.id)
            say(f"what you have had forgotten since is forgotten again ({asked.id})")
    if made.kept_aside is not None:
        say(f"the database that could not be read is now {made.kept_aside}")
    passphrase = " (it opens with the passphrase of then)" if made.state is State.ENCRYPTED else ""
    say(f"the database is {made.state}, as it was in the backup{passphrase}")
    data = {
        "conversations": made.conversations,
        "messages": made.messages,
        "adapters": made.adapters,
        "created": made.created,
        "kept_aside": None if made.kept_aside is None else str(made.kept_aside),
    }
    emit(data, as_json, lambda: [f"restored {_held(made.conversations, made.messages, made.adapters)}"])


def _held(conversations: int, messages: int, adapters: int) -> str:
    return (
        f"{counted(conversations, 'conversation')} with {counted(messages, 'message')} "
        f"and {counted(adapters, 'adapter')}"
    )
