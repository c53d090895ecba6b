"""Writes a model with an adapter worked into its weights: one GGUF file that any llama.cpp program runs.

Each weight matrix becomes W + strength · (alpha / rank) · B · A, which is what llama.cpp adds while it computes with
the two apart. The adapter's file holds B with its rows in the order of the served file already, so nothing is
permuted here. It is made from the file that is served. Matrices that the adapter changes are written as F16 where they
were quantised, since rounding them back would take away most of what was learned; the others are copied as they are.

An export only: merged files are never trained further, and never served by Mynah itself (merging one adapter after
another loses the earlier ones).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from app.model import adapter_file, gguf_info
from app.model.adapter_file import BASE_HASH_KEY
from app.model.convert import copy_metadata
from store.errors import ModelFileError
from store.files import whole_file

Matrix = npt.NDArray[np.floating]

ADAPTER_KEY = "mynah.adapter"


def write_merged(
    base: Path, adapter: Path, target: Path, *, name: str, base_hash: str, progress: Callable[[float], None]
) -> None:
    """Write `target` whole or not at all. `name` says in the file which adapter is in it.

    `base_hash` is the identity of the model that the adapter was made for. Raises AdapterFileError (not an adapter,
    or of another model), ModelFileError, DiskFull, HomeError.
    """
    info = gguf_info.read(base)
    scale = adapter_file.verify(adapter, info, base_hash).scale
    try:
        model, changes = gguf.GGUFReader(base), gguf.GGUFReader(adapter)
    except (ValueError, KeyError, IndexError) as error:
        raise ModelFileError(f"the model file {base} is damaged ({error}): fetch it again") from error
    halves = {tensor.name: tensor for tensor in changes.tensors}
    with whole_file(target) as temporary:
        writer = gguf.GGUFWriter(temporary, info.architecture)
        try:
            copy_metadata(model, writer, info.number("general.file_type"))
            writer.add_string(BASE_HASH_KEY, base_hash)
            writer.add_string(ADAPTER_KEY, name)
            for tensor in model.tensors:
                _announce(writer, tensor, changed=f"{tensor.name}.lora_a" in halves)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            for count, tensor in enumerate(model.tensors, start=1):
                writer.write_tensor_data(_merged(tensor, halves, scale))
                progress(count / len(model.tensors))
            writer.flush()
        finally:
            writer.close()


def _announce(writer: gguf.GGUFWriter, tensor: gguf.ReaderTensor, *, changed: bool) -> None:
    if changed:
        shape = tuple(int(size) for size in reversed(tensor.shape))
        dtype = _merged_dtype(tensor)
        writer.add_tensor_info(tensor.name, shape, dtype, int(np.prod(shape)) * dtype.itemsize)
    else:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)


def _merged_dtype(tensor: gguf.ReaderTensor) -> np.dtype[np.floating]:
    full = tensor.tensor_type == gguf.GGMLQuantizationType.F32
    return np.dtype(np.float32) if full else np.dtype(np.float16)


def _merged(tensor: gguf.ReaderTensor, halves: dict[str, gguf.ReaderTensor], scale: float) -> Matrix:
    """A tensor as the merged file holds it: (out × in) plus scale · (out × rank)(rank × in), or as it was."""
    a, b = (halves.get(f"{tensor.name}.{half}") for half in ("lora_a", "lora_b"))
    if a is None or b is None:
        return np.asarray(tensor.data)
    weights: npt.NDArray[np.float32] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    change: npt.NDArray[np.float32] = b.data.astype(np.float32) @ a.data.astype(np.float32)
    merged: Matrix = (weights + np.float32(scale) * change).astype(_merged_dtype(tensor))
    return merged
