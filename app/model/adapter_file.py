"""Writes a trained LoRA as the GGUF file that llama.cpp loads, and checks one before it is trusted.

No outside converter: the file is a dozen metadata keys and pairs of matrices. One detail decides whether it
works at all: llama files store the rows of a query or key head in interleaved pairs, where the training side
keeps two halves (the two ways to lay out rotary embeddings), so `lora_b` of q and k needs the same
permutation as the base's weights. Qwen2 and Qwen3 files keep the training side's order.

llama.cpp itself checks little: wrong numbers load and speak nonsense, a NaN reaches the sampler. `verify` is
the check.

Keys and names: src/llama-adapter.cpp of ggml-org/llama.cpp; its convert_hf_to_gguf.py gives the permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from app.model import gguf_info
from app.model.gguf_info import GgufInfo, TensorInfo
from store.errors import AdapterFileError, ModelFileError
from store.files import whole_file

Matrix = npt.NDArray[np.float32]

BASE_HASH_KEY = "mynah.base_hash"
_PEFT_PREFIX = "base_model.model."
_READABLE = {int(gguf.GGMLQuantizationType.F32): "<f4", int(gguf.GGMLQuantizationType.F16): "<f2"}


class RowOrder(Enum):
    """How an architecture's GGUF files order the rows of query and key heads."""

    HALVES = "halves"
    INTERLEAVED = "interleaved"


ROW_ORDER = {
    # Mistral's files call themselves llama.
    "llama": RowOrder.INTERLEAVED,
    "qwen2": RowOrder.HALVES,
    "qwen3": RowOrder.HALVES,
    "gemma3": RowOrder.HALVES,
}


@dataclass(frozen=True)
class AdapterInfo:
    """What a checked adapter file holds. `scale` is alpha / rank, the factor llama.cpp applies at strength 1."""

    rank: int
    alpha: float
    modules: int
    parameters: int
    base_hash: str

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


def write_gguf_adapter(
    path: Path, tensors: Mapping[str, tuple[Matrix, Matrix]], alpha: float, base: GgufInfo, base_hash: str
) -> None:
    """Write the adapter whole or not at all.

    `tensors` maps a module's name on the training side (`model.layers.0.self_attn.q_proj`, with or without
    PEFT's prefix) to A (rank × in) and B (out × rank). Raises AdapterFileError: unknown architecture or
    module, or a shape that does not fit.
    """
    order = _row_order(base.architecture)
    names = _Names(base)
    named = {names.weight(module): pair for module, pair in tensors.items()}
    if not named:
        raise AdapterFileError("there is nothing to write: the adapter has no matrices")
    with whole_file(path) as temporary:
        writer = gguf.GGUFWriter(temporary, base.architecture)
        try:
            writer.add_type("adapter")
            writer.add_string("adapter.type", "lora")
            writer.add_float32("adapter.lora.alpha", float(alpha))
            writer.add_string(BASE_HASH_KEY, base_hash)
            for name, (a, b) in sorted(named.items()):
                _check_shapes(name, a.shape, b.shape, base)
                writer.add_tensor(f"{name}.lora_a", _contiguous(a))
                writer.add_tensor(f"{name}.lora_b", _contiguous(_served_rows(name, b, base, order)))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
            writer.flush()
        finally:
            writer.close()


class _Names:
    """Module names of the training side → tensor names of the base's file; the package's map takes 15 ms to build."""

    def __init__(self, base: GgufInfo) -> None:
        kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
        blocks = base.number(f"{base.architecture}.block_count")
        self._map = gguf.get_tensor_name_map(kinds[base.architecture], blocks)
        self._base = base

    def weight(self, module: str) -> str:
        """`model.layers.0.self_attn.q_proj` → `blk.0.attn_q.weight`. Raises AdapterFileError if unknown."""
        name = self._map.get_name(module.removeprefix(_PEFT_PREFIX))
        if name is None or f"{name}.weight" not in self._base.tensors:
            raise AdapterFileError(f"the base model has no module {module!r}")
        return f"{name}.weight"


