"""The service of this command, and ids as people type them: any unique beginning, or `v3` for an adapter."""

from __future__ import annotations

import re
from enum import StrEnum

import click

from app.service import Service
from store.errors import NotFound
from store.home import Home


class Kind(StrEnum):
    """What an id may name; the values are the tables of the store."""

    CONVERSATION = "conversations"
    MESSAGE = "messages"
    ADAPTER = "adapters"
    FORGETTING = "forgettings"
    DECISION = "decisions"
    ITEM = "items"


def service() -> Service:
    """The service on this user's home, closed when the command ends."""
    made = Service(Home.default())
    click.get_current_context().call_on_close(made.close)
    return made


def full_id(mynah: Service, kind: Kind, typed: str) -> str:
    """The id that was meant.

    Raises:
        UsageError: several begin like this.
        NotFound: none does.
    """
    if kind is Kind.ADAPTER and re.fullmatch(r"v\d+", typed):
        return _by_version(mynah, int(typed[1:]))
    return mynah.resolve(kind, typed)


def _by_version(mynah: Service, version: int) -> str:
    for adapter in mynah.adapters():
        if adapter.version == version:
            return adapter.id
    raise NotFound(f"no adapter of this model is v{version}: `mynah adapters list` shows what there is")
