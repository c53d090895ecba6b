"""Mynah itself as the subject of a trial: a data directory of its own, its service, a host, and a learner.

What a person does goes through the service that the chat and the commands use. Unseen questions are asked incognito, so
they leave nothing behind. Where a method is not what Mynah does by itself, a learner of the benchmark's own holds the
home's learner lock when the run is asked for (`ablated`), and everything around it is the product's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from app.host.client import TurnRequest, failed, stop_host, stop_learner
from app.host.events import Done
from app.host.processes import holder
from store import adapters, settings
from store.home import Home
from store.runs import Run
from store.types import RunOutcome
from tests.benchmarks import ability
from tests.benchmarks.personas.owned import Owned
from tests.benchmarks.personas.plan import Method
from tests.benchmarks.personas.trial import Learned, Reply

MAX_TOKENS = 160
OWN_LEARNER = frozenset({Method.BINARY, Method.OPD, Method.CORRECTION, Method.SFT, Method.KTO})
_LOCK_SECONDS = 60.0


class Mynah(Owned):
    """One home. Use as a context manager: it ends the host and the learner."""

    def __init__(self, root: Path, method: Method, model: str | None = None) -> None:
        super().__init__(root, method, model)
        self._ability: dict[str | None, float] = {}
        self._learner: subprocess.Popen[bytes] | None = None
        # Learning is asked for at the checkpoints and never begins by itself.
        settings.put(self._service.store, settings.MIN_UNITS, 1000)
        settings.put(self._service.store, settings.IDLE_LEARN_SECONDS, 86400.0)
        settings.put(self._service.store, settings.TITLES, False)

    def __enter__(self) -> Mynah:
        return self

    def __exit__(self, *_: object) -> None:
        if self._learner is not None:
            self._learner.terminate()
            self._learner.wait()
        stop_learner(self._home)
        stop_host(self._home)
        self._service.close()

    def expect(self, questions: Sequence[str]) -> None:
        """A host answers one question after the other."""

    def ask(self, question: str, seed: int) -> Reply:
        """A question in a conversation of its own."""
        done = self._turn(TurnRequest(text=question, sampler=_sampler(seed)))
        assert done.message is not None
        assert done.conversation is not None
        return Reply(done.message, done.conversation, done.text)

    def say(self, conversation: str, text: str, seed: int) -> None:
        """Go on in a conversation; what is answered to that is nobody's concern, so it is short."""
        sampler = {**_sampler(seed), "max_tokens": 16}
        self._turn(TurnRequest(text=text, conversation=conversation, sampler=sampler))

    def remember(self, rule: str) -> None:
        """Put the rule into what the model is told before every conversation; a host reads that when it starts."""
        self._tell(rule)
        stop_host(self._home)

    def answer(self, question: str, seed: int) -> str:
        """A reply that leaves nothing behind."""
        return self._turn(TurnRequest(text=question, sampler=_sampler(seed), incognito=True)).text

    def learn(self) -> Learned:
        """A round, and what it took."""
        if self._method in OWN_LEARNER:
            self._own_learner()
        cpu = _Processor(self._home)
        began = time.monotonic()
        run = self._service.wait(self._service.learn_now().id, cpu.look)
        cpu.look(run)
        learned = learned_of(run, time.monotonic() - began, cpu.seconds)
        self._end_own_learner()
        return learned

    def ability(self) -> float:
        """Share of the sixty four-way questions; measured once for each version."""
        serving = self._service.serving().adapter
        name = None if serving is None else serving.id
        if name not in self._ability:
            path = None if name is None else adapters.files(self._service.store, name) / adapters.GGUF_NAME
            self._ability[name] = ability.measure(self._home, path)
        return self._ability[name]

    def _turn(self, request: TurnRequest) -> Done:
        with self._service.chat(request) as stream:
            for event in stream:
                error = failed(event)
                if error is not None:
                    raise error
                if isinstance(event, Done):
                    return event
        raise AssertionError("a stream of events ends with Done or Failed, or raises")

    def _own_learner(self) -> None:
        stop_learner(self._home)
        environment = {**os.environ, "MYNAH_HOME": str(self._home.root)}
        command = [sys.executable, "-m", "tests.benchmarks.personas.ablated", self._method]
        with (self._home.logs / "ablated.log").open("ab") as log:
            self._learner = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        deadline = time.monotonic() + _LOCK_SECONDS
        while holder(self._home.learner_lock) != self._learner.pid:
            if self._learner.poll() is not None or time.monotonic() > deadline:
                sys.exit(
                    f"the learner of {self._method} did not start: see {self._home.logs / 'ablated.log'}"
                )
            time.sleep(0.05)

    def _end_own_learner(self) -> None:
        if self._learner is not None:
            self._learner.terminate()
            self._learner.wait()
            self._learner = None


class _Processor:
    """Processor seconds of whatever learner holds the lock, read while it lives."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._start: dict[int, float] = {}
        self._last: dict[int, float] = {}

    def look(self, run: Run) -> None:
        """To be called at every step of a run."""
        pid = holder(self._home.learner_lock)
        if pid is None or run.outcome is RunOutcome.FAILED:
            return
        try:
            times = psutil.Process(pid).cpu_times()
        except psutil.Error:
            return
        self._last[pid] = times.user + times.system
        self._start.setdefault(pid, self._last[pid])

    @property
    def seconds(self) -> float:
        """Since the first look at each."""
        return sum(last - self._start[pid] for pid, last in self._last.items())


def learned_of(run: Run, seconds: float, cpu_seconds: float) -> Learned:
    """What a finished run came to."""
    result: dict[str, Any] = run.result
    checks = {check["name"]: check for check in result.get("gate", {}).get("checks", [])}
    drift = checks.get("reference_kl")
    return Learned(
        str(run.outcome),
        round(seconds, 1),
        round(cpu_seconds, 1),
        len(result["used"]) + len(result["held_out"]),
        None if drift is None else drift["value"],
        [name for name, check in checks.items() if not check["passed"]],
        {name: round(float(check["value"]), 4) for name, check in checks.items()},
    )


def _sampler(seed: int) -> dict[str, float | int]:
    return {"temperature": 0.0, "seed": seed, "max_tokens": MAX_TOKENS}
