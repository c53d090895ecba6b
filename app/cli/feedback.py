"""`mynah rate` and `mynah correct`: what the owner thought of a reply, and what becomes of it."""

from __future__ import annotations

from typing import Any

import click

from app.cli.output import emit, json_option, text_argument
from app.cli.session import Kind, full_id, service
from app.service import Receipt
from store.errors import UsageError
from store.reasons import Reason

_VALUES = {"up": 1, "down": -1, "clear": 0}
_REASONS = {reason.value.replace("_", "-"): reason for reason in Reason if reason is not Reason.OWN_WORDS}


@click.command()
@click.argument("message", metavar="MESSAGE")
@click.argument("rating", type=click.Choice(list(_VALUES)))
@click.option("--reason", type=click.Choice(list(_REASONS)), help="Why a reply was not good.")
@click.option("--note", help="The same in your own words; it tells the learner what would have been better.")
@json_option
def rate(message: str, rating: str, reason: str | None, note: str | None, as_json: bool) -> None:
    """Rate the reply MESSAGE up or down.

    `clear` takes a rating back. A reason or a note says what would have been better, which teaches far more
    than the thumb alone.
    """
    if rating != "down" and (reason is not None or note is not None):
        raise UsageError("--reason and --note say what was wrong, so they go with `down`")
    mynah = service()
    reply = full_id(mynah, Kind.MESSAGE, message)
    receipt = mynah.rate(
        reply, _VALUES[rating], reason=None if reason is None else _REASONS[reason], note=note
    )
    data = {"message": reply, "rating": None if rating == "clear" else rating, **_receipt(receipt)}
    said = "rating cleared" if rating == "clear" else f"rated {rating}"
    emit(data, as_json, lambda: [f"{said}: {_fate(receipt)}"])


@click.command()
@click.argument("message", metavar="MESSAGE")
@click.argument("text", nargs=-1)
@json_option
def correct(message: str, text: tuple[str, ...], as_json: bool) -> None:
    """Say what the reply MESSAGE should have been.

    A single - as TEXT reads it from standard input.
    """
    better = text_argument(text, "correction")
    mynah = service()
    reply = full_id(mynah, Kind.MESSAGE, message)
    receipt = mynah.correct(reply, better)
    emit({"message": reply, **_receipt(receipt)}, as_json, lambda: [f"corrected: {_fate(receipt)}"])


def _receipt(receipt: Receipt) -> dict[str, Any]:
    fate = receipt.fate
    return {
        "signal": receipt.signal.id,
        "state": None if fate is None else fate.state,
        "fate": None if fate is None else fate.text,
    }


def _fate(receipt: Receipt) -> str:
    return "nothing to learn from it" if receipt.fate is None else receipt.fate.text
