"""`mynah learn changes`: what was said of replies and what happened to the versions since a day."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from app.cli.output import emit, json_option, short_time
from app.cli.session import service
from store import finding
from store.errors import UsageError
from store.timeline import Happening, Moment, Since

_WORDS = {
    Happening.LIVE: "went live",
    Happening.REFUSED: "was refused at its test",
    Happening.CHOSEN: "was chosen by you",
    Happening.ROLLED_BACK: "answers again, you went back to it",
    Happening.WITHDRAWN: "answers again, a version could not be loaded",
    Happening.TAKEN_BACK: "answers again, the version after it was objected to",
    Happening.KEPT_BACK: "passed and was kept back, another one is pinned",
    Happening.DELETED: "was deleted",
}


@click.command()
@click.option(
    "--since", default="1d", show_default=True, help="A date such as 2026-11-29, or 7d for seven days ago."
)
@json_option
def changes(since: str, as_json: bool) -> None:
    """Show what changed: replies and what you thought of them, versions and what became of them."""
    try:
        moment = finding.moment(since)
    except ValueError:
        raise UsageError(f"--since takes {finding.FILTERS['since']}, not {since!r}") from None
    found = service().changes(moment)
    emit(_data(found), as_json, lambda: _lines(found))


def _lines(found: Since) -> Iterator[str]:
    tally = found.tally
    yield f"since {short_time(found.moment)}"
    if tally.left_alone is not None:
        yield (
            f"{tally.replies} replies, {tally.left_alone:.0%} left as they were: {tally.corrected} corrected, "
            f"{tally.down} rated bad, {tally.asked_again} asked again, {tally.up} rated good"
        )
    else:
        yield "no replies"
    for moment in found.moments:
        why = f": {moment.detail}" if moment.detail else ""
        yield f"{short_time(moment.created)}  {_name(moment)} {_WORDS[moment.happening]}{why}"


def _name(moment: Moment) -> str:
    return "base" if moment.adapter is None else f"v{moment.adapter.version}"


def _data(found: Since) -> dict[str, Any]:
    tally = found.tally
    return {
        "since": found.moment,
        "replies": tally.replies,
        "left_alone": tally.left_alone,
        "corrected": tally.corrected,
        "down": tally.down,
        "up": tally.up,
        "asked_again": tally.asked_again,
        "events": [
            {
                "created": moment.created,
                "what": moment.happening,
                "adapter": None if moment.adapter is None else moment.adapter.id,
                "version": None if moment.adapter is None else moment.adapter.version,
                "scale": moment.scale,
                "detail": moment.detail,
            }
            for moment in found.moments
        ],
    }
