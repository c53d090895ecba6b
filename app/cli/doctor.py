"""`mynah doctor` and `mynah locate`: is everything there, and where does it lie."""

from __future__ import annotations

from dataclasses import asdict

import click

from app.cli.output import emit, json_option
from app.doctor import Check, Status, examine, healthy
from store import cipher
from store.home import Home

_MARKS = {Status.OK: "ok     ", Status.NOTE: "note   ", Status.MISSING: "MISSING"}


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check what is there and what is missing.

    Each line says how to get what is missing; the exit code is 1 if anything is.
    """
    # It must answer where nobody is: what is locked is said to be locked.
    cipher.ask_with(None)
    checks = examine(Home.default())
    sound = healthy(checks)
    report = {"ok": sound, "checks": [asdict(check) for check in checks]}
    emit(report, as_json, lambda: [_line(check) for check in checks])
    ctx.exit(0 if sound else 1)


def _line(check: Check) -> str:
    remedy = "" if check.remedy is None else f"  → {check.remedy}"
    return f"{_MARKS[check.status]}  {check.name:<10}  {check.detail}{remedy}"


@click.command()
@json_option
def locate(as_json: bool) -> None:
    """Print where your data, logs and weights lie."""
    home = Home.default()
    places = {
        "home": home.root,
        "database": home.db,
        "adapters": home.adapters,
        "logs": home.logs,
        "cache": home.cache,
    }
    emit(
        {name: str(path) for name, path in places.items()},
        as_json,
        lambda: [f"{name:<9} {path}" for name, path in places.items()],
    )
