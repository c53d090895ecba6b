"""Is anything ever lost? `kill -9` of the chat, the host and the learner at random moments, many times.

Each round does real work on the real model, kills one process with no warning, and then asks for everything that
must hold whatever happened: the database passes `PRAGMA integrity_check` and its foreign keys, every question a
client was told is saved is there, no reply is left open by the next start, the live adapter is whole and answers,
and the next question gets its reply. The chat is killed in a real pseudo-terminal; the host while it streams and
while adapters go live and back under it; the learner in each state of a learning run in turn.

    python -m tests.benchmarks.kill [--rounds N] [--seed S] [--only chat|host|learner] [--json FILE]
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pexpect
import psutil

from app.host.client import TurnRequest, ensure_host, holder, running_host, stop_host, stop_learner
from app.host.events import Done, Queued, Started, Token
from app.model import adapter_file, catalogue, convert, gguf_info
from store import adapters, conversations, decisions, runs, search, settings, signals
from store.db import Store
from store.errors import HostUnavailable, UsageError
from store.home import Home
from store.types import AdapterState, MessageStatus, Role, RunState, SignalKind, Trigger

ROUNDS = 30
_SOURCE = Path(__file__).resolve().parents[2]
_STATES = [RunState.PREPARING, RunState.TRAINING, RunState.EXPORTING, RunState.GATING, RunState.PUBLISHING]
_STATE_SECONDS = 600.0
_MAX_TOKENS = 60
# Says that a question is saved, before anything else happens: the note must be on disk when the kill comes.
_CLIENT = """
import os, sys
from app.host.client import TurnRequest, ensure_host
from app.host.events import Queued
from store.home import Home
notes = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for number in range(1000):
    text = f"{sys.argv[2]} question {number}: tell me something about birds."
    request = TurnRequest(text=text, sampler={"max_tokens": 60})
    for event in ensure_host(Home.default()).turn(request):
        if isinstance(event, Queued):
            os.write(notes, f"{event.user_message}\\n".encode())
