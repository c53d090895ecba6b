"""Are the weights that are trained the weights that are served? Compares the logits of torch and llama.cpp.

A gate that judges on one side and a chat that runs on the other are only as good as their agreement, and one wrong
detail of the export (the order of the rows in a query head) makes an adapter that looks fine in training and speaks
nonsense in the chat. So the base and an adapter from real training steps are put through both, position by position.

Run: `python -m tests.benchmarks.parity [--steps 12]`; prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from peft import LoraConfig, inject_adapter_in_model

from app.model import adapter_file, catalogue, convert, gguf_info
from app.model.adapter_file import RowOrder
from app.model.catalogue import ModelFile
from app.model.llama import ContextSettings, LlamaContext, LlamaModel
from app.model.renderer import Renderer, Turn
from learner.weights import load_base
from store.home import Home
from store.types import Role

Logits = npt.NDArray[np.float32]

# What issue and design ask of the served F16 file.
MIN_AGREEMENT = 0.99
MAX_MEAN_DIFFERENCE = 0.02
MAX_ADAPTER_RATIO = 1.2

_RANK, _ALPHA = 16, 32.0
_LINEAR = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]

CONVERSATIONS = (
    ("How do tides work?", "The moon pulls on the sea, and the earth turns under the bulge that this makes."),
    (
        "Name three things to pack for a day in the hills.",
        "Water, a warm layer and a map you can read in the wind.",
    ),
    (
        "Why does bread rise?",
        "Yeast eats sugar and gives off gas; the gluten in the dough holds the bubbles.",
    ),
    (
        "¿Qué hora es en Tokio si en Berlín son las tres?",
        "In summer it is ten in the morning; seven hours ahead.",
    ),
    (
        "def area(r): return 3.14 * r * r  # what is missing?",
        "Use math.pi, check r >= 0, and say the unit. 🙂",
    ),
)
LESSONS = (
    ("What is a comet?", "Aye! Dust and ice on a long way round the sun."),
    ("How do I clean a whiteboard?", "Aye! A drop of spirit and a dry cloth."),
    ("Is tea stronger than coffee?", "Aye! By the leaf, not by the cup."),
)


@dataclass(frozen=True)
class Agreement:
    """How two sides agree over `positions`: share with the same most likely token, and |Δ logit|."""

    positions: int
    top1: float
    mean_difference: float
    max_difference: float


@dataclass(frozen=True)
class Report:
    """One run. `wrong_order` is the adapter with its query and key rows in the other architecture's order."""

    model: str
    base: Agreement
    adapter: Agreement
    wrong_order: Agreement

    @property
    def base_agrees(self) -> bool:
        """Whether the base passes the limits."""
        return self.base.top1 >= MIN_AGREEMENT and self.base.mean_difference <= MAX_MEAN_DIFFERENCE

    def adapter_agrees(self, adapter: Agreement) -> bool:
        """Whether an adapter passes the limits, and is not worse than the base by more than a fifth."""
        return (
            adapter.top1 >= MIN_AGREEMENT
            and adapter.mean_difference <= MAX_MEAN_DIFFERENCE
            and adapter.mean_difference <= MAX_ADAPTER_RATIO * self.base.mean_difference
        )


def agreement(ours: Logits, theirs: Logits) -> Agreement:
    """Compare two sets of logits, (positions, vocabulary)."""
    difference = np.abs(ours - theirs)
    same = ours.argmax(axis=1) == theirs.argmax(axis=1)
    return Agreement(len(ours), float(same.mean()), float(difference.mean()), float(difference.max()))


def measure(model: ModelFile, steps: int, scratch: Path) -> Report:
    """Compare base, trained adapter and wrongly exported adapter. Takes some 20 s on one core with SmolLM2."""
    torch.manual_seed(7)
    threads = torch.get_num_threads()
    # On two cores a second thread gains nothing here, and beside other work the two wait for each other.
    torch.set_num_threads(1)
    try:
        return _measured(model, steps, scratch)
    finally:
        torch.set_num_threads(threads)


