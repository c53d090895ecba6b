"""What one training step needs: memory and time of each way to hold the weights, the layers' results and the logits.

The step is the heaviest there is for its length: two replies with a hint, each with one reply of the teacher's, 768
tokens in one pass, of which 512 have a loss over the vocabulary, and the teacher's logits beside them. Each way runs in
a process of its own, on the default model or another. Peak is the most memory that the process ever had; the step's is
by how much it rose from the moment the model lay there. Factors are against the plain way (32 bits, everything kept,
logits of all positions at once) in the same run.

    python -m tests.benchmarks.memory [--model NAME] [--width N]

`--width N` measures a random model of Llama's shape with N numbers for each hidden state instead, eight layers and
Qwen's vocabulary, so that a larger one can be tried without its file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tabulate import tabulate

from learner.precision import Precision

PROMPT, REPLY = 64, 128
WORDS, LAYERS = 151_936, 8
_MIB = 2**20


@dataclass(frozen=True)
class Way:
    """How a step is computed. ``layers``: kept or recomputed; ``logits``: whole or chunked."""

    weights: str
    layers: str
    logits: str


PLAIN = Way(Precision.FLOAT32.value, "kept", "whole")
WAYS = [
    Way(weights, layers, logits)
    for weights, layers, logits in product(
        (Precision.FLOAT32.value, Precision.BFLOAT16.value), ("kept", "recomputed"), ("whole", "chunked")
    )
]


@dataclass(frozen=True)
class Need:
    """Bytes and seconds of one step."""

    peak: int
    step: int
    seconds: float


def measure(way: Way, model: str | None, width: int) -> Need:
    """One step in this process."""
    import torch

    from learner.positions import Positions
    from learner.trainer import Trainer, TrainSettings
    from learner.yielding import Yielding, usable_threads
    from tests.leases import Free

    torch.set_num_threads(usable_threads())
    room = {"kept": None, "recomputed": 0}[way.layers]
    recipe = TrainSettings(max_epochs=1)
    trainer = Trainer(
        _base(Precision(way.weights), model, width),
        recipe,
        [list(range(1, 60))],
        Yielding(Free()),
        lambda *_: None,
        lambda: room,
    )
    Path("/proc/self/clear_refs").write_text("5")  # the highest mark of memory begins anew
    before, loaded = _status("VmRSS"), _status("VmHWM")
    each = _whole if way.logits == "whole" else Positions.each
    with patch.object(Positions, "each", each):
        began = time.monotonic()
        trainer.run([_example("a", 1), _example("b", 7)], lambda: None)
        seconds = time.monotonic() - began
    assert trainer.metrics.steps == 1
    peak = _status("VmHWM")
    return Need(max(peak, loaded), peak - before, seconds)


def _base(precision: Precision, model: str | None, width: int) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    from app.model import catalogue
    from learner import weights
    from store.home import Home

    if not width:
        return weights.load_base(catalogue.resolve(Home.default(), model), precision)
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=LAYERS,
        num_attention_heads=width // 64,
        num_key_value_heads=max(1, width // 256),
        tie_word_embeddings=True,
        dtype=precision.dtype,
    )
    return LlamaForCausalLM._from_config(config).requires_grad_(False).eval()


def _example(name: str, first: int) -> Any:
    from learner.examples import Example, Target
    from store.types import UnitKind

    prompt = list(range(first, first + PROMPT))
    reply, better = ([start + number for number in range(REPLY)] for start in (500, 900))
    return Example(
        unit=name,
        kind=UnitKind.THUMB_DOWN,
        reward=-1.0,
        weight=1.0,
        question="",
        reply_text="",
        hint="h",
        prompt=prompt,
        reply=Target(reply, [1.0] * REPLY),
        chosen=None,
        hinted=[*prompt, 3, 4, 5],
        accepted=(better,),
    )


def _whole(positions: Any, value: Any, *beside: Any) -> Any:
    """The plain way: all logits of all positions, kept by the loss until its backward pass."""
    from learner.positions import Positions

    others = [other.logits() if isinstance(other, Positions) else other for other in beside]
    return value(positions.logits(), *others)


def _status(field: str) -> int:
    """A line of the kernel's account of this process, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def in_own_process(way: Way, model: str | None, width: int) -> Need:
    """The same in a process that does nothing else."""
    command = [sys.executable, "-m", __spec__.name, "--one", json.dumps(asdict(way)), "--width", str(width)]
    if model:
        command += ["--model", model]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{way}: {done.stderr.strip().splitlines()[-1]}")
    return Need(**json.loads(done.stdout.splitlines()[-1]))


def table(needs: dict[Way, Need]) -> str:
    """One row for each way, factors against the plain one."""
    plain = needs[PLAIN]
    rows = [
        (
            way.weights,
            way.layers,
            way.logits,
            f"{need.peak / _MIB:,.0f}",
            f"{need.peak / plain.peak:.2f}",
            f"{need.step / _MIB:,.0f}",
            f"{need.step / plain.step:.2f}",
            f"{need.seconds:.1f}",
            f"{need.seconds / plain.seconds:.2f}",
        )
        for way, need in needs.items()
    ]
    heads = ("weights", "layers", "logits", "peak, MiB", "×", "step, MiB", "×", "s", "×")
    return str(tabulate(rows, heads, tablefmt="github", disable_numparse=True))


def main() -> None:
    """Measure every way, or one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="name or file of another model than the default")
    parser.add_argument("--width", type=int, default=0, help="of a random model")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        need = measure(Way(**json.loads(options.one)), options.model, options.width)
        print(json.dumps(asdict(need)))
        return
    print(table({way: in_own_process(way, options.model, options.width) for way in WAYS}))


if __name__ == "__main__":
    main()
