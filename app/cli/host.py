"""`mynah serve` and `mynah stop`: the model host in the foreground, and the end of everything in the background.

`serve` becomes the host rather than starting it: signals, exit codes and standard error are then the host's
own, and a service manager watches the right process.
"""

from __future__ import annotations

import os
import sys

import click

from app.cli.output import emit, json_option
from app.host.client import stop_host, stop_learner
from store import cipher
from store.home import Home


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port to listen on (default: any free one)."
)
def serve(host: str, port: int) -> None:
    """Run the model host in the foreground, until Ctrl-C.

    It serves an OpenAI-compatible endpoint under /v1, and never ends for want of use.
    """
    home = Home.default().open()
    command = [sys.executable, "-m", "app.host", "--foreground", "--host", host, "--port", str(port)]
    sys.stdout.flush()
    with cipher.handed_down(home.db) as (environment, descriptors):
        for descriptor in descriptors:
            os.set_inheritable(descriptor, True)
        os.execve(sys.executable, command, environment)


@click.command()
@json_option
def stop(as_json: bool) -> None:
    """End the model host and the learner.

    Nothing is lost: both start again when they are needed, and a run under way is taken up again.
    """
    home = Home.default()
    stopped = {"host": stop_host(home), "learner": stop_learner(home)}
    names = [name for name, ended in stopped.items() if ended]
    emit(stopped, as_json, lambda: [f"stopped: {', '.join(names)}" if names else "nothing was running"])
