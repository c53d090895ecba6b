"""A learner that sees of each unit only what one objective has a use for, or that trains with TRL's trainers.

`python -m tests.benchmarks.personas.ablated METHOD`, on the data directory of ``MYNAH_HOME``. It is Mynah's own learner
with one function replaced, in this process alone, so that the ablations share everything else with the whole: the
judge, the split, the stop, the export. TRL's trainers get the same model, adapter shape and token ids; their adapters
go live without a gate, as they are used.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from learner import __main__ as entry
from learner import examples
from learner.examples import Example, Refusal
from store.types import UnitKind
from store.units import Unit
from tests.benchmarks.personas.plan import Method

DEMONSTRATION = "A good answer would be: {}"
NOTHING = "this objective has no use for it"
EPOCHS = {Method.SFT: 6, Method.KTO: 4}
RATE = {Method.SFT: 2e-4, Method.KTO: 5e-5}
BATCH = 4


def seen(unit: Unit, method: Method) -> Unit | None:
    """What an objective sees of a unit; None where there is nothing for it."""
    match method:
        case Method.BINARY:
            if unit.kind.approves:
                return unit
            return replace(unit, kind=UnitKind.THUMB_DOWN, target=None, hint=None)
        case Method.OPD:
            hint = unit.hint or (DEMONSTRATION.format(unit.target) if unit.target else None)
            if unit.kind.approves or hint is None:
                return None
            return replace(unit, kind=UnitKind.THUMB_DOWN, target=None, hint=hint)
        case Method.CORRECTION | Method.SFT:
            return unit if unit.target else None
        case _:
            return unit


def reduced(method: Method) -> Callable[..., Example | Refusal]:
    """`examples.build` for one objective."""
    build = examples.build

    def built(store: Any, renderer: Any, unit: Unit, redactor: Any) -> Example | Refusal:
        view = seen(unit, method)
        return Refusal(unit, NOTHING) if view is None else build(store, renderer, view, redactor)

    return built


def sft_rows(taught: Sequence[Example]) -> list[dict[str, Any]]:
    """Token ids for TRL's SFTTrainer, with loss on the completion only."""
    return [
        {
            "input_ids": [*each.prompt, *each.chosen.tokens],
            "completion_mask": [0] * len(each.prompt) + [1] * len(each.chosen.tokens),
        }
        for each in taught
        if each.chosen is not None
    ]


def kto_rows(taught: Sequence[Example], decode: Callable[[list[int]], str]) -> list[dict[str, Any]]:
    """Text for TRL's KTOTrainer: each reply as it was liked, and each correction as liked."""
    rows = []
    for each in taught:
        prompt = decode(each.prompt)
        if each.reply.tokens:
            rows.append(
                {"prompt": prompt, "completion": decode(each.reply.tokens), "label": each.kind.approves}
            )
        if each.chosen is not None:
            rows.append({"prompt": prompt, "completion": decode(each.chosen.tokens), "label": True})
    return rows


def trl_run(method: Method, tokenizer: Any) -> Callable[..., Any]:
    """A replacement of `Trainer.run` that lets TRL train the same adapter on the same examples."""

    def run(self: Any, taught: Sequence[Example], _held_out: Any) -> Any:
        from datasets import Dataset
        from trl import KTOConfig, KTOTrainer, SFTConfig, SFTTrainer

        common: dict[str, Any] = {
            "num_train_epochs": EPOCHS[method],
            "learning_rate": RATE[method],
            "per_device_train_batch_size": BATCH,
            "lr_scheduler_type": "constant",
            "use_cpu": True,
            "bf16": False,
            "save_strategy": "no",
            "report_to": [],
            "disable_tqdm": True,
            "gradient_checkpointing": False,
            "seed": 0,
            "max_length": 1024,
        }
        with tempfile.TemporaryDirectory() as place, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if method is Method.SFT:
                rows = Dataset.from_list(sft_rows(taught))
                trainer = SFTTrainer(
                    model=self.model,
                    args=SFTConfig(output_dir=place, completion_only_loss=True, **common),
                    train_dataset=rows,
                    processing_class=tokenizer,
                )
            else:
                rows = Dataset.from_list(kto_rows(taught, tokenizer.decode))
                trainer = KTOTrainer(
                    model=self.model,
                    args=KTOConfig(output_dir=place, **common),
                    train_dataset=rows,
                    processing_class=tokenizer,
                )
            done = trainer.train()
        self.metrics.steps = trainer.state.global_step
        self.metrics.epochs = EPOCHS[method]
        self.metrics.losses.append(float(done.training_loss))
        self.model.eval()
        return self.metrics

    return run


def tokenizer_of_home() -> Any:
    """The tokenizer of the model in use."""
    from app.model import catalogue, convert
    from store import settings
    from store.db import Store
    from store.home import Home

    home = Home.default().open()
    with Store.open(home) as store:
        return tokenizer_of(convert.served_form(catalogue.resolve(home, settings.get(store, settings.MODEL))))


def tokenizer_of(served: Path) -> Any:
    """The tokenizer of a served file."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(served.parent, gguf_file=served.name)


Applied = AbstractContextManager[None]


@contextmanager
def applied(method: Method, tokenizer: Callable[[], Any]) -> Iterator[None]:
    """While the block runs, the learner of this process is that of a method; ``tokenizer`` is made where TRL needs it."""
    from learner import gate, trainer

    with ExitStack() as replaced:
        replaced.enter_context(patch.object(examples, "build", reduced(method)))
        if not method.gated:
            replaced.enter_context(patch.object(trainer.Trainer, "run", trl_run(method, tokenizer())))
            replaced.enter_context(patch.object(gate.Verdict, "passed", property(lambda _self: True)))
        yield


def main() -> int:
    """Be the learner of a home until it is ended."""
    entry.bound_threads()
    entry.step_back()
    from learner.loop import work
    from store.home import Home

    with applied(Method(sys.argv[1]), tokenizer_of_home):
        work(Home.default().open(), linger=600.0)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
