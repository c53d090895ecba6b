"""What the endpoint adds to the engine: milliseconds per request, and tokens per second lost in a stream.

The host is a process of its own, as always. The engine says how long each reply took from the moment the request
was admitted, so what a client waits beyond that is the endpoint's: reading and checking the request, finding the
conversation, saving, writing the answer. The speed of a stream is compared with that of the same reply asked for
whole, in turn, so that both see the same minutes of the machine.

With the scripted model at no time a token, at 2 ms and at 5 ms (500 and 200 tokens/s; the default model does 130);
`--real` does the same on the default model.

    python -m tests.benchmarks.endpoint [--real] [--requests N]
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil

from app.host.client import HostClient, ensure_host
from store import conversations, settings
from store.db import Store
from tests.benchmarks.kill import home_of_its_own
from tests.scripted import scripted_host

_TOKENS = 200


class Client:
    """Bare HTTP on one connection: what a client library costs is not ours."""

    def __init__(self, host: HostClient) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", host.endpoint.port, timeout=120)
        self._process = psutil.Process(host.endpoint.pid)

    def processor_seconds(self) -> float:
        """What the host has used of the processor: free of what else the machine does."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def ask(self, body: dict[str, Any]) -> tuple[float, dict[str, Any]]:
        """Seconds and the answer."""
        began = time.perf_counter()
        self._connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
        answer = json.loads(self._connection.getresponse().read())
        return time.perf_counter() - began, answer

    def stream(self, body: dict[str, Any]) -> tuple[float, str]:
        """Tokens per second between the first and the last piece, and the message's id."""
        self._connection.request(
            "POST", "/v1/chat/completions", json.dumps({**body, "stream": True}).encode()
        )
        times, message = [], ""
        for line in self._connection.getresponse():
            if b'"content":"' in line and b'"role"' not in line:
                times.append(time.perf_counter())
            if b'"mynah"' in line:
                message = json.loads(line[6:])["mynah"]["message"]
        return (len(times) - 1) / (times[-1] - times[0]), message


def overhead(client: Client, body: dict[str, Any], requests: int) -> dict[str, float]:
    """Milliseconds that a request takes beyond the engine's own time; ``processor_ms`` includes the engine's."""
    beyond, whole = [], []
    for _ in range(5):
        client.ask(body)
    before = client.processor_seconds()
    for _ in range(requests):
        seconds, answer = client.ask(body)
        beyond.append(1000 * (seconds - answer["timings"]["total"]))
        whole.append(1000 * seconds)
    return {
        "processor_ms": round(1000 * (client.processor_seconds() - before) / requests, 2),
        "median_ms": round(statistics.median(beyond), 2),
        "p95_ms": round(sorted(beyond)[int(len(beyond) * 0.95)], 2),
        "whole_request_median_ms": round(statistics.median(whole), 2),
    }


def speed(client: Client, body: dict[str, Any], pairs: int) -> dict[str, float]:
    """Tokens per second of a stream as its reader sees them, against the engine's for the same reply asked whole."""
    ratios, streamed, whole = [], [], []
    spent = {"streamed": 0.0, "whole": 0.0}
    for _ in range(pairs):
        before = client.processor_seconds()
        seen, _ = client.stream(body)
        between = client.processor_seconds()
        engine = client.ask(body)[1]["timings"]["tokens_per_second"]
        spent["streamed"] += between - before
        spent["whole"] += client.processor_seconds() - between
        streamed.append(seen)
        whole.append(engine)
        ratios.append(seen / engine)
    return {
        "streamed": round(statistics.median(streamed), 1),
        "whole": round(statistics.median(whole), 1),
        "ratio": round(statistics.median(ratios), 3),
        "processor_ms_per_streamed_token": round(
            1000 * (spent["streamed"] - spent["whole"]) / (pairs * _TOKENS), 3
        ),
    }


def growing(client: Client, turns: int) -> dict[str, float]:
    """The same overhead while a transcript grows: each request resends all that was said."""
    messages: list[dict[str, str]] = []
    beyond = []
    for number in range(turns):
        messages.append({"role": "user", "content": f"echo turn {number} with a few words of its own"})
        seconds, answer = client.ask({"messages": messages, "max_tokens": 16})
        messages.append(answer["choices"][0]["message"])
        beyond.append(1000 * (seconds - answer["timings"]["total"]))
    tenth = max(turns // 10, 1)
    return {
        "first_tenth_ms": round(statistics.median(beyond[:tenth]), 2),
        "last_tenth_ms": round(statistics.median(beyond[-tenth:]), 2),
    }


@contextmanager
def serving(real: bool, *options: str) -> Iterator[Client]:
    with home_of_its_own() as home:
        if real:
            with Store.open(home) as store:
                settings.put(store, settings.LEARNING_PAUSED, True)
            yield Client(ensure_host(home))
            return
        with scripted_host(home, *options) as host:
            yield Client(host)
            with Store.open(home) as store:
                assert conversations.list_(store, 1)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--requests", type=int, default=200)
    given = parser.parse_args()
    result: dict[str, Any] = {}
    if given.real:
        question = {
            "messages": [{"role": "user", "content": "Tell a long story about a bird."}],
            "temperature": 0,
        }
        with serving(True) as client:
            result["request"] = overhead(client, {**question, "max_tokens": 2}, given.requests // 4)
            result["stream"] = speed(client, {**question, "max_tokens": _TOKENS}, 5)
    else:
        with serving(False, "--context", "32768") as client:
            short = {"messages": [{"role": "user", "content": "echo hi"}]}
            result["request"] = overhead(client, short, given.requests)
            result["transcript_of_60_turns"] = growing(client, 60)
        long = {"messages": [{"role": "user", "content": f"count {_TOKENS}"}]}
        for milliseconds in (2, 5):
            with serving(False, "--token-seconds", str(milliseconds / 1000)) as client:
                result[f"stream_at_{milliseconds}_ms_a_token"] = speed(client, long, 12)
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
