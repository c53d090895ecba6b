"""One window of computation on a model: a cache of keys and values, and the adapter it computes with.

Each sequence of a context has a stream of its own in the cache (`kv_unified` off): what another one holds can then not
change this one's arithmetic, which is what makes a reply at temperature 0 the same whatever was asked before.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

import llama_cpp
import numpy as np
import numpy.typing as npt

from app.model import memory
from app.model.llama.library import BrokenOff, LlamaError, LlamaMemoryError
from store.errors import AdapterFileError, ContextOverflow

if TYPE_CHECKING:
    from app.model.llama.model import LlamaAdapter, LlamaModel

# What llama_decode returns where ggml could not allocate (GGML_STATUS_ALLOC_FAILED).
_NO_MEMORY = -2

Logits = npt.NDArray[np.float32]


class Attention(StrEnum):
    """How a context computes attention; the last digits differ.

    Left to itself llama.cpp takes flash attention everywhere. On a processor that costs a fifth of the speed after 500
    tokens, and after 3,600 it decodes 7.1 tokens a second instead of 18.9 (README of the benchmarks).
    """

    PLAIN = "plain attention"
    FLASH = "flash attention"


_ATTENTION_TYPES = {
    Attention.PLAIN: llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED,
    Attention.FLASH: llama_cpp.LLAMA_FLASH_ATTN_TYPE_AUTO,
}

_BROKEN_OFF = 2
# llama.cpp asks a C function of one pointer, a thousand times per evaluation, whether to go on. In Python that would
# be a thousand waits for the interpreter's lock; `strlen` of a text that begins with 0, or does not, says the same.
_ASKED = ctypes.cast(ctypes.CDLL(None).strlen, llama_cpp.ggml_abort_callback)


@dataclass(frozen=True)
class ContextSettings:
    """Sizes of a context.

    `n_ctx` is the window of each of the `n_seq` sequences, in tokens: rounded up to 256, and never more than
    the model was trained for. `n_batch` is the most that one evaluation takes, and so how long a stop or a
    pause may have to wait.
    """

    n_ctx: int
    n_seq: int = 1
    decode_threads: int = 1
    batch_threads: int = 1
    n_batch: int = 64


class Row(NamedTuple):
    """One token to compute, at a position of a sequence."""

    token: int
    position: int
    seq: int


class _GivenWay(NamedTuple):
    """Whom a context gives way to: the address of a byte, and what to do while it is set."""

    signal: int
    wait: Callable[[], None]


class LlamaContext:
    """One window of computation: a KV cache of `n_seq` sequences and the adapter it computes with.

    The cache is not touched when the adapter changes: who changes it clears what the old one computed.
    """

    def __init__(self, model: LlamaModel, settings: ContextSettings) -> None:
        window = min(settings.n_ctx, model.n_ctx_train)
        if not memory.fits(model.cache_shape.bytes(window * settings.n_seq)):
            raise LlamaMemoryError(_no_memory(window, settings.n_seq))
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = window * settings.n_seq
        params.n_seq_max = settings.n_seq
        # Each sequence gets a stream of its own: what another one holds can then not change this one's arithmetic.
        params.kv_unified = False
        params.n_batch = params.n_ubatch = settings.n_batch
        params.flash_attn_type = _ATTENTION_TYPES[model.attention]
        params.n_threads = settings.decode_threads
        params.n_threads_batch = settings.batch_threads
        params.no_perf = True
        self._flag = ctypes.create_string_buffer(2)
        params.abort_callback = _ASKED
        params.abort_callback_data = ctypes.addressof(self._flag)
        handle = llama_cpp.llama_init_from_model(model.handle, params)
        if not handle:
            raise LlamaMemoryError(_no_memory(window, settings.n_seq))
        self._handle: object | None = handle
        self._memory = llama_cpp.llama_get_memory(handle)
        self._batch = llama_cpp.llama_batch_init(settings.n_batch, 0, 1)
        self._will_reserve = True
        self._given_way: _GivenWay | None = None
        self.model = model
        self.settings = settings
        self.n_ctx = int(llama_cpp.llama_n_ctx_seq(handle))
        self.adapter: LlamaAdapter | None = None
        self.scale = 0.0

    @property
    def handle(self) -> object:
        """The C pointer. Raises LlamaError once the context is closed."""
        if self._handle is None:
            raise LlamaError("the context is closed")
        return self._handle

    def set_adapter(self, adapter: LlamaAdapter | None, scale: float = 1.0) -> None:
        """Compute with this adapter from the next evaluation on; None is the base."""
        if adapter is None:
            status = llama_cpp.llama_set_adapters_lora(self.handle, None, 0, None)
        else:
            if adapter.handle is None:
                raise AdapterFileError(f"the adapter {adapter.path} was closed")
            pointers = (llama_cpp.llama_adapter_lora_p_ctypes * 1)(adapter.handle)
            status = llama_cpp.llama_set_adapters_lora(self.handle, pointers, 1, (ctypes.c_float * 1)(scale))
        if status != 0:
            raise AdapterFileError("llama.cpp refused the adapter: see the log for its reason")
        self.adapter, self.scale = adapter, (scale if adapter else 0.0)
        self._will_reserve = True

    def set_threads(self, decode_threads: int, batch_threads: int) -> None:
        """Threads for single tokens and for batches, from the next evaluation on."""
        llama_cpp.llama_set_n_threads(self.handle, decode_threads, batch_threads)

    def evaluate(self, tokens: Sequence[int], position: int, seq: int = 0) -> None:
        """Compute 1 to `n_batch` tokens from `position` on; `logits()` are then those of the last one.

        The sequence must hold exactly the positions before: `truncate` it first where it holds more. Raises
        ContextOverflow past the end of the window and LlamaError when llama.cpp fails.
        """
        self._decode(_rows_of(tokens, position, seq), every_logit=False)

    def evaluate_together(self, rows: Sequence[Row]) -> None:
        """Compute tokens of several sequences; `row_logits(i)` are then those after `rows[i]`.

        Decoding is bound by reading the weights, so four replies together take little longer than one. A context that
        gives way takes one token each of sequences without a gap in their numbers. With a gap llama.cpp computes in
        several steps, and where one is broken off, the places that it had found for the later ones are passed over when
        it is repeated: the same sums in another order, so other last digits.
        """
        if self._given_way is not None and any(b.seq != a.seq + 1 for a, b in itertools.pairwise(rows)):
            raise ValueError("a context that gives way computes one token each of neighbouring sequences")
        self._decode(rows, every_logit=True)

    def _decode(self, rows: Sequence[Row], *, every_logit: bool) -> None:
        handle = self.handle
        count = len(rows)
        if not 0 < count <= self.settings.n_batch:
            raise ValueError(f"{count} tokens: one evaluation takes 1 to {self.settings.n_batch}")
        if max(row.position for row in rows) >= self.n_ctx:
            raise ContextOverflow(f"the conversation is longer than the window of {self.n_ctx} tokens")
        batch = self._batch
        batch.n_tokens = count
        for index, row in enumerate(rows):
            batch.token[index] = row.token
            batch.pos[index] = row.position
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = row.seq
            batch.logits[index] = every_logit
        batch.logits[count - 1] = True
        with self.model.structure if self._will_reserve else nullcontext():
            status = llama_cpp.llama_decode(handle, batch)
        if status == _BROKEN_OFF and self._given_way is not None:
            status = self._decode_again(self._given_way)
        if status == _BROKEN_OFF:
            raise BrokenOff("the evaluation was broken off")
        if status != 0:
            kind = LlamaMemoryError if status == _NO_MEMORY else LlamaError
            raise kind(
                f"llama.cpp could not evaluate {count} tokens at position {rows[0].position} (code {status})"
            )
        self._will_reserve = False

    def interrupt(self) -> None:
        """Break off the evaluation under way, and all to come until `proceed`. May be called in any thread.

        It ends within one operation of the graph (4 ms on SmolLM2) with `BrokenOff`; what was computed before stays.
        """
        self._flag[0] = b"\x01"

    def proceed(self) -> None:
        """Take an `interrupt` back."""
        self._flag[0] = b"\x00"

    def give_way(self, signal: int, wait: Callable[[], None]) -> None:
        """Break off an evaluation while the byte at `signal` is not 0, `wait`, and compute it again, to its end.

        Takes the place of `interrupt`. The byte must stay where it is for as long as the context lives.
        """
        self._given_way = _GivenWay(signal, wait)
        self._break_off_at(signal)

    def _break_off_at(self, address: int) -> None:
        llama_cpp.llama_set_abort_callback(self.handle, _ASKED, ctypes.c_void_p(address))

    def _decode_again(self, given_way: _GivenWay) -> int:
        given_way.wait()
        self._break_off_at(ctypes.addressof(self._flag))
        try:
            return int(llama_cpp.llama_decode(self.handle, self._batch))
        finally:
            self._break_off_at(given_way.signal)

    def logits(self) -> Logits:
        """Logits of the last evaluated token, (vocabulary,): a view that the next evaluation overwrites."""
        return self.row_logits(-1)

    def row_logits(self, index: int) -> Logits:
        """Logits after one row of the last `evaluate_together`, (vocabulary,): a view like `logits`."""
        pointer = llama_cpp.llama_get_logits_ith(self.handle, index)
        return np.ctypeslib.as_array(pointer, shape=(self.model.vocab.size,))

    def score(self, tokens: Sequence[int], between: Callable[[], None] | None = None) -> Logits:
        """Logits at every position of a text, (tokens, vocabulary), computed in sequence 0 and forgotten.

        Up to 1e-4 from what `evaluate` gives (the last matrix is applied to a batch, not a row). `between`
        runs before each batch: a learner waits there while somebody is being answered.
        """
        self.truncate(0, 0)
        rows = np.empty((len(tokens), self.model.vocab.size), np.float32)
        for index, row in enumerate(self.after_each(tokens, 0, between)):
            rows[index] = row
        self.truncate(0, 0)
        return rows

    def after_each(
        self, tokens: Sequence[int], position: int, between: Callable[[], None] | None = None
    ) -> Iterator[Logits]:
        """Logits after each token with which sequence 0 goes on from `position`: a view each, soon overwritten.

        The sequence must hold exactly the positions before. `between` runs before each batch.
        """
        step = self.settings.n_batch
        for start in range(0, len(tokens), step):
            if between is not None:
                between()
            chunk = tokens[start : start + step]
            self._decode(_rows_of(chunk, position + start, 0), every_logit=True)
            for index in range(len(chunk)):
                yield self.row_logits(index)

    def truncate(self, seq: int, length: int) -> None:
        """Keep the first `length` positions of a sequence."""
        llama_cpp.llama_memory_seq_rm(self._checked_memory(), seq, length, -1)

    def copy_prefix(self, src: int, dst: int, length: int) -> None:
        """Make `dst` hold the first `length` positions of `src`; what it held is dropped."""
        if src == dst:
            self.truncate(dst, length)
            return
        memory = self._checked_memory()
        llama_cpp.llama_memory_seq_rm(memory, dst, -1, -1)
        # Between streams llama.cpp copies a sequence whole, at the next evaluation; the rest is cut off again.
        llama_cpp.llama_memory_seq_cp(memory, src, dst, -1, -1)
        llama_cpp.llama_memory_seq_rm(memory, dst, length, -1)
        self._will_reserve = True

    def save(self, seq: int) -> bytes:
        """What the cache holds of a sequence, to be given to `restore` of a context of the same model and window."""
        size = int(llama_cpp.llama_state_seq_get_size(self.handle, seq))
        buffer = (ctypes.c_uint8 * size)()
        written = int(llama_cpp.llama_state_seq_get_data(self.handle, buffer, size, seq))
        return bytes(memoryview(buffer)[:written])

    def restore(self, seq: int, state: bytes) -> None:
        """Make a sequence what was saved. Raises LlamaError where llama.cpp does not take it; it is then empty."""
        buffer = (ctypes.c_uint8 * len(state)).from_buffer_copy(state)
        if not llama_cpp.llama_state_seq_set_data(self.handle, buffer, len(state), seq):
            self.truncate(seq, 0)
            raise LlamaError("a saved sequence is of another model or window")
        self._will_reserve = True

    def clear(self) -> None:
        """Forget every sequence."""
        llama_cpp.llama_memory_clear(self._checked_memory(), False)

    def _checked_memory(self) -> object:
        assert self.handle is not None
        return self._memory

    def close(self) -> None:
        """Free it. May be called twice; never while another thread evaluates in it."""
        if self._handle is None:
            return
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._handle)
        self._handle = None
        self.adapter = None
        self.model.forget_context(self)


def _rows_of(tokens: Sequence[int], position: int, seq: int) -> list[Row]:
    return [Row(token, position + index, seq) for index, token in enumerate(tokens)]


def _no_memory(window: int, sequences: int) -> str:
    return (
        f"there is not enough memory for {sequences} windows of {window} tokens: "
        "close other programs, or choose a smaller context"
    )
