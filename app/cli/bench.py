"""`mynah bench NAME`: run one of the measurements, on this machine, with these packages.

What learning costs the chat can be measured wherever Mynah is installed; the others belong to the source
checkout. Each runs as a program of its own, so that what it measures is not this process.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from app.cli.output import put
from store.errors import NotFound

SOURCE = Path(__file__).resolve().parents[2]
BENCHMARKS = SOURCE / "tests" / "benchmarks"
INSTALLED = "interference"


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("name", required=False)
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def bench(ctx: click.Context, name: str | None, options: tuple[str, ...]) -> None:
    """Run the measurement NAME; without one, list them.

    Further words (--json and others) go to the measurement.
    """
    found = measurements()
    if name is None:
        for each in found:
            put(each)
        return
    if name not in found:
        raise NotFound(f"no measurement is called {name} here: there are {', '.join(found)}")
    program = ["app.bench", name] if name == INSTALLED else [f"tests.benchmarks.{name.replace('-', '_')}"]
    ctx.exit(subprocess.run([sys.executable, "-m", *program, *options], cwd=SOURCE, check=False).returncode)


def measurements() -> list[str]:
    """The names of what can be measured here."""
    names = {path.stem for path in BENCHMARKS.glob("*.py") if not path.stem.startswith("_")}
    return sorted(name.replace("_", "-") for name in names | {INSTALLED})
