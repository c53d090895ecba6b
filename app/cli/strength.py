"""`mynah adapters strength`: how strongly what was learned speaks, everywhere or in one conversation."""

from __future__ import annotations

import click

from app.cli.output import emit, finite, json_option
from app.cli.session import Kind, full_id, service
from store.errors import UsageError


@click.command()
@click.argument("value", metavar="[0-1]", type=click.FloatRange(0, 1), callback=finite, required=False)
@click.option("--conversation", "-c", metavar="ID", help="In this conversation alone (any unique prefix).")
@click.option(
    "--unset", is_flag=True, help="Take the choice back: 1 everywhere, the setting in a conversation."
)
@json_option
def strength(value: float | None, conversation: str | None, unset: bool, as_json: bool) -> None:
    """Show or choose how strongly what was learned speaks: 1 in full, 0 not at all (the base model).

    It holds from the next reply on, also for whatever is learned later.
    """
    if unset and value is not None:
        raise UsageError("--unset needs no strength: leave one of them out")
    mynah = service()
    chosen = None if conversation is None else full_id(mynah, Kind.CONVERSATION, conversation)
    if unset or value is not None:
        mynah.choose_strength(value, chosen)
    everywhere, own = mynah.strength(), None if chosen is None else mynah.strength(chosen)
    emit(
        {"strength": everywhere if own is None else own, "everywhere": everywhere, "conversation": chosen},
        as_json,
        lambda: [_said(everywhere, own, chosen)],
    )


def _said(everywhere: float | None, own: float | None, conversation: str | None) -> str:
    if conversation is None:
        return f"strength {everywhere:g}"
    if own is None:
        return f"strength {everywhere:g}, as everywhere"
    return f"strength {own:g} in {conversation}, {everywhere:g} elsewhere"
