"""Reads the header of a GGUF file: metadata, and the name, shape, type and place of every tensor.

Own code beside the `gguf` package, because every start of the host and every check of an adapter reads a
header, and `gguf.GGUFReader` turns each of the 49 152 tokens and 48 900 merges of SmolLM2's tokenizer into
numpy arrays first: 3.2 s of processor time against 0.03 s here. Arrays are skipped, not read. It also is the
one place that tells apart the ways in which a file can be wrong (missing, not GGUF, cut short), each with
one clear line.

The layout (little endian) is that of GGUF versions 2 and 3, as docs/gguf.md of ggml-org/ggml gives it.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, cached_property
from pathlib import Path

from store.errors import ModelFileError

MAGIC = b"GGUF"
SUPPORTED_VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

Scalar = str | int | float | bool


class ValueType(IntEnum):
    """How a value of the metadata is stored."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


_SCALARS: dict[ValueType, struct.Struct] = {
    ValueType.UINT8: struct.Struct("<B"),
    ValueType.INT8: struct.Struct("<b"),
    ValueType.UINT16: struct.Struct("<H"),
    ValueType.INT16: struct.Struct("<h"),
    ValueType.UINT32: struct.Struct("<I"),
    ValueType.INT32: struct.Struct("<i"),
    ValueType.FLOAT32: struct.Struct("<f"),
    ValueType.UINT64: struct.Struct("<Q"),
    ValueType.INT64: struct.Struct("<q"),
    ValueType.FLOAT64: struct.Struct("<d"),
    ValueType.BOOL: struct.Struct("<?"),
}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


@dataclass(frozen=True)
class TensorInfo:
    """One tensor: `shape` in numpy order (rows first), `kind` a GGML type, `offset` and `nbytes` in bytes."""

    shape: tuple[int, ...]
    kind: int
    offset: int
    nbytes: int


@dataclass(frozen=True)
class GgufInfo:
    """The header of one GGUF file. `metadata` holds scalars and strings; arrays are left out."""

    path: Path
    metadata: dict[str, Scalar]
    tensors: dict[str, TensorInfo]

    def text(self, key: str, default: str = "") -> str:
        """A string value of the metadata."""
        value = self.metadata.get(key, default)
        return value if isinstance(value, str) else default

    def number(self, key: str, default: int = 0) -> int:
        """An integer value of the metadata."""
        value = self.metadata.get(key, default)
        return value if isinstance(value, int) else default

    @property
    def architecture(self) -> str:
        """The kind of network: `llama`, `qwen2` and others."""
        return self.text("general.architecture")

    @property
    def name(self) -> str:
        """The model's own name, or the file's stem."""
        return self.text("general.name") or self.path.stem

    @property
    def heads(self) -> int:
        """Number of query heads."""
        return self.number(f"{self.architecture}.attention.head_count")

    @property
    def kv_heads(self) -> int:
        """Number of key and value heads (fewer than `heads` with grouped-query attention)."""
        return self.number(f"{self.architecture}.attention.head_count_kv", self.heads)

    @cached_property
    def parameters(self) -> int:
        """Number of weights, counted from the shapes."""
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())


