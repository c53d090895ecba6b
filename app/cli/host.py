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
@click.option(
    "--key-file",
    type=click.Path(exists=True, dir_okay=False, readable=True),
    help="File with the key that programs have to send (or set MYNAH_API_KEY).",
)
@click.option(
    "--allow-origin",
    multiple=True,
    metavar="URL",
    help="A web page's origin that may use the endpoint, beside pages of this machine; may be repeated.",
)
def serve(host: str, port: int, key_file: str | None, allow_origin: tuple[str, ...]) -> None:
    """Run the model host in the foreground, until Ctrl-C.

    It serves an OpenAI-compatible endpoint under /v1, and never ends for want of use. Programs on this machine
    need no key unless there is one; listening on any other address needs one.
    """
    home = Home.default().open()
    command = [sys.executable, "-m", "app.host", "--foreground", "--host", host, "--port", str(port)]
    command += ["--key-file", key_file] if key_file is not None else []
    command += [word for origin in allow_origin for word in ("--allow-origin", origin)]
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
