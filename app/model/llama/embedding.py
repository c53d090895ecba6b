"""One vector for a whole text, from a model that reads it both ways at once.

Such a model has no cache and says nothing, so it gets a context of its own kind: a text goes in whole, in one
evaluation, and what comes out is the mean over its tokens at length 1, whose products are cosines.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import llama_cpp
import numpy as np
import numpy.typing as npt

from app.model.llama.library import LlamaError, LlamaMemoryError

if TYPE_CHECKING:
    from app.model.llama.model import LlamaModel

Vector = npt.NDArray[np.float32]


class EmbeddingContext:
    """Computes vectors of texts of at most `longest` tokens; made by `LlamaModel.embedding_context`."""

    def __init__(self, model: LlamaModel, longest: int, threads: int) -> None:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = longest
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = threads
        params.embeddings = True
        params.pooling_type = llama_cpp.LLAMA_POOLING_TYPE_MEAN
        params.no_perf = True
        handle = llama_cpp.llama_init_from_model(model.handle, params)
        if not handle:
            raise LlamaMemoryError("there is not enough memory to compare texts by their meaning")
        self._handle: object | None = handle
        self._batch = llama_cpp.llama_batch_init(longest, 0, 1)
        self._model = model
        self.longest = longest
        self.size = int(llama_cpp.llama_model_n_embd(model.handle))

    def embed(self, tokens: Sequence[int]) -> Vector:
        """The vector of a text, (size,), of length 1. Raises LlamaError: it is closed, or llama.cpp failed."""
        if self._handle is None:
            raise LlamaError("the context is closed")
        if not 0 < len(tokens) <= self.longest:
            raise ValueError(f"{len(tokens)} tokens: a text has 1 to {self.longest}")
        batch = self._batch
        batch.n_tokens = len(tokens)
        for index, token in enumerate(tokens):
            batch.token[index] = token
            batch.pos[index] = index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = True
        status = llama_cpp.llama_encode(self._handle, batch)
        if status != 0:
            raise LlamaError(f"llama.cpp could not read a text of {len(tokens)} tokens (code {status})")
        pointer = llama_cpp.llama_get_embeddings_seq(self._handle, 0)
        vector: Vector = np.ctypeslib.as_array(pointer, shape=(self.size,)).copy()
        length = float(np.linalg.norm(vector))
        return vector / np.float32(length) if length else vector

    def close(self) -> None:
        """Free it. May be called twice."""
        if self._handle is None:
            return
        llama_cpp.llama_batch_free(self._batch)
        llama_cpp.llama_free(self._handle)
        self._handle = None
        self._model.forget_context(self)
