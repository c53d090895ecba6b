"""`mynah models`: which model answers, what others there are, and what of them suits this machine.

Adapters belong to one model, so each model has its own list of them.
"""

from __future__ import annotations

import threading
from typing import Any

import click

from app.cli.output import emit, json_option, progress, say, table
from app.cli.session import service
from app.model_words import facts, machine_line
from app.models import Choice, Place, Progress
from app.service import ModelFile


@click.group()
def models() -> None:
    """Models: list them, fetch one, or choose the one that answers."""


@models.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the models that are here and those that can be fetched, with what each takes on this machine."""
    mynah = service()
    machine = mynah.machine()
    found = mynah.choices(machine)
    emit([_row(choice) for choice in found], as_json, lambda: _lines(found, machine_line(machine)))


@models.command()
@click.argument("model", metavar="NAME")
@json_option
def use(model: str, as_json: bool) -> None:
    """Let NAME answer from now on: a .gguf file, a fetched model, or `default` for the one that came with Mynah."""
    chosen = service().change_model(model)
    emit(_facts(chosen, active=True), as_json, lambda: [f"{chosen.name} answers now"])


@models.command()
@click.argument("model", metavar="NAME")
@click.option("--sha256", metavar="HEX", help="What the file's SHA-256 must be; known models have theirs.")
@click.option("--use", "then_use", is_flag=True, help="Let it answer once it is here.")
@json_option
def pull(model: str, sha256: str | None, then_use: bool, as_json: bool) -> None:
    """Fetch a model: a NAME of the list, an https address, or OWNER/REPOSITORY/FILE.gguf on the hub.

    A pull that breaks off goes on where it stopped when the same command is given again.
    """
    mynah = service()
    with progress("fetching") as told:

        def hear(now: Progress) -> None:
            told(now.share or 0.0)

        fetched = mynah.pull(model, hear, threading.Event(), sha256)
    if then_use:
        mynah.change_model(str(fetched.path))
    else:
        say(f"`mynah models use {fetched.path.stem}` lets it answer")
    emit(
        _facts(fetched, active=fetched.base_hash == mynah.model_in_use()),
        as_json,
        lambda: [f"{fetched.name} is here, sha256 {fetched.base_hash}"],
    )


def _lines(found: list[Choice], machine: str) -> list[str]:
    rows = [(each.name, *facts(each), each.what) for each in found]
    return [machine, "", *table(("model", "", "file", "memory", "on this machine", "versions", "what"), rows)]


def _row(choice: Choice) -> dict[str, Any]:
    return {
        "name": choice.name,
        "pick": choice.pick,
        "path": None if choice.path is None else str(choice.path),
        "base": choice.base,
        "place": choice.place,
        "active": choice.place is Place.IN_USE,
        "size": choice.size,
        "parameters": choice.parameters,
        "memory": choice.advice.needs.chat,
        "learning_memory": choice.advice.needs.teaching,
        "fit": choice.advice.fit,
        "longest_context": choice.advice.longest,
        "versions": choice.versions,
    }


def _facts(model: ModelFile, *, active: bool) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "architecture": model.architecture,
        "parameters": model.parameters,
        "base": model.base_hash,
        "active": active,
    }
