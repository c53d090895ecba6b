"""Going live and rolling back under load, on the real model: nothing may fail, nothing may be mixed, nobody should notice.

Programs stream through the OpenAI interface without a pause while versions go live, one after another. Every one of
their replies is at temperature 0 and says which version made it, so it can be compared, to the byte, with what that
version says to the question when nothing else is going on. A person asks in between, now right after a swap and now
without one; what a swap costs is the difference in the time to the first text of that person's turn.

    python -m tests.benchmarks.swap [--swaps N] [--clients N]
"""

from __future__ import annotations

import argparse
import json
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import openai

from app.host.client import HostClient, TurnRequest, ensure_host
from app.host.events import Started, Token
from app.model import catalogue
from store import adapters, settings
from store.db import Store
from tests.benchmarks.kill import home_of_its_own, install_random

QUESTION = "What is a mynah, and what does it eat? Please answer in two sentences."
_TOKENS = 16
_VERSIONS = 4
_GAP_SECONDS = 0.7

Reply = tuple[str | None, str, str]
"""The version that made it, the question, and the text."""


class Programs:
    """Clients that stream one reply after another."""

    def __init__(self, client: HostClient, count: int) -> None:
        url = f"http://127.0.0.1:{client.endpoint.port}/v1"
        self._openai = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=120.0)
        self._model = str(client.status()["model"])
        self._stop = threading.Event()
        self.replies: list[Reply] = []
        self.counts: Counter[str] = Counter()
        self._threads = [
            threading.Thread(target=self._stream, args=(f"Client {number}: {QUESTION}",))
            for number in range(count)
        ]

    def __enter__(self) -> Programs:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _stream(self, question: str) -> None:
        while not self._stop.is_set():
            try:
                self.replies.append(self.ask(question))
                self.counts["complete"] += 1
            except openai.OpenAIError as error:
                self.counts["failed"] += 1
                self.counts[str(error)[:80]] += 1

    def ask(self, question: str) -> Reply:
        """One streamed reply."""
        text, adapter = "", None
        stream = self._openai.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": question}],
            temperature=0,
            max_tokens=_TOKENS,
            stream=True,
            user=question[:9],
        )
        for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            told = (chunk.model_extra or {}).get("mynah")
            adapter = told["adapter"] if told else adapter
        return adapter, question, text


def first_text(client: HostClient) -> tuple[float, str | None]:
    """Seconds until the first text of a person's short reply, and the version it is on."""
    began = time.monotonic()
    adapter, first = None, 0.0
    request = TurnRequest(text=QUESTION, incognito=True, sampler={"temperature": 0, "max_tokens": 4})
    for event in client.turn(request):
        if isinstance(event, Started):
            adapter = event.adapter
        if isinstance(event, Token) and not first:
            first = time.monotonic() - began
    return first, adapter


def swaps(
    client: HostClient, store: Store, base_hash: str, versions: list[str], count: int
) -> dict[str, Any]:
    """A person's turns, in turn right after a swap and without one."""
    after, without, wrong = [], [], 0
    for number in range(count):
        # So that the programs come to their turn: a person goes before them.
        time.sleep(_GAP_SECONDS)
        adapters.use(store, base_hash, versions[number % len(versions)])
        seconds, adapter = first_text(client)
        wrong += adapter != versions[number % len(versions)]
        after.append(seconds)
        seconds, adapter = first_text(client)
        wrong += adapter != versions[number % len(versions)]
        without.append(seconds)
    extra = {name: round(rank(after) - rank(without), 3) for name, rank in _RANKS.items()}
    return {
        "swaps": count,
        "on_the_wrong_version": wrong,
        "first_text_after_a_swap": {name: round(rank(after), 3) for name, rank in _RANKS.items()},
        "first_text_without": {name: round(rank(without), 3) for name, rank in _RANKS.items()},
        "extra": extra,
    }


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


_RANKS: dict[str, Callable[[list[float]], float]] = {"median": statistics.median, "p99": _p99}


def mixed(programs: Programs, store: Store, base_hash: str) -> int:
    """How many replies are not what the version they name says, to the byte."""
    expected: dict[tuple[str | None, str], str] = {}
    for adapter, question in {(adapter, question) for adapter, question, _ in programs.replies}:
        adapters.use(store, base_hash, adapter)
        said_by, _, text = programs.ask(question)
        assert said_by == adapter
        expected[adapter, question] = text
    return sum(expected[adapter, question] != text for adapter, question, text in programs.replies)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--swaps", type=int, default=200)
    parser.add_argument("--clients", type=int, default=4)
    given = parser.parse_args()
    result: dict[str, Any] = {}
    with home_of_its_own() as home, Store.open(home) as store:
        settings.put(store, settings.LEARNING_PAUSED, True)
        base = catalogue.resolve(store.home, None)
        versions = [install_random(store, base, 7919 * (number + 1)) for number in range(_VERSIONS)]
        for name in versions:
            adapters.add_candidate(store, name, base_hash=base.base_hash, run="swap", manifest={}, uses=[])
            adapters.publish(store, name, {"passed": True})
        client = ensure_host(home)
        first_text(client)
        result["idle"] = swaps(client, store, base.base_hash, versions, min(10, given.swaps))
        with Programs(client, given.clients) as programs:
            result["under_load"] = swaps(client, store, base.base_hash, versions, given.swaps)
        result["replies_of_the_programs"] = dict(programs.counts)
        result["mixed"] = mixed(programs, store, base.base_hash)
        result["versions_named"] = len({adapter for adapter, _, _ in programs.replies})
        result["contexts"] = client.status().get("contexts")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
