"""What is trained is what is served, family by family: logits of both sides on tiny random models."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pytest
import torch

from app.model import adapter_file, gguf_info
from app.model.adapter_file import RowOrder
from app.model.llama import ContextSettings, LlamaModel
from learner import export
from learner.trainer import ADAPTER, TrainSettings, with_adapter
from tests import tiny_families
from tests.tiny_families import FAMILIES, Family

TOKENS = [1, 17, 42, 5, 88, 3, 61, 9, 30]
CLOSE = 2e-3


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_both_sides_agree_with_an_adapter_and_without(tmp_path, family: Family):
    base, made, apart = _logits(tmp_path, family)
    assert base < CLOSE
    assert made < CLOSE
    assert apart > 20 * CLOSE


@pytest.mark.parametrize(
    "family", [family for family in FAMILIES if family.interleaved], ids=lambda family: family.name
)
def test_the_wrong_order_of_rows_is_noticed(tmp_path, family: Family, monkeypatch):
    monkeypatch.setitem(adapter_file.ROW_ORDER, "llama", RowOrder.HALVES)
    base, made, _ = _logits(tmp_path, family)
    assert base < CLOSE
    assert made > 5 * CLOSE


def _logits(tmp_path, family: Family) -> tuple[float, float, float]:
    """Mean distance of torch and llama.cpp: of the base, with an adapter, and of the adapter to the base."""
    torch_model = tiny_families.model(family)
    path = tmp_path / "base.gguf"
    tiny_families.write(path, family, torch_model)
    with torch.no_grad():
        plain = torch_model(input_ids=torch.tensor([TOKENS])).logits[0].numpy()
    adapted = with_adapter(torch_model, TrainSettings(rank=4, alpha=8))
    torch.manual_seed(11)
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_B" in name:
                parameter.normal_(0.0, 0.2)
        taught = adapted.eval()(input_ids=torch.tensor([TOKENS])).logits[0].numpy()
    written = tmp_path / "adapter.gguf"
    adapter_file.write_gguf_adapter(
        written, export.lora_matrices(adapted, ADAPTER), 8.0, gguf_info.read(path), "base"
    )
    with (
        closing(LlamaModel.load(path)) as model,
        closing(model.context(ContextSettings(n_ctx=64, n_batch=32))) as context,
    ):
        ours = np.array(context.score(TOKENS))
        with closing(model.load_adapter(written)) as adapter:
            context.set_adapter(adapter)
            theirs = np.array(context.score(TOKENS))
            context.set_adapter(None)
    return (
        float(np.abs(ours - plain).mean()),
        float(np.abs(theirs - taught).mean()),
        float(np.abs(taught - plain).mean()),
    )
