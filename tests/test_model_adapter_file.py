"""Adapters as GGUF files: the form llama.cpp loads, the order of the rows, and what is refused."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.model import adapter_file, gguf_info
from store.errors import AdapterFileError
from tests import tiny_gguf


@pytest.fixture
def base(tmp_path):
    tiny_gguf.write_base(tmp_path / "base.gguf")
    return gguf_info.read(tmp_path / "base.gguf")


@pytest.fixture
def written(tmp_path, base):
    path = tmp_path / "adapter.gguf"
    adapter_file.write_gguf_adapter(path, tiny_gguf.lora(), 4.0, base, "hash-of-the-base")
    return path


def raw(path):
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def test_keys_names_and_shapes(written):
    fields = {key: field.contents() for key, field in gguf.GGUFReader(written).fields.items()}
    assert fields["general.type"] == "adapter"
    assert fields["general.architecture"] == "llama"
    assert fields["adapter.type"] == "lora"
    assert fields["adapter.lora.alpha"] == 4.0
    tensors = raw(written)
    assert tensors["blk.0.ffn_gate.weight.lora_a"].shape == (2, tiny_gguf.WIDTH)
    assert tensors["blk.0.ffn_gate.weight.lora_b"].shape == (tiny_gguf.INNER, 2)
    assert len(tensors) == 12


def test_verify_tells_what_it_holds(written, base):
    info = adapter_file.verify(written, base, "hash-of-the-base")
    assert (info.rank, info.alpha, info.modules, info.scale) == (2, 4.0, 6, 2.0)


def test_rows_of_query_and_key_are_interleaved_and_no_others(written):
    given_, held = tiny_gguf.lora(), raw(written)
    b = given_["model.layers.0.self_attn.q_proj"][1]
    half = tiny_gguf.HEAD_SIZE // 2
    for head in range(tiny_gguf.HEADS):
        first = head * tiny_gguf.HEAD_SIZE
        rows = [first + i + side * half for i in range(half) for side in (0, 1)]
        block = held["blk.0.attn_q.weight.lora_b"][first : first + tiny_gguf.HEAD_SIZE]
        np.testing.assert_array_equal(block, b[rows])
    k = given_["model.layers.0.self_attn.k_proj"][1]
    np.testing.assert_array_equal(
        held["blk.0.attn_k.weight.lora_b"], adapter_file.interleave_halves(k, tiny_gguf.KV_HEADS)
    )
    np.testing.assert_array_equal(
        held["blk.0.attn_v.weight.lora_b"], given_["model.layers.0.self_attn.v_proj"][1]
    )
    np.testing.assert_array_equal(
        held["blk.0.attn_q.weight.lora_a"], given_["model.layers.0.self_attn.q_proj"][0]
    )


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_qwen_keeps_the_order(tmp_path, architecture):
    tiny_gguf.write_base(tmp_path / "qwen.gguf", architecture=architecture)
    base = gguf_info.read(tmp_path / "qwen.gguf")
    adapter_file.write_gguf_adapter(tmp_path / "a.gguf", tiny_gguf.lora(), 4.0, base, "")
    np.testing.assert_array_equal(
        raw(tmp_path / "a.gguf")["blk.0.attn_q.weight.lora_b"],
        tiny_gguf.lora()["model.layers.0.self_attn.q_proj"][1],
    )


def test_the_prefix_that_peft_adds_is_understood(tmp_path, base, written):
    prefixed = {f"base_model.model.{name}": pair for name, pair in tiny_gguf.lora().items()}
    adapter_file.write_gguf_adapter(tmp_path / "b.gguf", prefixed, 4.0, base, "hash-of-the-base")
    assert (tmp_path / "b.gguf").read_bytes() == written.read_bytes()


def test_an_unknown_architecture_module_or_shape_is_not_written(tmp_path, base):
    path = tmp_path / "no.gguf"
    pair = tiny_gguf.lora()["model.layers.0.self_attn.q_proj"]
    with pytest.raises(AdapterFileError, match="has no module"):
        adapter_file.write_gguf_adapter(path, {"model.layers.7.self_attn.q_proj": pair}, 4.0, base, "")
    with pytest.raises(AdapterFileError, match="does not fit"):
        adapter_file.write_gguf_adapter(path, {"model.layers.0.self_attn.k_proj": pair}, 4.0, base, "")
    with pytest.raises(AdapterFileError, match="nothing to write"):
        adapter_file.write_gguf_adapter(path, {}, 4.0, base, "")
    tiny_gguf.write_base(tmp_path / "other.gguf", architecture="gemma")
    with pytest.raises(AdapterFileError, match="'gemma' cannot be written"):
        adapter_file.write_gguf_adapter(
            path, tiny_gguf.lora(), 4.0, gguf_info.read(tmp_path / "other.gguf"), ""
        )
    assert not path.exists()


def refused(path, base, says, base_hash=None):
    with pytest.raises(AdapterFileError, match=says) as caught:
        adapter_file.verify(path, base, base_hash)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_adapter_are_refused(tmp_path, base):
    refused(tmp_path / "nowhere", base, "there is no file")
    (tmp_path / "text").write_text("not an adapter at all")
    refused(tmp_path / "text", base, "not a GGUF file")
    refused(base.path, base, "is not a LoRA adapter")


def test_an_adapter_of_another_model_is_refused(tmp_path, base, written):
    tiny_gguf.write_base(tmp_path / "qwen.gguf", architecture="qwen2")
    refused(
        written, gguf_info.read(tmp_path / "qwen.gguf"), "is an adapter for llama, and this model is qwen2"
    )
    refused(written, base, "trained on other weights", base_hash="another")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a, b: (a * np.float32("nan"), b), "not finite"),
        (lambda a, b: (a, b * np.float32("inf")), "not finite"),
        (lambda a, b: (a, b * 0), "changes nothing"),
        (lambda a, b: (a * 0, b), "changes nothing"),
    ],
)
def test_useless_numbers_are_refused(tmp_path, base, change, says):
    pairs = {name: change(*pair) for name, pair in tiny_gguf.lora().items()}
    adapter_file.write_gguf_adapter(tmp_path / "a.gguf", pairs, 4.0, base, "")
    refused(tmp_path / "a.gguf", base, says)


def test_an_alpha_of_zero_and_mixed_ranks_are_refused(tmp_path, base):
    adapter_file.write_gguf_adapter(tmp_path / "a.gguf", tiny_gguf.lora(), 0.0, base, "")
    refused(tmp_path / "a.gguf", base, "its alpha is 0.0")
    mixed = tiny_gguf.lora()
    mixed["model.layers.0.mlp.gate_proj"] = tiny_gguf.lora(rank=3)["model.layers.0.mlp.gate_proj"]
    adapter_file.write_gguf_adapter(tmp_path / "b.gguf", mixed, 4.0, base, "")
    refused(tmp_path / "b.gguf", base, r"its ranks are \[2, 3\]")


def test_shapes_of_another_size_and_half_a_pair_are_refused(tmp_path, base):
    def write(name, tensors):
        writer = gguf.GGUFWriter(tmp_path / name, "llama")
        writer.add_type("adapter")
        writer.add_string("adapter.type", "lora")
        writer.add_float32("adapter.lora.alpha", 4.0)
        for key, shape in tensors.items():
            writer.add_tensor(key, np.ones(shape, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return tmp_path / name

    q = "blk.0.attn_q.weight"
    refused(write("one", {f"{q}.lora_a": (2, 32)}), base, "only one of its two")
    refused(write("big", {f"{q}.lora_a": (2, 64), f"{q}.lora_b": (32, 2)}), base, "does not fit")
    refused(write("odd", {f"{q}.lora_a": (2, 32), f"{q}.lora_b": (32, 3)}), base, "does not fit")
    refused(write("far", {"blk.9.x.lora_a": (2, 32), "blk.9.x.lora_b": (32, 2)}), base, "does not have")
    refused(write("odder", {"output_norm.weight": (32,)}), base, "which no LoRA adapter has")
    refused(write("empty", {}), base, "its ranks are")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.floats(0.0, 0.999))
def test_an_adapter_cut_anywhere_is_refused(tmp_path, written, base, share):
    content = written.read_bytes()
    (tmp_path / "cut.gguf").write_bytes(content[: int(len(content) * share)])
    refused(tmp_path / "cut.gguf", base, "cut short|not a GGUF")
