"""What the program adds to the model: `mynah ask` on a running host, and the chat's first screen.

`ask` is measured as a whole process; the host's own time for the reply is taken off. The first screen is the time
from the start of `mynah` in a pseudo-terminal until its input line is drawn, before any host is up.

    python -m tests.benchmarks.cold_start [--runs N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pexpect

from app.host.client import ensure_host, stop_host
from store.home import Home

MYNAH = [sys.executable, "-m", "app.cli.main"]


def ask_overhead(environment: dict[str, str]) -> float:
    """Seconds of a whole `mynah ask` beyond the host's own time for the reply."""
    command = [*MYNAH, "ask", "--json", "--temperature", "0", "--max-tokens", "8", "What is a mynah?"]
    began = time.monotonic()
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    return time.monotonic() - began - float(json.loads(done.stdout)["timings"]["total"])


def first_screen(environment: dict[str, str]) -> float:
    """Seconds until the chat shows its input line."""
    began = time.monotonic()
    chat = pexpect.spawn(MYNAH[0], MYNAH[1:], env=environment, dimensions=(30, 100), timeout=30)
    chat.expect("Write to Mynah")
    seconds = time.monotonic() - began
    chat.close(force=True)
    return seconds


def main() -> None:
    """Print medians as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=7)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory(prefix="mynah-cold-") as root:
        home = Home(Path(root) / "home").open()
        environment = {**os.environ, "MYNAH_HOME": str(home.root), "TERM": "xterm-256color"}
        screens = [first_screen(environment) for _ in range(runs)]
        stop_host(home)
        ensure_host(home)
        ask_overhead(environment)
        asks = [ask_overhead(environment) for _ in range(runs)]
        stop_host(home)
    print(
        json.dumps(
            {"runs": runs, "ask_adds": statistics.median(asks), "first_screen": statistics.median(screens)}
        )
    )


if __name__ == "__main__":
    main()
