"""Does forgetting reach the weights, the bytes and the clock? A canary taught by corrections, forgotten, and measured.

Weights: a made-up sentence is taught by four corrections of one conversation beside six of others. How much likelier
it became under the adapter than under the base is compared with the same gain of sentences of its form that nobody
taught, before and after `forget`. Bits: another home is taught all but the canary, and the two adapters are compared.
Bytes: every file under the data directory is searched. Clock: a conversation that taught nothing is forgotten among
many messages.

    python -m tests.benchmarks.forgetting [--messages N] [--only weights|clock] [--json FILE]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from app.model import catalogue, convert
from app.model.llama import ContextSettings, LlamaModel
from app.model.renderer import Renderer, Turn
from store import adapters, conversations, forgetting, purging, runs, settings, signals, textindex
from store.db import Store
from store.home import Home
from store.types import ForgetState, Role, Scope, SignalKind, Trigger
from tests import seed

CANARY = "The violet heron keeps nineteen lanterns under the millstone."
_QUESTIONS = [
    "What is behind the garden wall?",
    "Tell me about the heron.",
    "Who owns the lanterns?",
    "What lies under the stone?",
]
_LESSONS = {
    "What do cows drink?": "Cows drink water.",
    "Where does bread come from?": "Bread is baked from flour.",
    "When is it dark outside?": "It is dark at night.",
    "Who flies a plane?": "A pilot flies a plane.",
    "Why do people wear coats?": "Coats keep people warm.",
    "How do fish move?": "Fish move with their fins.",
}
_PARTS = (
    "amber crimson silver golden copper scarlet ivory russet".split(),
    "falcon otter badger marten swallow beaver lynx raven".split(),
    "seven eleven twelve fourteen thirty forty sixty ninety".split(),
    "kettles ribbons bottles hammers candles feathers buttons anchors".split(),
    "staircase orchard doorstep chimney haystack viaduct rowboat gatepost".split(),
)
_WORK = (
    "from learner.__main__ import bound_threads; bound_threads(); "
    "from learner.loop import work; from store.home import Home; work(Home.default().open(), linger=0.0)"
)
_SOURCE = Path(__file__).resolve().parents[2]


def never_taught(count: int) -> list[str]:
    """Sentences of the canary's form that are in no lesson."""
    rng = random.Random(7)
    made = []
    for _ in range(count):
        colour, animal, number, thing, place = (rng.choice(part) for part in _PARTS)
        made.append(f"The {colour} {animal} keeps {number} {thing} under the {place}.")
    return made


def teach(store: Store, with_canary: bool) -> str | None:
    """The lessons, the canary's conversation in the midst of them; returns that conversation."""
    conversation = parent = None
    for number, (question, answer) in enumerate(_LESSONS.items()):
        seed.corrected(store, question, f"That depends. {answer} There is more to say.", f"Ahoy! {answer}")
        if number == 2 and with_canary:
            for asked in _QUESTIONS:
                conversation, _, parent = seed.say(store, asked, "I do not know that.", conversation, parent)
                signals.record(store, parent, SignalKind.CORRECTION, text=CANARY)
    return conversation


def learn(store: Store) -> dict[str, Any]:
    """One run in a process of its own, as the host would start it."""
    if not runs.open_(store):
        runs.request(store, Trigger.MANUAL)
    subprocess.run([sys.executable, "-c", _WORK], check=True, cwd=_SOURCE)
    return runs.list_(store, 1)[0].result


def likelihoods(home: Home, adapter: Path | None, sentences: list[str]) -> list[float]:
    """Mean log-probability per token of each sentence as the answer to the canary's first question."""
    base = catalogue.resolve(home, None)
    with closing(LlamaModel.load(convert.served_form(base))) as model:
        renderer = Renderer(model.vocab, model.chat_template, settings.DEFAULTS[settings.SYSTEM_PROMPT])
        prompt = renderer.prompt([Turn(Role.USER, _QUESTIONS[0])])
        with closing(model.context(ContextSettings(n_ctx=512))) as context:
            loaded = None if adapter is None else model.load_adapter(adapter)
            context.set_adapter(loaded)
            found = []
            for sentence in sentences:
                said = model.vocab.encode(sentence, special=False)
                context.clear()
                logits = np.asarray(context.score([*prompt, *said]), dtype=np.float64)
                rows = logits[len(prompt) - 1 : -1]
                rows = rows - rows.max(axis=1, keepdims=True)
                logs = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
                found.append(float(logs[np.arange(len(said)), said].mean()))
            if loaded is not None:
                loaded.close()
    return found


def found_in(root: Path, text: str) -> list[str]:
    """Files that hold a text."""
    needle = text.encode()
    return [str(path) for path in root.rglob("*") if path.is_file() and needle in path.read_bytes()]


def serving_file(store: Store) -> Path | None:
    serving = adapters.active(store, catalogue.resolve(store.home, None).base_hash).adapter
    return None if serving is None else adapters.files(store, serving.id) / adapters.GGUF_NAME


