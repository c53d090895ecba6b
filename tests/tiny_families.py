"""A tiny random model of each family that is trained here, in both forms: torch's, and a GGUF file for llama.cpp.

Two layers, and every peculiarity of its family that an export could get wrong: the order of the query and key rows,
biases, norms of single heads, norms that are stored one lower, an output matrix that is the embedding's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import torch
import transformers

from app.model.adapter_file import interleave_halves

WORDS, WIDTH, INNER, LAYERS, HEADS, KV_HEADS, HEAD = 96, 64, 96, 2, 4, 2, 16
CONTEXT = 1024
EPSILON, THETA = 1e-5, 10_000.0


Entry = tuple[str, gguf.TokenType]
"""One entry of a vocabulary: its text, and what kind of token it is."""


@dataclass(frozen=True)
class Family:
    """One family: torch's classes, llama.cpp's name for it, and how its file differs from the tensors as they are."""

    name: str
    architecture: gguf.MODEL_ARCH
    interleaved: bool = False
    norms_lower_by: float = 0.0


FAMILIES = (
    Family("Llama", gguf.MODEL_ARCH.LLAMA, interleaved=True),
    Family("Mistral", gguf.MODEL_ARCH.LLAMA, interleaved=True),
    Family("Qwen2", gguf.MODEL_ARCH.QWEN2),
    Family("Qwen3", gguf.MODEL_ARCH.QWEN3),
    Family("Gemma3", gguf.MODEL_ARCH.GEMMA3, norms_lower_by=1.0),
)


def model(family: Family, words: int = WORDS, seed: int = 5) -> Any:
    """The torch model, random but the same every time."""
    torch.manual_seed(seed)
    values: dict[str, Any] = {
        "vocab_size": words,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": EPSILON,
        "initializer_range": 0.2,
        "tie_word_embeddings": family.name == "Gemma3",
        "attn_implementation": "eager",
        "query_pre_attn_scalar": HEAD,
        "sliding_window": 64,
    }
    name = f"{family.name}TextConfig" if family.name == "Gemma3" else f"{family.name}Config"
    made = getattr(transformers, f"{family.name}ForCausalLM")(getattr(transformers, name)(**values))
    with torch.no_grad():
        for key, parameter in made.named_parameters():
            if "norm" in key or key.endswith("bias"):
                parameter.add_(torch.randn_like(parameter) * 0.1)
    return made.requires_grad_(False).eval()


def write(path: Path, family: Family, source: Any, entries: list[Entry] | None = None) -> None:
    """The same weights as a GGUF file in 32 bits; without ``entries``, its vocabulary has some token for each id."""
    entries = entries or [(f"w{number}", gguf.TokenType.NORMAL) for number in range(source.config.vocab_size)]
    architecture = gguf.MODEL_ARCH_NAMES[family.architecture]
    names = gguf.get_tensor_name_map(family.architecture, LAYERS)
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(family.name)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(THETA)
    writer.add_sliding_window(64)
    writer.add_vocab_size(len(entries))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([text for text, _ in entries])
    writer.add_token_types([int(kind) for _, kind in entries])
    writer.add_token_merges(["w 0"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for key, tensor in source.state_dict().items():
        if key == "lm_head.weight" and source.config.tie_word_embeddings:
            continue
        name = names.get_name(key, try_suffixes=(".weight", ".bias"))
        assert name is not None, key
        values = tensor.detach().float().numpy()
        if "norm" in key:
            values = values + family.norms_lower_by
        if family.interleaved and key.endswith(("q_proj.weight", "k_proj.weight")):
            values = interleave_halves(values, HEADS if "q_proj" in key else KV_HEADS)
        writer.add_tensor(name, values.astype("float32").copy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