"""


class Bench:
    """One home, everything that was promised to its clients, and the checks."""

    def __init__(self, home: Home, seed: int) -> None:
        self.home = home
        self.rng = random.Random(seed)
        self.notes = home.root.parent / "accepted"
        self.notes.touch()
        self.moments: Counter[str] = Counter()
        self.asked = 0

    def check(self) -> None:
        """Everything that must hold after a kill, before and after the next start."""
        with Store.open(self.home) as store:
            self._check_data(store)
            client = ensure_host(self.home)
            *_, last = client.turn(TurnRequest(text="Are you there?", sampler={"max_tokens": 4}))
            assert isinstance(last, Done), last
            left_open = store.conn.execute(
                "SELECT count(*) FROM messages WHERE status = ?", (MessageStatus.GENERATING,)
            ).fetchone()[0]
            assert left_open == 0, f"{left_open} replies were left open"
            self._check_data(store)
            base = str(client.status()["base_hash"])
            serving = adapters.active(store, base)
            assert last.adapter == (serving.adapter.id if serving.adapter else None)

    def _check_data(self, store: Store) -> None:
        assert [row[0] for row in store.conn.execute("PRAGMA integrity_check")] == ["ok"]
        assert store.conn.execute("PRAGMA foreign_key_check").fetchall() == []
        assert decisions.broken_at(store) is None
        for message in self.notes.read_text().split():
            assert conversations.get_message(store, message).text, message
        for adapter in adapters.list_(store):
            if adapter.state in (AdapterState.ACTIVE, AdapterState.RETIRED):
                file = adapters.files(store, adapter.id) / adapters.GGUF_NAME
                assert hashlib.sha256(file.read_bytes()).hexdigest().startswith(adapter.id), adapter.id

    def kill(self, pid: int, moment: str) -> None:
        self.moments[moment] += 1
        process = psutil.Process(pid)
        process.send_signal(signal.SIGKILL)
        with contextlib.suppress(psutil.TimeoutExpired):
            process.wait(10)

    def pause(self, longest: float) -> None:
        time.sleep(self.rng.uniform(0.0, longest))


def kill_chat(bench: Bench, round_: int) -> None:
    """Every third time the chat itself in a terminal, else a bare client that asks without pause."""
    if round_ % 3 == 0:
        _kill_terminal_chat(bench, round_)
        return
    client = subprocess.Popen([sys.executable, "-c", _CLIENT, str(bench.notes), f"chat{round_}"], cwd=_SOURCE)
    bench.pause(4.0)
    bench.kill(client.pid, "client")
    client.wait()


def _kill_terminal_chat(bench: Bench, round_: int) -> None:
    mynah = Path(sys.executable).with_name("mynah")
    command = [str(mynah)] if mynah.exists() else [sys.executable, "-m", "app.cli.main"]
    environment = {**os.environ, "TERM": "xterm-256color", "LINES": "30", "COLUMNS": "100"}
    chat = pexpect.spawn(command[0], command[1:], cwd=str(_SOURCE), env=environment, timeout=60)
    text = f"terminal question {round_} about birds"
    # Drained all the while: a program that cannot write to its terminal does not get to the moment to be killed at.
    drain = threading.Thread(target=_drain, args=(chat,), daemon=True)
    drain.start()
    time.sleep(3.0)
    with contextlib.suppress(OSError):
        chat.send(f"{text}\r")
    bench.pause(4.0)
    os.kill(chat.pid, signal.SIGKILL)
    chat.wait()
    with contextlib.suppress(pexpect.ExceptionPexpect):
        chat.close()
    with Store.open(bench.home) as store:
        saved = any(hit.role is Role.USER for hit in search.search(store, text))
    bench.moments["terminal, question saved" if saved else "terminal, before saving"] += 1


def _drain(chat: Any) -> None:
    with contextlib.suppress(pexpect.EOF, OSError, ValueError):
        while True:
            with contextlib.suppress(pexpect.TIMEOUT):
                chat.read_nonblocking(65536, timeout=1)


def kill_host(bench: Bench, round_: int) -> None:
    """While it streams, and while versions change under it."""
    client = ensure_host(bench.home)
    stop = threading.Event()
    swapper = threading.Thread(target=_swap, args=(bench.home, round_, stop))
    swapper.start()
    moment = ["before the first reply"]
    streamer = threading.Thread(target=_stream, args=(bench, round_, moment, stop))
    streamer.start()
    bench.pause(3.0)
    pid = holder(bench.home.host_lock)
    assert pid == client.endpoint.pid
    bench.kill(pid, moment[0])
    stop.set()
    streamer.join(120)
    swapper.join(120)


def _stream(bench: Bench, round_: int, moment: list[str], stop: threading.Event) -> None:
    number = 0
    while not stop.is_set():
        number += 1
        found = running_host(bench.home)
        if found is None:
            return
        request = TurnRequest(text=f"host{round_}.{number}: a story.", sampler={"max_tokens": _MAX_TOKENS})
        try:
            for event in found.turn(request):
                moment[0] = {Started: "prompt", Token: "streaming", Queued: "queue"}.get(
                    type(event), "turn border"
                )
                if isinstance(event, Queued):
                    with bench.notes.open("a") as notes:
                        notes.write(f"{event.user_message}\n")
                if stop.is_set():
                    break
        except HostUnavailable:
            return


def _swap(home: Home, round_: int, stop: threading.Event) -> None:
    """Adapters go live and back, as fast as replies allow."""
    with Store.open(home) as store:
        base = catalogue.resolve(home, None)
        number = 0
        while not stop.wait(0.4):
            number += 1
            name = install_random(store, base, round_ * 1000 + number)
            adapters.add_candidate(
                store, name, base_hash=base.base_hash, run=f"k{round_}", manifest={}, uses=[]
            )
            adapters.publish(store, name, {"passed": True})
            if number % 2:
                with contextlib.suppress(UsageError):
                    adapters.rollback(store, base.base_hash)


def install_random(store: Store, base: catalogue.ModelFile, seed: int) -> str:
    """A small adapter of random numbers; returns its id."""
    info = gguf_info.read(convert.served_form(base))
    width = info.tensors["blk.0.attn_q.weight"].shape[1]
    numbers = np.random.default_rng(seed)
    pair = (
        numbers.normal(0, 0.05, (4, width)).astype(np.float32),
        numbers.normal(0, 0.05, (width, 4)).astype(np.float32),
    )
    made = store.home.scratch / f"kill{seed}"
    made.mkdir()
    pairs = {"model.layers.0.self_attn.q_proj": pair}
    adapter_file.write_gguf_adapter(made / adapters.GGUF_NAME, pairs, 4.0, info, base.base_hash)
    return adapters.install(store, made)


def kill_learner(bench: Bench, round_: int) -> None:
    """In one state of a real run after another, a moment after it was entered."""
    wanted = _STATES[round_ % len(_STATES)]
    # A host waits ever longer before it starts a learner again that keeps dying: up to five minutes.
    stop_host(bench.home)
    client = ensure_host(bench.home)
    with Store.open(bench.home) as store:
        if not runs.open_(store):
            _teach(bench, store)
            runs.request(store, Trigger.MANUAL)
        client.learn()
        deadline = time.monotonic() + _STATE_SECONDS
        while True:
            open_ = runs.open_(store)
            pid = holder(bench.home.learner_lock)
            # A run may pass through short states unseen: then the kill hits whatever comes next. What the dead learner
            # left is not a state of the living one.
            if not open_ or (pid is not None and open_[0].pid == pid and _reached(open_[0].state, wanted)):
                break
            assert time.monotonic() < deadline, f"the learner never reached {wanted}"
            time.sleep(0.02)
        bench.pause(1.0)
        open_ = runs.open_(store)
        pid = holder(bench.home.learner_lock)
        if pid is not None:
            bench.kill(pid, str(open_[0].state) if open_ else "after the run")


def _reached(state: RunState, wanted: RunState) -> bool:
    return state in _STATES and _STATES.index(state) >= _STATES.index(wanted)


def _teach(bench: Bench, store: Store) -> None:
    # Words that nobody can foresee: a version that has learned the lesson gives the next one by itself, which then
    # corrects nothing, and there is no run to kill a learner in.
    for _ in range(6):
        bench.asked += 1
        *_, done = ensure_host(bench.home).turn(
            TurnRequest(text=f"Lesson {bench.asked}: what is a bird?", sampler={"max_tokens": 24})
        )
        assert isinstance(done, Done)
        signals.record(
            store,
            str(done.message),
            SignalKind.CORRECTION,
            text=f"Bird number {bench.asked} is called {bench.rng.randbytes(4).hex()}, and it flies.",
        )


ACTIONS = {"chat": kill_chat, "host": kill_host, "learner": kill_learner}


@contextlib.contextmanager
def home_of_its_own() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="mynah-kill-") as root:
        os.environ["MYNAH_HOME"] = str(Path(root) / "home")
        home = Home.default().open()
        try:
            yield home
        finally:
            stop_host(home)
            stop_learner(home)


def rounds(kind: str, count: int, seed: int) -> dict[str, Any]:
    """Kill one kind of process so many times; raises AssertionError as soon as anything does not hold."""
    began = time.monotonic()
    with home_of_its_own() as home:
        bench = Bench(home, seed)
        with Store.open(home) as store:
            settings.put(store, settings.LEARNING_PAUSED, kind != "learner")
        for round_ in range(count):
            ACTIONS[kind](bench, round_)
            bench.check()
            print(f"{kind}: round {round_ + 1} of {count} holds", file=sys.stderr, flush=True)
        accepted = len(bench.notes.read_text().split())
    return {
        "killed": kind,
        "rounds": count,
        "accepted_messages": accepted,
        "moments": dict(bench.moments),
        "seconds": round(time.monotonic() - began),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=list(ACTIONS))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = []
    for kind in [given.only] if given.only else ACTIONS:
        results.append(rounds(kind, given.rounds, given.seed))
        print(json.dumps(results[-1]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
