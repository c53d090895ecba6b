"""`python -m app.host`: the host process. Started by the client when one is needed, or by `mynah serve`.

Detached, it says one line of JSON about itself and then writes to its log only; in the foreground it talks to a
person and never ends by itself.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from app.host.lifecycle import Mode, Options, key_of, run
from app.host.runtime import Runtime
from store.db import Store
from store.home import Home


def main() -> int:
    """Run a host with the model of ``MYNAH_HOME``; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m app.host", description="Mynah's model host.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: any free one)")
    parser.add_argument("--foreground", action="store_true", help="stay, and talk to the terminal")
    parser.add_argument("--key-file", type=Path, help="file with the key of /v1")
    parser.add_argument("--allow-origin", action="append", default=[], help="web page that may use /v1")
    given = parser.parse_args()
    mode = Mode.FOREGROUND if given.foreground else Mode.DETACHED
    try:
        key = key_of(given.key_file)
    except OSError as error:
        parser.error(f"the key file cannot be read ({error.strerror})")
    options = Options(given.host, given.port, mode, key, frozenset(given.allow_origin))
    return run(Home.default(), options, _load)


def _load(store: Store) -> Runtime:
    # Imported here: a second host on the same data is told so at once, without loading llama.cpp first.
    from app.host.llama_runtime import LlamaRuntime

    return LlamaRuntime.load(store)


if __name__ == "__main__":
    sys.exit(main())