def interleave_halves(rows: Matrix, heads: int) -> Matrix:
    """Reorder rows (heads · d × n) from halves to interleaved pairs.

    Of the d rows of a head, row i goes to 2i and row d/2 + i to 2i + 1.
    """
    split = rows.reshape(heads, 2, rows.shape[0] // heads // 2, rows.shape[1])
    return split.swapaxes(1, 2).reshape(rows.shape)


def verify(path: Path, base: GgufInfo, base_hash: str | None = None) -> AdapterInfo:
    """Check that `path` is a whole, finite adapter that fits this base and changes something.

    Raises AdapterFileError with one line. The base's hash is compared where both sides name it.
    """
    info = _read_adapter(path)
    named_hash = info.text(BASE_HASH_KEY)
    if info.architecture != base.architecture:
        raise AdapterFileError(
            f"{path} is an adapter for {info.architecture or 'another kind of model'}, "
            f"and this model is {base.architecture}"
        )
    if base_hash and named_hash and named_hash != base_hash:
        raise AdapterFileError(f"{path} was trained on other weights than those of this model")
    alpha = info.metadata.get("adapter.lora.alpha")
    if not isinstance(alpha, float) or not np.isfinite(alpha) or alpha <= 0:
        raise AdapterFileError(f"{path} is damaged: its alpha is {alpha!r}")
    ranks = set()
    effect = False
    for name, (a, b) in _pairs(path, info).items():
        _check_shapes(name, a.shape, b.shape, base)
        down, up = _values(path, a), _values(path, b)
        if not (np.isfinite(down).all() and np.isfinite(up).all()):
            raise AdapterFileError(f"{path} is damaged: {name} holds numbers that are not finite")
        effect = effect or bool(down.any() and up.any())
        ranks.add(a.shape[0])
    if len(ranks) != 1:
        raise AdapterFileError(f"{path} is not an adapter that can be used: its ranks are {sorted(ranks)}")
    if not effect:
        raise AdapterFileError(f"{path} changes nothing: all of its matrices are zero")
    return AdapterInfo(ranks.pop(), alpha, len(info.tensors) // 2, info.parameters, named_hash)


def _read_adapter(path: Path) -> GgufInfo:
    try:
        info = gguf_info.read(path)
    except ModelFileError as error:
        raise AdapterFileError(f"no usable adapter: {error}") from error
    if info.text("general.type") != "adapter" or info.text("adapter.type") != "lora":
        raise AdapterFileError(f"{path} is not a LoRA adapter")
    return info


def _pairs(path: Path, info: GgufInfo) -> dict[str, tuple[TensorInfo, TensorInfo]]:
    halves: dict[str, dict[str, TensorInfo]] = {}
    for full_name, tensor in info.tensors.items():
        name, _, half = full_name.rpartition(".")
        if half not in ("lora_a", "lora_b") or tensor.kind not in _READABLE or len(tensor.shape) != 2:
            raise AdapterFileError(f"{path} holds {full_name!r}, which no LoRA adapter has")
        halves.setdefault(name, {})[half] = tensor
    for name, pair in halves.items():
        if len(pair) != 2:
            raise AdapterFileError(f"{path} is damaged: {name} has only one of its two matrices")
    return {name: (pair["lora_a"], pair["lora_b"]) for name, pair in halves.items()}


def _check_shapes(name: str, a: tuple[int, ...], b: tuple[int, ...], base: GgufInfo) -> None:
    target = base.tensors.get(name)
    if target is None:
        raise AdapterFileError(f"the adapter changes {name!r}, which this model does not have")
    if (b[0], a[1]) != target.shape or a[0] != b[1] or a[0] == 0:
        raise AdapterFileError(
            f"the adapter does not fit this model: {name} is {target.shape}, it has {b} × {a}"
        )


def _values(path: Path, tensor: TensorInfo) -> npt.NDArray[np.floating]:
    return np.memmap(path, dtype=_READABLE[tensor.kind], mode="r", offset=tensor.offset, shape=tensor.shape)


def _row_order(architecture: str) -> RowOrder:
    order = ROW_ORDER.get(architecture)
    if order is None:
        raise AdapterFileError(
            f"adapters for the architecture {architecture!r} cannot be written; known: {', '.join(sorted(ROW_ORDER))}"
        )
    return order


def _served_rows(name: str, b: Matrix, base: GgufInfo, order: RowOrder) -> Matrix:
    heads = {"attn_q.weight": base.heads, "attn_k.weight": base.kv_heads}.get(name.split(".", 2)[-1])
    if heads is None or order is RowOrder.HALVES:
        return b
    return interleave_halves(b, heads)


def _contiguous(matrix: Matrix) -> Matrix:
    return np.ascontiguousarray(matrix, dtype=np.float32)
