"""`mynah config`: the settings of this home, what they do, and how they are changed."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import CompletionItem

from app.cli.output import emit, json_option, put, table
from app.cli.session import service
from store import options
from store.home import Home
from store.options import Value


@click.group()
def config() -> None:
    """Settings: list, read, change.

    They are kept in the database, so that every process of Mynah sees a change, and a backup holds them.
    """


def _keys(_ctx: click.Context, _param: click.Parameter, begun: str) -> list[CompletionItem]:
    return [
        CompletionItem(option.key, help=option.what)
        for option in options.OPTIONS
        if option.key.startswith(begun)
    ]


_key = click.argument("key", metavar="KEY", shell_complete=_keys)


@config.command("list")
@json_option
def list_(as_json: bool) -> None:
    """List every setting with its value and what it does."""
    found = options.values(service().store)
    emit(
        [_data(value) for value in found],
        as_json,
        lambda: table(
            ("setting", "value", "", "what it does"),
            [
                (
                    value.option.key,
                    _short(options.shown(value.value)),
                    "changed" if value.changed else "",
                    value.option.what,
                )
                for value in found
            ],
        ),
    )


@config.command()
@_key
@json_option
def get(key: str, as_json: bool) -> None:
    """Print the value of KEY."""
    found = options.value(service().store, key)
    emit(_data(found), as_json, lambda: [options.shown(found.value)])


@config.command("set")
@_key
@click.argument("value", nargs=-1, required=True)
@json_option
def set_(key: str, value: tuple[str, ...], as_json: bool) -> None:
    """Give KEY another VALUE; what it takes is checked."""
    changed = options.change(service().store, key, " ".join(value))
    _tell(changed, as_json)


@config.command()
@_key
@json_option
def unset(key: str, as_json: bool) -> None:
    """Bring the default of KEY back."""
    _tell(options.reset(service().store, key), as_json)


@config.command()
def path() -> None:
    """Print the file that the settings are kept in."""
    put(str(Home.default().open().db))


def _tell(value: Value, as_json: bool) -> None:
    emit(
        _data(value),
        as_json,
        lambda: [f"{value.option.key} is {options.shown(value.value)}; it holds {value.option.holds}"],
    )


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:39]}…"


def _data(value: Value) -> dict[str, Any]:
    return {
        "key": value.option.key,
        "value": value.value,
        "default": value.default,
        "what": value.option.what,
        "takes": value.option.takes,
        "holds": value.option.holds,
    }
