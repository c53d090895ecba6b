"""`mynah models`: which model answers. Adapters belong to one model, so each model has its own list of them."""

from __future__ import annotations

from typing import Any

import click

from app.cli.output import emit, json_option, say, table
from app.cli.session import service
from app.host.client import running_host, stop_host
from app.service import ModelFile, Service
from store.errors import ModelFileError


@click.group()
def models() -> None:
    """Models: list them, or choose the one that answers."""


@models.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List the models that are known here."""
    mynah = service()
    in_use = _in_use(mynah)
    found = mynah.models()
    emit(
        [_row(model, in_use) for model in found],
        as_json,
        lambda: table(
            ("model", "parameters", "in use", "file"),
            [
                (
                    model.name,
                    f"{model.parameters / 1e6:.0f} M",
                    "yes" if model.base_hash == in_use else "",
                    model.path,
                )
                for model in found
            ],
        ),
    )


@models.command()
@click.argument("model", metavar="NAME")
@json_option
def use(model: str, as_json: bool) -> None:
    """Let NAME answer from now on: a .gguf file, or `default` for the model that came with Mynah."""
    mynah = service()
    before = _in_use(mynah)
    chosen = mynah.use_model(model)
    if chosen.base_hash != before and running_host(mynah.home) is not None:
        say("stopping the host, so that it starts again with this model")
        stop_host(mynah.home)
    emit(_row(chosen, chosen.base_hash), as_json, lambda: [f"{chosen.name} answers now"])


def _in_use(mynah: Service) -> str | None:
    """The model in use; None where its file is gone, which must not keep the owner from choosing another."""
    try:
        return mynah.base_hash()
    except ModelFileError:
        return None


def _row(model: ModelFile, in_use: str | None) -> dict[str, Any]:
    return {
        "name": model.name,
        "path": str(model.path),
        "architecture": model.architecture,
        "parameters": model.parameters,
        "base": model.base_hash,
        "active": model.base_hash == in_use,
    }
