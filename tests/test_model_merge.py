"""A merged file holds base and adapter in one, and llama.cpp says the same with it as with the two apart."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from app.model import adapter_file, catalogue, convert, gguf_info, merge
from app.model.llama import ContextSettings, LlamaModel, SamplerSettings, generate
from app.model.renderer import Renderer, Turn
from store.errors import AdapterFileError
from store.home import Home
from store.types import Role
from tests import tiny_gguf


def ignore(_share):
    pass


def merged(tmp_path, quantised):
    """A tiny base, an adapter of alpha 4 and rank 2, and the two in one file."""
    held = tiny_gguf.write_base(tmp_path / "base.gguf", quantised=quantised)
    base = gguf_info.read(tmp_path / "base.gguf")
    adapter_file.write_gguf_adapter(tmp_path / "adapter.gguf", tiny_gguf.lora(), 4.0, base, "hash")
    target = tmp_path / "merged.gguf"
    merge.write_merged(
        tmp_path / "base.gguf",
        tmp_path / "adapter.gguf",
        target,
        name="v1 a",
        base_hash="hash",
        progress=ignore,
    )
    return held, gguf.GGUFReader(target)


@pytest.mark.parametrize(
    ("quantised", "kept"),
    [
        (gguf.GGMLQuantizationType.F16, gguf.GGMLQuantizationType.F16),
        (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F32),
        (gguf.GGMLQuantizationType.Q4_1, gguf.GGMLQuantizationType.F16),
    ],
)
def test_weights_are_those_of_base_and_adapter_together(tmp_path, quantised, kept):
    held, reader = merged(tmp_path, quantised)
    names = {
        "self_attn.q_proj": ("attn_q", tiny_gguf.HEADS),
        "self_attn.k_proj": ("attn_k", tiny_gguf.KV_HEADS),
        "self_attn.v_proj": ("attn_v", None),
        "self_attn.o_proj": ("attn_output", None),
        "mlp.gate_proj": ("ffn_gate", None),
        "mlp.down_proj": ("ffn_down", None),
    }
    found = {tensor.name: tensor for tensor in reader.tensors}
    assert list(found) == list(held)
    for module, (name, heads) in names.items():
        a, b = tiny_gguf.lora()[f"model.layers.0.{module}"]
        rows = b if heads is None else adapter_file.interleave_halves(b, heads)
        tensor = found[f"blk.0.{name}.weight"]
        assert tensor.tensor_type == kept
        expected = held[tensor.name] + 2.0 * rows @ a
        np.testing.assert_allclose(tensor.data.astype(np.float32), expected, rtol=1e-3, atol=1e-4)


def test_what_the_adapter_leaves_alone_is_copied(tmp_path):
    _, reader = merged(tmp_path, gguf.GGMLQuantizationType.Q4_1)
    before = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "base.gguf").tensors}
    for tensor in reader.tensors:
        if tensor.name in ("token_embd.weight", "blk.0.attn_norm.weight"):
            assert tensor.tensor_type == before[tensor.name].tensor_type
            np.testing.assert_array_equal(tensor.data, before[tensor.name].data)
    info = gguf_info.read(tmp_path / "merged.gguf")
    assert info.metadata["mynah.adapter"] == "v1 a"
    assert info.metadata["tokenizer.chat_template"] == "{{ messages }}"
    assert reader.fields["tokenizer.ggml.tokens"].contents() == ["a", "b", "ü"]


def test_an_adapter_of_another_model_is_refused_and_nothing_is_written(tmp_path):
    merged(tmp_path, gguf.GGMLQuantizationType.F16)
    with pytest.raises(AdapterFileError, match="other weights"):
        merge.write_merged(
            tmp_path / "base.gguf",
            tmp_path / "adapter.gguf",
            tmp_path / "new.gguf",
            name="x",
            base_hash="another",
            progress=ignore,
        )
    assert not (tmp_path / "new.gguf").exists()


QUESTIONS = ("How do tides work?", "Why does bread rise?")
SETTINGS = ContextSettings(n_ctx=256, n_seq=1, decode_threads=1, batch_threads=2)


@pytest.mark.model
def test_greedy_replies_are_those_of_the_adapter(tmp_path):
    model = catalogue.resolve(Home.default(), None)
    served = convert.served_form(model)
    base = gguf_info.read(served)
    adapter_file.write_gguf_adapter(tmp_path / "a.gguf", random_lora(base), 8.0, base, model.base_hash)
    merge.write_merged(
        served,
        tmp_path / "a.gguf",
        tmp_path / "merged.gguf",
        name="x",
        base_hash=model.base_hash,
        progress=ignore,
    )
    with LlamaModel.load(served) as loaded:
        plain = replies(loaded, None)
        adapter = loaded.load_adapter(tmp_path / "a.gguf")
        apart, logits = replies(loaded, adapter), scores(loaded, adapter)
    with LlamaModel.load(tmp_path / "merged.gguf") as loaded:
        together, merged_logits = replies(loaded, None), scores(loaded, None)
    assert all(one != other for one, other in zip(apart, plain, strict=True))
    assert together == apart
    assert np.abs(merged_logits - logits).mean() < 0.02


def random_lora(base):
    """A change of the attention in every layer that is large enough to be heard."""
    random = np.random.default_rng(5)
    tensors = {}
    for name, tensor in base.tensors.items():
        kind = {"attn_q": "q_proj", "attn_v": "v_proj"}.get(name.split(".")[2] if name.count(".") > 2 else "")
        if kind is not None:
            out, width = tensor.shape
            a = random.normal(0.0, 0.02, (4, width)).astype(np.float32)
            b = random.normal(0.0, 0.1, (out, 4)).astype(np.float32)
            tensors[f"model.layers.{name.split('.')[1]}.self_attn.{kind}"] = (a, b)
    return tensors


def prompts(loaded):
    assert loaded.chat_template is not None
    renderer = Renderer(loaded.vocab, loaded.chat_template)
    return [
        renderer.prompt([Turn(Role.SYSTEM, "You are Mynah."), Turn(Role.USER, question)])
        for question in QUESTIONS
    ]


def replies(loaded, adapter):
    made = []
    context = loaded.context(SETTINGS)
    context.set_adapter(adapter)
    for prompt in prompts(loaded):
        context.clear()
        greedy = SamplerSettings(temperature=0.0)
        stops = loaded.vocab.end_ids
        made.append(
            [token.id for token in generate(context, prompt, greedy, 16, stops, between=lambda: None)]
        )
    context.close()
    return made


def scores(loaded, adapter):
    context = loaded.context(SETTINGS)
    context.set_adapter(adapter)
    found = context.score(prompts(loaded)[0]).copy()
    context.close()
    return found
