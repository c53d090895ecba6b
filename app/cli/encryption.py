"""`mynah encrypt` and `mynah decrypt`: the database on the disk, and an honest word on what stays readable.

The new passphrase is asked for twice, because one that was mistyped locks its owner out and nobody can help. A script
gives it through `--new-passphrase-fd` or in the environment; the present one comes as for every other command.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from app.cli.output import emit, json_option, progress, say
from app.cli.passphrase import prompt, read_descriptor
from store import cipher
from store.errors import UsageError
from store.home import Home

if TYPE_CHECKING:
    from store.encryption import Converted

NEW_VARIABLE = "MYNAH_NEW_PASSPHRASE"

_READABLE = (
    "still readable without the passphrase: adapters (the model maps them while it serves; what they learned is in "
    "their numbers), derived weights of public models, logs (which quote no conversation), exports, and backups made "
    "before. The old file was overwritten; an SSD, a copy-on-write file system or a snapshot may keep old blocks, "
    "which only encrypting the disk covers"
)


@click.command()
@click.option("--change", is_flag=True, help="Give an encrypted database another passphrase.")
@click.option(
    "--new-passphrase-fd",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the new passphrase from this descriptor.",
)
@json_option
def encrypt(change: bool, new_passphrase_fd: int | None, as_json: bool) -> None:
    """Encrypt the database with a passphrase: conversations, ratings, settings and everything searched.

    From then on each start asks for it, once; scripts set MYNAH_PASSPHRASE or use `mynah --passphrase-fd N`. There is
    no way back without it. Run `mynah stop` first. A crash on the way leaves the old database or the new one.
    """
    from store import encryption

    cipher.module()
    home = Home.default().open()
    encrypted = encryption.state(home) is encryption.State.ENCRYPTED
    if encrypted and not change:
        raise UsageError(f"{home.db} is encrypted already: --change gives it another passphrase")
    if change and not encrypted:
        raise UsageError(f"{home.db} is not encrypted: leave --change out")
    cipher.unlock(home.db)
    passphrase = _new_passphrase(new_passphrase_fd, changing=change)
    with progress("encrypting") as told:
        made = encryption.encrypt(home, passphrase, told)
    _report(made, home, as_json)
    _say_of_backups(home)
    say(_READABLE)


@click.command()
@json_option
def decrypt(as_json: bool) -> None:
    """Take the encryption of the database away again.

    Everybody who can read your files can then read it. Run `mynah stop` first.
    """
    from store import encryption

    home = Home.default().open()
    with progress("decrypting") as told:
        made = encryption.decrypt(home, told)
    _report(made, home, as_json)
    _say_of_backups(home)


def _say_of_backups(home: Home) -> None:
    """Which backups keep the passphrase of before: what is forgotten from now on stays in them."""
    from store.db import Store
    from store.exchange.cleansing import Cleansed, foresee

    with Store.open(home) as store:
        paths = [Path(row["path"]) for row in store.conn.execute("SELECT path FROM backups ORDER BY created")]
    for path in paths:
        if foresee(home, path) is Cleansed.LOCKED:
            say(
                f"backup {path} keeps the passphrase it was made under, and `mynah forget` cannot reach into it: "
                "make a new one and delete it"
            )


def _new_passphrase(descriptor: int | None, *, changing: bool) -> str:
    if descriptor is not None:
        return read_descriptor(descriptor)
    names = (NEW_VARIABLE,) if changing else (NEW_VARIABLE, cipher.FROM_ENVIRONMENT)
    for name in names:
        if os.environ.get(name):
            return os.environ[name]
    first = prompt("new passphrase: ")
    if first != prompt("the same again: "):
        raise UsageError("the two passphrases differ: nothing was changed")
    return first


def _report(made: Converted, home: Home, as_json: bool) -> None:
    data = {"database": str(home.db), "state": made.state.value, "rows": made.rows, "bytes": made.bytes}
    emit(data, as_json, lambda: [f"{home.db} is now {made.state}: {made.rows} rows"])
