"""The weights of one file and the adapters loaded beside them.

Contexts share both and may compute at once, so what changes the model's own list of adapters is serialised by
`LlamaModel.structure`: loading and freeing one, making a context, and the first evaluation after an adapter or a
sequence changed, when llama.cpp reads that list to size its graph.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
import weakref
from functools import cached_property
from pathlib import Path
from types import TracebackType

import llama_cpp

from app.model import gguf_info, memory
from app.model.llama.context import Attention, ContextSettings, LlamaContext
from app.model.llama.embedding import EmbeddingContext
from app.model.llama.library import LlamaError
from app.model.llama.vocab import Vocab
from store.errors import AdapterFileError, ModelFileError


class LlamaAdapter:
    """A loaded LoRA adapter; made by `LlamaModel.load_adapter`."""

    def __init__(self, model: LlamaModel, handle: object, path: Path) -> None:
        self._model = model
        self.handle: object | None = handle
        self.path = path

    def close(self) -> None:
        """Take it out of every context that still uses it, then free it. May be called twice."""
        self._model.free_adapter(self)


class LlamaModel:
    """The weights of one GGUF file, shared by all of its contexts."""

    def __init__(self, handle: object, path: Path, attention: Attention) -> None:
        self._handle: object | None = handle
        self.path = path
        self.attention = attention
        self.structure = threading.RLock()
        self._contexts: list[LlamaContext] = []
        self._embedding: list[EmbeddingContext] = []
        self._adapters: list[LlamaAdapter] = []
        self.vocab = Vocab(self, llama_cpp.llama_model_get_vocab(handle))
        _open_models.add(self)

    @classmethod
    def load(cls, path: Path, *, vocab_only: bool = False, gpu_layers: int | None = None) -> LlamaModel:
        """Load the weights, or the tokenizer and metadata alone. Raises ModelFileError.

        ``gpu_layers``: how many layers a GPU computes; None leaves it to llama.cpp, which takes all it can.
        """
        if not path.is_file():
            gguf_info.read(path)
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = vocab_only
        if gpu_layers is not None:
            params.n_gpu_layers = gpu_layers
        handle = llama_cpp.llama_model_load_from_file(os.fsencode(path), params)
        if not handle:
            gguf_info.read(path)
            raise ModelFileError(
                f"llama.cpp cannot load {path}: see the log for its reason, or choose another model"
            )
        on_gpu = llama_cpp.llama_supports_gpu_offload() and gpu_layers != 0
        return cls(handle, path, Attention.FLASH if on_gpu else Attention.PLAIN)

    @property
    def handle(self) -> object:
        """The C pointer. Raises LlamaError once the model is closed."""
        if self._handle is None:
            raise LlamaError("the model is closed")
        return self._handle

    @property
    def architecture(self) -> str:
        """The kind of network: `llama`, `qwen2` and others."""
        return self._meta("general.architecture")

    @property
    def n_ctx_train(self) -> int:
        """The longest window the model was trained for, in tokens."""
        known = int(llama_cpp.llama_model_n_ctx_train(self.handle))
        return known or int(self._meta(f"{self.architecture}.context_length") or 0)

    @property
    def chat_template(self) -> str | None:
        """The Jinja source that the file carries."""
        source = llama_cpp.llama_model_chat_template(self.handle, None)
        return source.decode("utf-8") if source else None

    @cached_property
    def cache_shape(self) -> memory.CacheShape:
        """What one token takes in a context's cache."""
        head = int(llama_cpp.llama_model_n_embd(self.handle)) // max(
            1, llama_cpp.llama_model_n_head(self.handle)
        )
        kv_heads = int(llama_cpp.llama_model_n_head_kv(self.handle))
        key = int(self._meta(f"{self.architecture}.attention.key_length") or head)
        value = int(self._meta(f"{self.architecture}.attention.value_length") or head)
        layers = int(llama_cpp.llama_model_n_layer(self.handle))
        return memory.CacheShape(layers, kv_heads * key, kv_heads * value)

    def _meta(self, key: str) -> str:
        buffer = ctypes.create_string_buffer(256)
        length = llama_cpp.llama_model_meta_val_str(self.handle, key.encode(), buffer, len(buffer))
        return buffer.value.decode("utf-8", "replace") if length >= 0 else ""

    def context(self, settings: ContextSettings) -> LlamaContext:
        """A new context on these weights. Raises LlamaError when there is no memory for it."""
        with self.structure:
            context = LlamaContext(self, settings)
            self._contexts.append(context)
        return context

    def embedding_context(self, longest: int, threads: int = 1) -> EmbeddingContext:
        """A context that makes vectors of texts. Raises LlamaError when there is no memory for it."""
        with self.structure:
            context = EmbeddingContext(self, longest, threads)
            self._embedding.append(context)
        return context

    def load_adapter(self, path: Path) -> LlamaAdapter:
        """Load a GGUF adapter. Raises AdapterFileError: missing, damaged, or of another model."""
        if not path.is_file():
            raise AdapterFileError(f"there is no adapter file at {path}")
        with self.structure:
            handle = llama_cpp.llama_adapter_lora_init(self.handle, os.fsencode(path))
            if not handle:
                raise AdapterFileError(
                    f"{path} is damaged or no adapter for this model: see the log for the reason"
                )
            adapter = LlamaAdapter(self, handle, path)
            self._adapters.append(adapter)
        return adapter

    def free_adapter(self, adapter: LlamaAdapter) -> None:
        """What `LlamaAdapter.close` does."""
        with self.structure:
            if adapter.handle is None or self._handle is None:
                return
            for context in self._contexts:
                if context.adapter is adapter:
                    context.set_adapter(None, 0.0)
            llama_cpp.llama_adapter_lora_free(adapter.handle)
            adapter.handle = None
            self._adapters.remove(adapter)

    def attached(self, adapter: LlamaAdapter) -> bool:
        """Whether a context computes with this adapter."""
        with self.structure:
            return any(context.adapter is adapter for context in self._contexts)

    def forget_context(self, context: LlamaContext | EmbeddingContext) -> None:
        """Called by a context that was closed."""
        with self.structure:
            if isinstance(context, EmbeddingContext):
                self._embedding.remove(context)
            elif context in self._contexts:
                self._contexts.remove(context)

    def close(self) -> None:
        """Free contexts, adapters and weights, in this order. May be called twice."""
        with self.structure:
            if self._handle is None:
                return
            for context in list(self._contexts):
                context.close()
            for embedding in list(self._embedding):
                embedding.close()
            for adapter in list(self._adapters):
                adapter.close()
            llama_cpp.llama_model_free(self._handle)
            self._handle = None
        _open_models.discard(self)

    def __enter__(self) -> LlamaModel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


_open_models: weakref.WeakSet[LlamaModel] = weakref.WeakSet()


@atexit.register
def _close_open_models() -> None:
    for model in list(_open_models):
        model.close()