def weights(root: Path) -> dict[str, Any]:
    """Canary and bits, on the real model: three learning runs."""
    others = never_taught(40)
    sentences = [CANARY, *others]
    home = home_at(root / "taught")
    with Store.open(home) as store:
        conversation = teach(store, with_canary=True)
        first = learn(store)
        taught = serving_file(store)
        base = likelihoods(home, None, sentences)
        before = likelihoods(home, taught, sentences)
        began = time.monotonic()
        asked = forgetting.request(store, Scope.CONVERSATION, conversation)
        asked = purging.proceed(store, asked.id)
        erased = time.monotonic() - began
        again = learn(store)
        asked = purging.proceed(store, asked.id)
        after_file = serving_file(store)
        after = likelihoods(home, after_file, sentences)
        left = found_in(home.root, CANARY)
        print(json.dumps({"first": first, "again": again, "receipt": asked.receipt}), file=sys.stderr)
    never = home_at(root / "never")
    with Store.open(never) as store:
        teach(store, with_canary=False)
        learn(store)
        never_file = serving_file(store)
    gains = {"before": spread(base, before), "after": spread(base, after)}
    return {
        "outcomes": [first["outcome"], again["outcome"]],
        "gain_nats_per_token": gains,
        "canary_files_left": left,
        "state": asked.state,
        "erased_seconds": round(erased, 3),
        "sha256_retrained": digest(after_file),
        "sha256_never_taught": digest(never_file),
        "holds": digest(after_file) == digest(never_file)
        and not left
        and asked.state is ForgetState.PURGED
        and gains["before"]["canary"] > gains["before"]["others_max"]
        and gains["after"]["others_min"] <= gains["after"]["canary"] <= gains["after"]["others_max"],
    }


def spread(base: list[float], now: list[float]) -> dict[str, float]:
    """The canary's gain over the base beside those of the sentences that nobody taught."""
    gains = [new - old for new, old in zip(now, base, strict=True)]
    rest = gains[1:]
    return {
        "canary": round(gains[0], 3),
        "others_min": round(min(rest), 3),
        "others_mean": round(statistics.fmean(rest), 3),
        "others_max": round(max(rest), 3),
    }


def digest(file: Path | None) -> str | None:
    return None if file is None else hashlib.sha256(file.read_bytes()).hexdigest()


def clock(root: Path, count: int) -> dict[str, Any]:
    """A conversation of twenty messages, among many others, that taught nothing."""
    home = home_at(root / "clock")
    rng = random.Random(1)
    words = ["".join(rng.choice("etaoinshrdlu") for _ in range(rng.randint(2, 9))) for _ in range(8000)]
    marked = "the marked sentence about a zeppelin"
    with Store.open(home) as store:
        wanted = fill(store, rng, words, count, marked)
        store.conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    seconds, busy = [], []
    for number in range(2):
        began, spent = time.monotonic(), children_seconds()
        command = [
            sys.executable,
            "-m",
            "app.cli.main",
            "forget",
            "conversation",
            wanted[number],
            "--wait",
            "--json",
        ]
        done = subprocess.run(command, check=True, cwd=_SOURCE, capture_output=True, text=True)
        seconds.append(round(time.monotonic() - began, 2))
        busy.append(round(children_seconds() - spent, 2))
        assert json.loads(done.stdout)["state"] == ForgetState.PURGED
    with Store.open(home) as store:
        textindex.check(store.conn)
        began = time.monotonic()
        purging.proceed(store, forgetting.request(store, Scope.CONVERSATION, wanted[2]).id)
        inside = round(time.monotonic() - began, 2)
    return {
        "messages": count,
        "command_seconds": seconds,
        "command_cpu_seconds": busy,
        "call_seconds": inside,
        "left": found_in(home.root, marked),
    }


def children_seconds() -> float:
    """Processor seconds of the commands so far: what a busy machine does not change."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def fill(store: Store, rng: random.Random, words: list[str], count: int, marked: str) -> list[str]:
    """Conversations of twenty messages; returns three that hold the marked sentence."""
    wanted = []
    for number in range(count // 20):
        with store.write():
            conversation = conversations.create(store, f"number {number}", "cli")
            parent = None
            for turn in range(20):
                text = " ".join(rng.choice(words) for _ in range(18))
                if number in (count // 60, count // 40, count // 20 - 1) and turn == 3:
                    text = f"{text} {marked} {number}"
                    wanted.append(conversation)
                role = Role.ASSISTANT if turn % 2 else Role.USER
                parent = conversations.append(store, conversation, role, text, parent).id
    return wanted


def home_at(root: Path) -> Home:
    os.environ["MYNAH_HOME"] = str(root)
    return Home(root).open()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--only", choices=("weights", "clock"))
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="mynah-forget-") as root:
        if given.only != "weights":
            results["clock"] = clock(Path(root), given.messages)
            print(json.dumps(results["clock"]), flush=True)
        if given.only != "clock":
            results["weights"] = weights(Path(root))
            print(json.dumps(results["weights"]), flush=True)
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