def read(path: Path) -> GgufInfo:
    """Read the header of `path`. Raises ModelFileError: missing, unreadable, not GGUF, cut short or damaged."""
    try:
        with path.open("rb") as file:
            if file.read(len(MAGIC)) != MAGIC:
                raise ModelFileError(f"{path} is not a GGUF file: give the path of a .gguf file")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _parse(path, data)
    except FileNotFoundError:
        raise ModelFileError(f"there is no file at {path}: give the path of a .gguf file") from None
    except IsADirectoryError:
        raise ModelFileError(f"{path} is a directory: give the path of a .gguf file") from None
    except OSError as error:
        raise ModelFileError(f"cannot read {path} ({error.strerror or error}): check its owner") from None
    except (struct.error, IndexError):
        raise ModelFileError(_cut_short(path)) from None
    except (UnicodeDecodeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelFileError(f"{path} is damaged ({error}): fetch it again") from None


def _cut_short(path: Path) -> str:
    return f"{path} is cut short, perhaps by a download that did not finish: fetch it again"


def _parse(path: Path, data: mmap.mmap) -> GgufInfo:
    cursor = _Cursor(data)
    cursor.skip(len(MAGIC))
    version = cursor.u32()
    if version not in SUPPORTED_VERSIONS:
        raise ModelFileError(f"{path} is GGUF version {version}, and 2 and 3 can be read: convert it again")
    n_tensors, n_values = cursor.u64(), cursor.u64()
    metadata: dict[str, Scalar] = {}
    for _ in range(n_values):
        key = cursor.string()
        value = cursor.value(ValueType(cursor.u32()))
        if value is not None:
            metadata[key] = value
    tensors = [_tensor(cursor) for _ in range(n_tensors)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment <= 0:
        raise ValueError("alignment is not a positive number")
    start = -(-cursor.position // alignment) * alignment
    placed = {
        name: TensorInfo(tensor.shape, tensor.kind, start + tensor.offset, tensor.nbytes)
        for name, tensor in tensors
    }
    if any(tensor.offset + tensor.nbytes > len(data) for tensor in placed.values()):
        raise ModelFileError(_cut_short(path))
    return GgufInfo(path, metadata, placed)


def _tensor(cursor: _Cursor) -> tuple[str, TensorInfo]:
    name = cursor.string()
    n_dimensions = cursor.u32()
    if n_dimensions > 8:
        raise ValueError(f"tensor {name} has {n_dimensions} dimensions")
    shape = tuple(reversed([cursor.u64() for _ in range(n_dimensions)]))
    kind = cursor.u32()
    offset = cursor.u64()
    if kind not in _block_sizes():
        raise ValueError(f"tensor {name} has the unknown type {kind}")
    block, block_bytes = _block_sizes()[kind]
    return name, TensorInfo(shape, kind, offset, math.prod(shape) // block * block_bytes)


@cache
def _block_sizes() -> dict[int, tuple[int, int]]:
    """Weights per block and bytes per block of each GGML type. Imported late: the package takes 0.27 s."""
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): sizes for kind, sizes in GGML_QUANT_SIZES.items()}


class _Cursor:
    """Walks through the header; running over the end raises struct.error or IndexError."""

    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self.position = 0

    def skip(self, count: int) -> None:
        self.position += count
        if self.position > len(self._data):
            raise IndexError(self.position)

    def u32(self) -> int:
        value: int = _U32.unpack_from(self._data, self.position)[0]
        self.position += 4
        return value

    def u64(self) -> int:
        value: int = _U64.unpack_from(self._data, self.position)[0]
        self.position += 8
        return value

    def string(self) -> str:
        length = self.u64()
        start = self.position
        self.skip(length)
        return self._data[start : self.position].decode("utf-8")

    def value(self, kind: ValueType) -> Scalar | None:
        """The value under the cursor, or None for an array, which is stepped over."""
        if kind is ValueType.STRING:
            return self.string()
        if kind is ValueType.ARRAY:
            self._skip_array()
            return None
        packed = _SCALARS[kind]
        value: Scalar = packed.unpack_from(self._data, self.position)[0]
        self.position += packed.size
        return value

    def _skip_array(self) -> None:
        kind, count = ValueType(self.u32()), self.u64()
        if kind is ValueType.STRING:
            self._skip_strings(count)
        elif kind is ValueType.ARRAY:
            for _ in range(count):
                self._skip_array()
        else:
            self.skip(count * _SCALARS[kind].size)

    def _skip_strings(self, count: int) -> None:
        # The hot loop of this module (98 000 rounds for SmolLM2), so the length is read without a method call.
        unpack, data, position, end = _U64.unpack_from, self._data, self.position, len(self._data)
        for _ in range(count):
            position += 8 + unpack(data, position)[0]
            if position > end:
                raise IndexError(position)
        self.position = position
