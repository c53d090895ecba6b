"""`mynah bench interference`: what learning in the background costs the chat, and the chat the learning.

The only honest load is the real one: a learning run of the real learner, on units made by the public way, in a
data directory of its own. Replies are measured by the client that waits for them, after random pauses, so that
most begin in the middle of a training step. Every second one is measured with the learner's process stopped: a
machine differs by more from minute to minute than learning may cost, so idle and loaded replies take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from app.host.client import HostClient, TurnRequest, ensure_host, holder, stop_host
from app.host.events import Done, Token
from store import adapters, runs, settings, signals
from store.db import Store
from store.errors import LearnerError
from store.home import Home
from store.types import RunOutcome, RunState, SignalKind, Trigger

IDLE = "idle"
_REPLY_TOKENS = 64
_ROOM = 1024
"""Tokens of the window for question and reply, beside what stands before."""
_RUN_SECONDS = 3600.0
_WORKING_CORES = 0.3
"""A learner that used more than this in the pause before a question was in the middle of a step when it came."""

_TOPICS = [
    "rivers",
    "bread",
    "gravity",
    "chess",
    "winter",
    "bicycles",
    "islands",
    "music",
    "sleep",
    "bridges",
]
_TARGET = "In short: {topic} matter, and that is all."


@dataclass(frozen=True)
class Sample:
    """One measured reply. ``state``: what the learner was doing at its start, or ``idle`` where it was stopped.

    ``first_token`` in seconds from the request; the cores that the learner used in the pause before and meanwhile.
    """

    state: str
    first_token: float
    tokens_per_second: float
    cores_before: float
    cores_during: float


_Pair = tuple[Sample, Sample]
"""A reply beside the learner, and the one right after it without."""


def main(arguments: list[str] | None = None) -> int:
    """Run one measurement by name; prints a table, or JSON."""
    parser = argparse.ArgumentParser(prog="mynah bench", description="Measure Mynah on this machine.")
    parser.add_argument("name", choices=["interference"])
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument("--gap", type=float, default=1.5, help="longest pause between replies, in seconds")
    parser.add_argument(
        "--units", type=int, default=8, help=f"corrections per learning run, at most {len(_TOPICS)}"
    )
    parser.add_argument(
        "--context", type=int, default=0, help="tokens of conversation that stand before each question"
    )
    parser.add_argument("--model", type=Path, help="a model file, instead of the one that comes with Mynah")
    given = parser.parse_args(arguments)
    # Ends like Ctrl-C: the host and the learner of this measurement must not outlive it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with _home_of_its_own() as home:
        result = interference(home, given.gap, given.units, given.context, given.model)
    if given.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
    else:
        _print(result)
    return 0


@contextmanager
def _home_of_its_own() -> Iterator[Home]:
    with tempfile.TemporaryDirectory(prefix="mynah-bench-") as root:
        before = os.environ.get("MYNAH_HOME")
        os.environ["MYNAH_HOME"] = str(Path(root) / "home")
        home = Home.default().open()
        try:
            yield home
        finally:
            stop_host(home)
            if before is None:
                del os.environ["MYNAH_HOME"]
            else:
                os.environ["MYNAH_HOME"] = before


def interference(
    home: Home, longest_gap: float, units: int, context: int = 0, model: Path | None = None
) -> dict[str, Any]:
    """Measure a learning run left alone, then one with a chat of ``context`` tokens beside it."""
    with Store.open(home) as store:
        if model is not None:
            settings.put(store, settings.MODEL, str(model.absolute()))
        window = int(settings.get(store, settings.CONTEXT))
        settings.put(store, settings.CONTEXT, max(window, context + _ROOM))
    client = ensure_host(home)
    with Store.open(home) as store:
        settings.put(store, settings.LEARNING_PAUSED, True)
        _say("teaching the first lesson …")
        _teach(client, store, "first", units)
        _say("a learning run alone …")
        alone = _run(client, store, lambda _state: time.sleep(0.2))
        _say("teaching the second lesson …")
        _teach(client, store, "second", units)
        _say("a learning run beside a chat …")
        with _Chat(client, home, longest_gap, _history(context)) as chat:
            beside = _run(client, store, chat.turn, lambda: chat.stopped_seconds)
            samples = chat.samples
        status = client.status()
        memory = {"host": _peak_megabytes(int(status["pid"])), "learner": chat.learner_megabytes}
    idle = [sample for sample in samples if sample.state == IDLE]
    loaded = [sample for sample in samples if sample.state != IDLE]
    pairs = list(zip(loaded, idle, strict=True))
    return {
        "machine": {"cores": os.cpu_count(), "threads": status["threads"], "model": status["model"]},
        "context_tokens": context,
        "peak_memory_mb": {**memory, "contexts": status["contexts"]},
        "idle": _summary(idle),
        "learning": _summary(loaded),
        "ratio": _ratios(pairs),
        "in_mid_step": _ratios([pair for pair in pairs if pair[0].cores_before > _WORKING_CORES]),
        "by_state": {state: _ratios(group) for state, group in _by_state(pairs).items()},
        "learner": {
            "alone": alone,
            "beside_a_chat": beside,
            "keeps": round(beside["steps_per_second"] / alone["steps_per_second"], 3),
            "cores_during_replies": round(statistics.fmean(sample.cores_during for sample in loaded), 3),
        },
        "samples": [asdict(sample) for sample in samples],
    }


def _teach(client: HostClient, store: Store, lesson: str, units: int) -> None:
    """Corrections by the public way: ask, then correct."""
    for topic in _TOPICS[:units]:
        done = _ask(client, f"For the {lesson} lesson: what is there to say about {topic}?", keep=True)[0]
        signals.record(store, str(done.message), SignalKind.CORRECTION, text=_TARGET.format(topic=topic))


def _history(tokens: int) -> list[dict[str, str]]:
    """An earlier exchange of about so many tokens: the words are one token each."""
    if not tokens:
        return []
    words = " ".join(_TOPICS[index % len(_TOPICS)] for index in range(tokens))
    return [{"role": "user", "content": words}, {"role": "assistant", "content": "A list of words."}]


def _ask(
    client: HostClient, text: str, *, keep: bool, history: Sequence[dict[str, str]] = ()
) -> tuple[Done, float]:
    """A reply, and the seconds until its first text."""
    request = TurnRequest(
        text=text,
        incognito=not keep,
        incognito_turns=list(history),
        sampler={"temperature": 0.7, "seed": 7, "max_tokens": _REPLY_TOKENS},
        base=True,
    )
    began = time.monotonic()
    first = 0.0
    for event in client.turn(request):
        if isinstance(event, Token) and not first:
            first = time.monotonic() - began
        if isinstance(event, Done):
            return event, first or time.monotonic() - began
    raise LearnerError("a reply failed during the measurement: see the host's log")


class _Chat:
    """A person who asks something new after a random pause; every second time the learner is stopped meanwhile."""

    def __init__(
        self, client: HostClient, home: Home, longest_gap: float, history: list[dict[str, str]]
    ) -> None:
        self._client = client
        self._history = history
        self.learner_megabytes = 0
        self._home = home
        self._rng = random.Random(1)
        self._longest_gap = longest_gap
        self._stopped: int | None = None
        self.samples: list[Sample] = []
        self.stopped_seconds = 0.0

    def __enter__(self) -> _Chat:
        if self._history:
            # The first turn of a long conversation is slow for whoever asks it, learner or not.
            _ask(self._client, "Ready?", keep=False, history=self._history)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._let_go()

    def turn(self, state: RunState) -> None:
        """Pause, ask, and measure: once beside the learner and once without it."""
        self._measure(str(state))
        began = time.monotonic()
        self._stop()
        try:
            self._measure(IDLE)
        finally:
            self._let_go()
        if state is RunState.TRAINING:
            self.stopped_seconds += time.monotonic() - began

    def _measure(self, state: str) -> None:
        gap = self._rng.uniform(min(0.3, self._longest_gap), self._longest_gap)
        at_pause = _cpu_seconds(self._home)
        time.sleep(gap)
        at_question = _cpu_seconds(self._home)
        topic = self._rng.choice(_TOPICS)
        began = time.monotonic()
        text = f"Question {len(self.samples)}: tell me a long story about {topic}, please."
        done, first = _ask(self._client, text, keep=False, history=self._history)
        spent = time.monotonic() - began
        sample = Sample(
            state=state,
            first_token=first,
            tokens_per_second=done.timings["tokens_per_second"],
            cores_before=max(at_question - at_pause, 0.0) / gap if gap else 0.0,
            cores_during=max(_cpu_seconds(self._home) - at_question, 0.0) / spent,
        )
        self.samples.append(sample)
        learner = holder(self._home.learner_lock)
        if learner is not None:
            self.learner_megabytes = max(self.learner_megabytes, _peak_megabytes(learner))
        _say(
            f"{sample.state:<10} {sample.tokens_per_second:6.1f} tokens/s, first token {sample.first_token:.3f} s, "
            f"learner {sample.cores_before:.2f} cores before, {sample.cores_during:.2f} during"
        )

    def _stop(self) -> None:
        self._stopped = holder(self._home.learner_lock)
        if self._stopped is not None:
            os.kill(self._stopped, signal.SIGSTOP)

    def _let_go(self) -> None:
        if self._stopped is not None:
            with suppress(ProcessLookupError):
                os.kill(self._stopped, signal.SIGCONT)
        self._stopped = None


def _run(
    client: HostClient,
    store: Store,
    meanwhile: Callable[[RunState], None],
    stopped: Callable[[], float] = lambda: 0.0,
) -> dict[str, float]:
    """Carry one run out, doing something over and over while it lasts; what the run says of itself.

    ``stopped``: seconds of training for which its process was stopped, which are not the learner's.
    """
    settings.put(store, settings.LEARNING_PAUSED, False)
    run = runs.request(store, Trigger.MANUAL).id
    client.learn()
    deadline = time.monotonic() + _RUN_SECONDS
    while not (now := runs.get(store, run)).state.finished:
        if time.monotonic() > deadline:
            raise LearnerError(f"the learning run did not end within {_RUN_SECONDS:.0f} s")
        meanwhile(now.state)
    settings.put(store, settings.LEARNING_PAUSED, True)
    if now.state is RunState.FAILED:
        raise LearnerError(f"the learning run failed: {now.error}")
    made = next((adapter for adapter in adapters.list_(store) if adapter.run == run), None)
    if made is None or now.outcome is RunOutcome.NOTHING_TO_LEARN:
        raise LearnerError("the learning run found nothing to learn: there is nothing to measure")
    steps = float(made.manifest["metrics"]["steps"])
    seconds = float(made.manifest["seconds"][RunState.TRAINING]) - stopped()
    return {
        "steps": steps,
        "training_seconds": round(seconds, 1),
        "steps_per_second": round(steps / seconds, 3),
        "waited_seconds": float(made.manifest["waited"]),
        "run_seconds": float(now.result["seconds"]),
    }


def _cpu_seconds(home: Home) -> float:
    """Processor time the learner of a home has used so far; 0 where none runs."""
    pid = holder(home.learner_lock)
    if pid is None:
        return 0.0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _peak_megabytes(pid: int) -> int:
    """The most memory a process has had; 0 where that is not known."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)


