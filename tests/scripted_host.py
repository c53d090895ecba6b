"""`python -m tests.scripted_host`: the real host program on the scripted model. For tests only."""

from __future__ import annotations

import argparse
import sys
import time

from app.host import sse
from app.host.lifecycle import Mode, Options, run
from app.host.runtime import Runtime
from store.db import Store
from store.errors import ModelFileError
from store.home import Home
from tests.scripted import ScriptedRuntime
from tests.scripted_encoder import ScriptedEncoder


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--load-seconds", type=float, default=0.0)
    parser.add_argument("--load-error")
    parser.add_argument("--context", type=int, default=4096)
    parser.add_argument("--batch-seconds", type=float, default=0.0)
    parser.add_argument("--token-seconds", type=float, default=0.0)
    parser.add_argument("--learner", nargs="*", default=[sys.executable, "-c", ""])
    parser.add_argument("--foreground", action="store_true")
    parser.add_argument("--key")
    parser.add_argument("--origin", action="append", default=[])
    parser.add_argument("--ping-seconds", type=float, default=sse.PING_SECONDS)
    parser.add_argument("--encoder", action="store_true")
    given = parser.parse_args()

    def load(_store: Store) -> Runtime:
        time.sleep(given.load_seconds)
        if given.load_error:
            raise ModelFileError(given.load_error)
        runtime = ScriptedRuntime(given.context, given.token_seconds, given.batch_seconds)
        runtime.words = ScriptedEncoder() if given.encoder else None
        return runtime

    mode = Mode.FOREGROUND if given.foreground else Mode.DETACHED
    sse.PING_SECONDS = given.ping_seconds
    options = Options(mode=mode, key=given.key, origins=frozenset(given.origin), learner=tuple(given.learner))
    return run(Home.default(), options, load)


if __name__ == "__main__":
    sys.exit(main())