def _measured(model: ModelFile, steps: int, scratch: Path) -> Report:
    served = convert.served_form(model)
    with LlamaModel.load(served) as llama:
        renderer = Renderer(llama.vocab, llama.chat_template)
        texts = [_tokens(renderer, pair) for pair in CONVERSATIONS]
        context = llama.context(ContextSettings(n_ctx=512))
        network = load_base(model)
        base = agreement(_torch_logits(network, texts), _llama_logits(context, texts))
        network = _trained(network, [_tokens(renderer, pair) for pair in LESSONS], steps)
        ours = _torch_logits(network, texts)
        right = _exported(network, served, scratch / "right.gguf", right_order=True)
        wrong = _exported(network, served, scratch / "wrong.gguf", right_order=False)
        return Report(
            model=model.name,
            base=base,
            adapter=agreement(ours, _with_adapter(llama, context, right, texts)),
            wrong_order=agreement(ours, _with_adapter(llama, context, wrong, texts)),
        )


def _tokens(renderer: Renderer, pair: tuple[str, str]) -> list[int]:
    return renderer.prompt([Turn(Role.USER, pair[0])]) + renderer.completion(pair[1])


def _llama_logits(context: LlamaContext, texts: Sequence[list[int]]) -> Logits:
    # Position 0 is left out: Qwen2.5-1.5B differs there by 12 to 15, and nothing is ever predicted from it.
    return np.concatenate([context.score(tokens)[1:] for tokens in texts])


def _torch_logits(network: Any, texts: Sequence[list[int]]) -> Logits:
    network.eval()
    with torch.no_grad():
        rows = [network(input_ids=torch.tensor([tokens])).logits[0, 1:].numpy() for tokens in texts]
    return np.concatenate(rows)


def _trained(network: Any, texts: Sequence[list[int]], steps: int) -> Any:
    """Real steps at the rate and the rank of a round, so that A and B have the sizes that training gives them."""
    config = LoraConfig(
        r=_RANK, lora_alpha=int(_ALPHA), target_modules=_LINEAR, lora_dropout=0.0, bias="none"
    )
    tuned = inject_adapter_in_model(config, network)
    tuned.train()
    optimiser = torch.optim.AdamW([p for p in tuned.parameters() if p.requires_grad], lr=3e-4)
    for step in range(steps):
        tokens = torch.tensor([texts[step % len(texts)]])
        loss = tuned(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    return tuned


def _exported(network: Any, served: Path, path: Path, *, right_order: bool) -> Path:
    pairs = {}
    for name, module in network.named_modules():
        if hasattr(module, "lora_A") and "default" in module.lora_A:
            down, up = module.lora_A["default"].weight, module.lora_B["default"].weight
            pairs[name] = (down.detach().numpy(), up.detach().numpy())
    base = gguf_info.read(served)
    kept = dict(adapter_file.ROW_ORDER)
    if not right_order:
        other = {RowOrder.HALVES: RowOrder.INTERLEAVED, RowOrder.INTERLEAVED: RowOrder.HALVES}
        adapter_file.ROW_ORDER[base.architecture] = other[kept[base.architecture]]
    try:
        adapter_file.write_gguf_adapter(path, pairs, _ALPHA, base, "parity")
    finally:
        adapter_file.ROW_ORDER.update(kept)
    adapter_file.verify(path, base)
    return path


def _with_adapter(llama: LlamaModel, context: LlamaContext, path: Path, texts: Sequence[list[int]]) -> Logits:
    adapter = llama.load_adapter(path)
    context.set_adapter(adapter)
    try:
        return _llama_logits(context, texts)
    finally:
        adapter.close()


def main() -> int:
    """Print the report; exit code 1 when a limit is not met."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", help="path of a GGUF file; the default model without")
    parser.add_argument("--steps", type=int, default=12)
    chosen = parser.parse_args()
    model = catalogue.resolve(Home.default(), chosen.model)
    with tempfile.TemporaryDirectory() as scratch:
        report = measure(model, chosen.steps, Path(scratch))
    json.dump(asdict(report), sys.stdout, indent=2)
    sys.stdout.write("\n")
    passed = report.base_agrees and report.adapter_agrees(report.adapter)
    return 0 if passed and not report.adapter_agrees(report.wrong_order) else 1


if __name__ == "__main__":
    raise SystemExit(main())