def _by_state(pairs: list[_Pair]) -> dict[str, list[_Pair]]:
    groups: dict[str, list[_Pair]] = {}
    for pair in pairs:
        groups.setdefault(pair[0].state, []).append(pair)
    return groups


def _summary(samples: list[Sample]) -> dict[str, float]:
    return {
        "replies": len(samples),
        "tokens_per_second": round(statistics.median(sample.tokens_per_second for sample in samples), 2),
        "first_token_seconds": round(statistics.median(sample.first_token for sample in samples), 4),
        "worst_first_token_seconds": round(max(sample.first_token for sample in samples), 4),
    }


def _ratios(pairs: list[_Pair]) -> dict[str, float]:
    """Medians over pairs of the ratio to idle; above 1 is faster. Empty without pairs."""
    if not pairs:
        return {}
    speed = [busy.tokens_per_second / idle.tokens_per_second for busy, idle in pairs]
    first = [idle.first_token / busy.first_token for busy, idle in pairs]
    return {
        "replies": len(pairs),
        "tokens_per_second": round(statistics.median(speed), 3),
        "first_token": round(statistics.median(first), 3),
    }


def _print(result: dict[str, Any]) -> None:
    lines = [f"{'':<22} {'replies':>8} {'tokens/s':>9} {'first token':>12}"]
    for name in ("idle", "learning"):
        row = result[name]
        lines.append(
            f"{name:<22} {row['replies']:>8} {row['tokens_per_second']:>9.1f} {row['first_token_seconds']:>10.3f} s"
        )
    groups = {"ratio": result["ratio"], "begun in mid-step": result["in_mid_step"], **result["by_state"]}
    for name, row in groups.items():
        if row:
            lines.append(
                f"{name:<22} {row['replies']:>8} {row['tokens_per_second']:>9.2f} {row['first_token']:>12.2f}"
            )
    learner = result["learner"]
    for name in ("alone", "beside_a_chat"):
        row = learner[name]
        lines.append(
            f"learner {name.replace('_', ' ')}: {row['steps_per_second']:.2f} steps/s, "
            f"run {row['run_seconds']:.0f} s, waited {row['waited_seconds']:.0f} s"
        )
    lines.append(
        f"the learner keeps {learner['keeps']:.0%} of its pace and used {learner['cores_during_replies']:.2f} cores "
        "during replies"
    )
    memory = result["peak_memory_mb"]
    lines.append(f"memory: host {memory['host']} MB, learner {memory['learner']} MB at their peaks")
    sys.stdout.write("\n".join(lines) + "\n")


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
