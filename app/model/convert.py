"""Makes the F16 form in which a small model is served, out of its own de-quantised weights.

llama.cpp computes with 8-bit activations where weights are quantised, so what a LoRA was trained on in
float32 is not what is served: for SmolLM2 in Q4_1 the logits differ by 0.2 on average and 3 % of the most
likely tokens change; in F16 by 0.009 and 0.3 %. It costs 165 MiB and a fifth of the decoding speed, and
reads prompts 1.9 times faster. Vectors (norms, biases) stay float32. Everything else of the file, tokenizer
and chat template included, is copied.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from app.model import gguf_info
from app.model.catalogue import ModelFile
from store.errors import HomeError, ModelFileError
from store.files import whole_file

# Written by the writer itself, or no longer true of the result.
_NOT_COPIED = (
    "general.architecture",
    "general.file_type",
    "general.quantization_version",
    "general.alignment",
)
_MOSTLY_F16 = 1


def served_form(model: ModelFile, progress: Callable[[float], None] | None = None) -> Path:
    """The file to serve: `model.served_path`, made now if it is not there yet.

    Takes 4 s for SmolLM2, once per machine. `progress` is told the share that is done, 0 to 1. Raises DiskFull,
    HomeError, ModelFileError; leaves no partial file.
    """
    if model.served_as_it_is or model.served_path.exists():
        return model.served_path
    with _one_at_a_time(model.derived):
        if not model.served_path.exists():
            with whole_file(model.served_path) as temporary:
                write_f16(model.path, temporary, progress or _ignore)
    return model.served_path


def write_f16(source: Path, target: Path, progress: Callable[[float], None]) -> None:
    """Write the F16 form of the model `source` to `target`. Raises ModelFileError if it cannot be read."""
    gguf_info.read(source)
    try:
        reader = gguf.GGUFReader(source)
    except (ValueError, KeyError, IndexError) as error:
        raise ModelFileError(f"the model file {source} is damaged ({error}): fetch it again") from error
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents())
    try:
        copy_metadata(reader, writer, _MOSTLY_F16)
        for tensor in reader.tensors:
            shape = tuple(int(size) for size in reversed(tensor.shape))
            dtype = _stored_dtype(shape)
            size = int(np.prod(shape)) * dtype.itemsize
            writer.add_tensor_info(tensor.name, shape, dtype, size)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        # One tensor at a time: the whole model in float32 would take four bytes for each of its weights.
        for count, tensor in enumerate(reader.tensors, start=1):
            writer.write_tensor_data(_unquantised(tensor))
            progress(count / len(reader.tensors))
        writer.flush()
    finally:
        writer.close()


def copy_metadata(reader: gguf.GGUFReader, writer: gguf.GGUFWriter, file_type: int) -> None:
    """Write what a model's file says of itself, tokenizer included, with another type of weights."""
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key in _NOT_COPIED:
            continue
        if field.types[0] is not gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, field.contents(), field.types[0])
        elif len(field.types) > 1:
            writer.add_key_value(key, field.contents(), gguf.GGUFValueType.ARRAY, sub_type=field.types[-1])
    writer.add_file_type(file_type)


def _stored_dtype(shape: tuple[int, ...]) -> np.dtype[np.floating]:
    return np.dtype(np.float16) if len(shape) > 1 else np.dtype(np.float32)


def _unquantised(tensor: gguf.ReaderTensor) -> npt.NDArray[np.floating]:
    weights: npt.NDArray[np.float32] = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return weights.astype(_stored_dtype(weights.shape))


@contextmanager
def _one_at_a_time(directory: Path) -> Iterator[None]:
    """Host and learner may want the same form at the same moment: the second waits and finds it made."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("w")
    except OSError as error:
        raise HomeError(
            f"cannot use the cache directory {directory} ({error.strerror or error}): "
            "check its owner, or set MYNAH_CACHE"
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _ignore(_share: float) -> None:
    """Nobody watches the progress."""
