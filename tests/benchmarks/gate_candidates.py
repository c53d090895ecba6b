"""Does the gate refuse what must not go live, and let through what should? Made-up candidates on the real model.

Good ones are trained on eight corrections into short answers, each on other questions. Bad ones are made in one known
way each: random weights added at a scale, the same lesson far too long, corrections in another language, "Yes." to
everything, empty replies, and corrections that belong to other questions. Each goes through the checks of a round, in its
order, on its exported file. Prints the outcome of each and, by kind, how many were judged wrongly, with a 95 % interval.

    python -m tests.benchmarks.gate_candidates [--kinds KIND ...] [--count N] [--out FILE]

A candidate takes one to two minutes on two cores; noise ten seconds. Results are appended, one line each.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from app.model import catalogue, convert
from app.model.catalogue import ModelFile
from app.model.llama import LlamaModel
from app.model.renderer import Renderer, Turn
from learner.examples import Example, Target, correction_target
from learner.yielding import Yielding
from store import adapters
from store.home import Home
from store.types import Role, UnitKind
from tests.benchmarks.personas import figures
from tests.benchmarks.personas.people import PEOPLE
from tests.benchmarks.styles import TAUGHT
from tests.leases import Free

_FREE = Yielding(Free())


class Kind(StrEnum):
    """How a candidate was made."""

    GOOD = "good"
    NOISE = "noise-scaled"
    OVER_TRAINED = "over-trained"
    LANGUAGE = "language-shifted"
    YES = "always-yes"
    EMPTY = "empty-reply"
    SHUFFLED = "shuffled-feedback"

    @property
    def may_pass(self) -> bool:
        """Whether it should go live."""
        return self is Kind.GOOD


@dataclass(frozen=True)
class Lesson:
    """What a candidate is trained on, and the honest corrections that it is tested on."""

    train: list[Example]
    held_out: list[Example]


RAMBLE = "That depends on many things, and there is a lot to say about it. First of all, you should think about it well."


def example(renderer: Renderer, name: str, question: str, wanted: str) -> Example:
    """A correction of a rambling reply."""
    reply = renderer.completion(f"{RAMBLE} {question}")
    chosen = renderer.completion(wanted)
    target = correction_target(chosen, reply) if wanted else Target(chosen, [1.0] * len(chosen))
    return Example(
        name, UnitKind.CORRECTION, -1.0, 1.0, question, f"{RAMBLE} {question}", None,
        renderer.prompt([Turn(Role.USER, question)]), Target(reply, [1.0] * len(reply)), target, None, (), wanted,
    )  # fmt: skip


def texts(kind: Kind, wanted: Sequence[str], chance: random.Random) -> list[str]:
    """What the corrections of a kind say, given what they should."""
    match kind:
        case Kind.LANGUAGE:
            korean = [str(each.answer) for each in PEOPLE["formal-korean"].taught]
            return chance.sample(korean, len(wanted))
        case Kind.YES:
            return ["Yes."] * len(wanted)
        case Kind.EMPTY:
            return [""] * len(wanted)
        case Kind.SHUFFLED:
            return [
                RAMBLE + " " + chance.choice(["Maybe.", "Or not.", "It is so.", "Who knows."]) for _ in wanted
            ]
        case _:
            return list(wanted)


def lesson(renderer: Renderer, kind: Kind, number: int) -> Lesson:
    """Seven corrections to learn and one to be tested on, of other questions and in another order for each number."""
    chance = random.Random(f"{kind} {number}")
    pairs = list(TAUGHT.items())
    chance.shuffle(pairs)
    said = texts(kind, [answer for _, answer in pairs], chance)
    made = [
        example(renderer, f"u{n}", question, text)
        for n, ((question, _), text) in enumerate(zip(pairs, said, strict=True))
    ]
    # Feedback is shuffled for the test as well: a round holds out what it is given. Damage is tested on honest units.
    kept = made[-1:] if kind is Kind.SHUFFLED else [example(renderer, "held out", *pairs[-1])]
    return Lesson(made[:-1], kept)


class Bench:
    """The model, loaded once."""

    def __init__(self, base: ModelFile, served: LlamaModel) -> None:
        self._base = base
        self._served = served
        self.renderer = Renderer(served.vocab, served.chat_template)

    def judge(self, home: Home, kind: Kind, number: int) -> dict[str, Any]:
        """Make one candidate and put it through the gate."""
        from learner import export, gate, reference, scoring, weights
        from learner.trainer import ADAPTER, Trainer, TrainSettings

        began = time.monotonic()
        made = lesson(self.renderer, kind, number)
        recipe = replace(TrainSettings(), seed=number, **_RECIPES.get(kind, {}))
        anchors = [self._served.vocab.encode(text, special=False) for text in reference.ANCHOR_PASSAGES]
        trainer = Trainer(weights.load_base(self._base), recipe, anchors, _FREE, lambda *_: None)
        with scoring.as_base(trainer.model):
            before = [gate.preference(trainer.model, each) for each in made.held_out]
        if kind is Kind.NOISE:
            _add_noise(trainer.model, number)
        else:
            trainer.run(made.train, lambda: None)
        gains = [
            gate.preference(trainer.model, each) - old
            for each, old in zip(made.held_out, before, strict=True)
        ]
        checks = [gate.held_out_check(gains, "the base")]
        passages = [self._served.vocab.encode(text, special=False) for text in reference.GATE_PASSAGES]
        checks += gate.drift_checks(gate.measure_drift(trainer.model, passages, _FREE.border))
        written = export.write(home, trainer.model, ADAPTER, recipe.alpha, self._base, {"kind": kind})
        usual = gate.base_health(
            self._base, lambda: gate.measure_health(self._served, self.renderer, None, _FREE)
        )
        wanted = gate.wanted_language([example(self.renderer, "x", q, a) for q, a in TAUGHT.items()])
        probing = time.monotonic()
        with closing(self._served.load_adapter(written / adapters.GGUF_NAME)) as adapter:
            health = gate.measure_health(self._served, self.renderer, adapter, _FREE)
        checks += gate.health_checks(health, usual, wanted)
        verdict = gate.Verdict(tuple(checks))
        return {
            "kind": kind,
            "number": number,
            "passed": verdict.passed,
            "failed": [check.name for check in checks if not check.passed],
            "values": {check.name: round(float(check.value), 4) for check in checks},
            "seconds": round(time.monotonic() - began, 1),
            "probing": round(time.monotonic() - probing, 1),
        }


_RECIPES: dict[Kind, dict[str, Any]] = {
    Kind.OVER_TRAINED: {
        "learning_rate": 2e-3,
        "min_epochs": 12,
        "max_epochs": 12,
        "learned_loss": 0.0,
        "drift_budget": 1e9,
        "token_budget": 10**9,
    }
}


def _add_noise(model: Any, number: int) -> None:
    """Random B matrices: the size of what training makes, and up to ten times as large."""
    import torch

    torch.manual_seed(number)
    scale = 0.02 * (1 + number % 10)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, scale)


def rates(lines: Sequence[dict[str, Any]]) -> str:
    """Wrong verdicts by kind, in Markdown."""
    rows = ["| candidates | judged | judged wrongly | refused by |", "|---|---|---|---|"]
    for kind in Kind:
        mine = [line for line in lines if line["kind"] == kind]
        if mine:
            wrong = sum(line["passed"] is not kind.may_pass for line in mine)
            by = sorted({name for line in mine for name in line["failed"]})
            rows.append(
                f"| {kind} | {len(mine)} | {wrong}: {figures.wilson(wrong, len(mine))} | {', '.join(by)} |"
            )
    return "\n".join(rows)


def judged(
    out: Path, kinds: Sequence[Kind], count: int, judge: Callable[[Kind, int], dict[str, Any]]
) -> list[dict[str, Any]]:
    """All lines of a file, after what is missing was judged and appended."""
    lines = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    known = {(line["kind"], line["number"]) for line in lines}
    for number in range(count):
        for kind in kinds:
            if (kind, number) not in known:
                lines.append(judge(kind, number))
                with out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(lines[-1]) + "\n")
                print(f"{kind} {number}: {lines[-1]['failed'] or 'passed'}", file=sys.stderr, flush=True)
    return lines


def main() -> None:
    """Judge what is missing, and print the rates."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", type=Kind, choices=list(Kind), default=list(Kind))
    parser.add_argument("--count", type=int, default=40, help="candidates of each kind")
    parser.add_argument("--out", type=Path, default=Path(".cache/gate_candidates.jsonl"))
    given = parser.parse_args()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mynah-gate-") as root:
        home = Home(Path(root)).open()
        base = catalogue.resolve(home, None)
        with closing(LlamaModel.load(convert.served_form(base))) as served:
            bench = Bench(base, served)
            lines = judged(
                given.out, given.kinds, given.count, lambda kind, number: bench.judge(home, kind, number)
            )
    print(rates([line for line in lines if line["kind"] in given.kinds]))


if __name__ == "__main__":
    main()
