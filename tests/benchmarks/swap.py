"""How long going live and rolling back take, under a client that streams without a pause, on the real model.

A client asks again and again, and counts what fails; meanwhile versions go live and back. Printed are the time of
the store's own transaction, and the time from it until the first text of a reply on the new version, idle and busy.

    python -m tests.benchmarks.swap [--swaps N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from typing import Any

from app.host.client import HostClient, TurnRequest, ensure_host
from app.host.events import Done, Started, Token
from app.model import catalogue
from store import adapters, settings
from store.db import Store
from tests.benchmarks.kill import home_of_its_own, install_random

QUESTION = "What is a mynah, and what does it eat? Please answer in two sentences."


def first_text(client: HostClient) -> tuple[float, str | None]:
    """Seconds until the first text of a short reply, and the version it is on."""
    began = time.monotonic()
    adapter, first = None, 0.0
    for event in client.turn(
        TurnRequest(text=QUESTION, incognito=True, sampler={"temperature": 0, "max_tokens": 4})
    ):
        if isinstance(event, Started):
            adapter = event.adapter
        if isinstance(event, Token) and not first:
            first = time.monotonic() - began
    return first, adapter


def stream(client: HostClient, stop: threading.Event, counts: dict[str, int]) -> None:
    while not stop.is_set():
        *_, last = client.turn(TurnRequest(text=QUESTION, incognito=True, sampler={"max_tokens": 24}))
        counts["complete" if isinstance(last, Done) and last.finish_reason != "cancelled" else "failed"] += 1


def measure(client: HostClient, store: Store, swaps: int) -> dict[str, float]:
    """Each swap to a fresh version and back; medians in seconds."""
    base = catalogue.resolve(store.home, None)
    written, live, back = [], [], []
    for number in range(swaps):
        name = install_random(store, base, int(time.time()) + number * 7919)
        adapters.add_candidate(store, name, base_hash=base.base_hash, run="swap", manifest={}, uses=[])
        adapters.publish(store, name, {"passed": True})
        seconds, adapter = first_text(client)
        assert adapter == name
        live.append(seconds)
        began = time.monotonic()
        _, serving = adapters.rollback(store, base.base_hash)
        written.append(time.monotonic() - began)
        seconds, adapter = first_text(client)
        assert adapter == (serving.adapter.id if serving.adapter else None)
        back.append(seconds)
    named = {
        "rollback_written": written,
        "first_text_on_new_version": live,
        "first_text_after_rollback": back,
    }
    return {name: round(statistics.median(values), 4) for name, values in named.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=10)
    given = parser.parse_args()
    counts = {"complete": 0, "failed": 0}
    result: dict[str, Any] = {}
    with home_of_its_own() as home, Store.open(home) as store:
        settings.put(store, settings.LEARNING_PAUSED, True)
        client = ensure_host(home)
        first_text(client)
        result["idle"] = measure(client, store, given.swaps)
        stop = threading.Event()
        streamer = threading.Thread(target=stream, args=(client, stop, counts))
        streamer.start()
        result["beside_a_stream"] = measure(client, store, given.swaps)
        stop.set()
        streamer.join()
    result["replies_of_the_stream"] = counts
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
