"""What `mynah adapters export` writes, in PEFT's hands: on the de-quantised base it is the model that learned."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from app.cli.main import run
from app.model import catalogue
from learner import export, scoring
from learner.trainer import ADAPTER, TrainSettings, with_adapter
from learner.weights import load_base
from store import adapters
from store.db import Store
from store.home import Home

# PEFT asks transformers for a property that its next release renames.
pytestmark = [
    pytest.mark.model,
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]

PROMPT, REPLY = [1, 4093, 198, 1780, 314, 260], [3138, 282, 4649, 47]


def test_peft_gives_the_logits_of_the_learners_own_model(home: Home, tmp_path: Path) -> None:
    from peft import PeftModel

    file = catalogue.resolve(home, None)
    torch.manual_seed(0)
    recipe = TrainSettings()
    learned = with_adapter(load_base(file), recipe)
    with torch.no_grad():
        for name, weight in learned.named_parameters():
            if "lora_B" in name:
                weight.normal_(std=0.02)
        ours = scoring.completion_logits(learned, [(PROMPT, REPLY)])[0]
    made = export.write(home, learned, ADAPTER, recipe.alpha, file, {})
    with Store.open(home) as store:
        kept = adapters.install(store, made)
        adapters.add_candidate(store, kept, base_hash=file.base_hash, run="r1", manifest={}, uses=[])
    out = tmp_path / "out"
    assert run(["adapters", "export", kept, "--out", str(out)]) == 0
    with torch.no_grad():
        plain = scoring.completion_logits(load_base(file), [(PROMPT, REPLY)])[0]
        loaded = PeftModel.from_pretrained(load_base(file), out)
        theirs = scoring.completion_logits(loaded, [(PROMPT, REPLY)])[0]
    assert torch.equal(ours, theirs)
    assert (ours - plain).abs().max() > 1
