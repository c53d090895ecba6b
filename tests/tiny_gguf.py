"""Small GGUF files for tests that need a file's form and not a model's wits."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

HEADS, KV_HEADS, HEAD_SIZE, WIDTH, INNER, WORDS = 4, 2, 8, 32, 64, 96


def write_base(
    path: Path,
    architecture: str = "llama",
    quantised: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.Q4_1,
    extra: dict[str, str] | None = None,
) -> dict[str, npt.NDArray[np.float32]]:
    """A one-block model with random weights. Returns each weight as the file holds it (de-quantised)."""
    random = np.random.default_rng(1)
    shapes = {
        "token_embd.weight": (WORDS, WIDTH),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (HEADS * HEAD_SIZE, WIDTH),
        "blk.0.attn_k.weight": (KV_HEADS * HEAD_SIZE, WIDTH),
        "blk.0.attn_v.weight": (KV_HEADS * HEAD_SIZE, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, HEADS * HEAD_SIZE),
        "blk.0.ffn_gate.weight": (INNER, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, INNER),
    }
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_type("model")
    writer.add_name("Tiny")
    writer.add_block_count(1)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_file_type(3)
    writer.add_token_list(["a", "b", "ü"])
    writer.add_token_scores([0.0, 1.0, 2.0])
    writer.add_chat_template("{{ messages }}")
    for key, value in (extra or {}).items():
        writer.add_string(key, value)
    held = {}
    for name, shape in shapes.items():
        values = random.normal(0.0, 0.1, shape).astype(np.float32)
        if len(shape) == 1:
            writer.add_tensor(name, values)
            held[name] = values
        else:
            packed = gguf.quants.quantize(values, quantised)
            writer.add_tensor(name, packed, raw_dtype=quantised)
            held[name] = gguf.quants.dequantize(packed, quantised)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


def lora(
    rank: int = 2, scale: float = 0.1, seed: int = 2
) -> dict[str, tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]]:
    """A and B for every linear module of the tiny base that both sides know."""
    random = np.random.default_rng(seed)
    sizes = {
        "self_attn.q_proj": (HEADS * HEAD_SIZE, WIDTH),
        "self_attn.k_proj": (KV_HEADS * HEAD_SIZE, WIDTH),
        "self_attn.v_proj": (KV_HEADS * HEAD_SIZE, WIDTH),
        "self_attn.o_proj": (WIDTH, HEADS * HEAD_SIZE),
        "mlp.gate_proj": (INNER, WIDTH),
        "mlp.down_proj": (WIDTH, INNER),
    }

    def matrix(*shape: int) -> npt.NDArray[np.float32]:
        return random.normal(0.0, scale, shape).astype(np.float32)

    return {
        f"model.layers.0.{name}": (matrix(rank, size[1]), matrix(size[0], rank))
        for name, size in sizes.items()
    }
