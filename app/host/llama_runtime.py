"""The real runtime: one GGUF model, one context with a few sequences, and the adapters it has loaded.

The window is as long as the setting says, and never longer than the model was trained for. Three sequences are
kept: the chat that is open, a program beside it, and one for what either had before a swap, which is what makes
rolling back immediate. Each costs as much memory as the window is long (SmolLM2 at 4096 tokens: 94 MB).
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from app.host.jobs import Sampling
from app.host.runtime import ModelInfo
from app.model import adapter_file, catalogue, convert, gguf_info
from app.model.llama import ContextSettings, LlamaAdapter, LlamaContext, LlamaModel, SamplerSettings
from app.model.llama import Sampler as LlamaSampler
from app.model.renderer import Fitted, Renderer, Turn
from app.model.threads import Threads, choose_threads, usable_cores
from store import settings
from store.db import Store
from store.errors import UsageError

log = logging.getLogger("mynah.host")

SEQUENCES = 3
CHUNK = 64
"""Tokens per evaluation of a prompt: 0.1 s on SmolLM2, 0.8 s on a 1.5B model, which is how long a stop may take."""

_LOADED_ADAPTERS = 3


class LlamaRuntime:
    """llama.cpp behind the engine's protocol."""

    chunk = CHUNK
    sequences = SEQUENCES

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        renderer: Renderer,
        base: gguf_info.GgufInfo,
        info: ModelInfo,
    ) -> None:
        self.info = info
        self.model = model
        self._context = context
        self._renderer = renderer
        self._base = base
        self._loaded: OrderedDict[Path, LlamaAdapter] = OrderedDict()
        self.stop_strings = renderer.stop_strings
        self._stop_ids = renderer.stop_ids

    @classmethod
    def load(cls, store: Store, progress: Callable[[float], None] | None = None) -> LlamaRuntime:
        """Load the model that a home's settings name.

        Raises:
            ModelFileError: it is missing, damaged or no model.
            LlamaError: there is not enough memory.
        """
        chosen = catalogue.resolve(store.home, settings.get(store, settings.MODEL))
        served = convert.served_form(chosen, progress)
        model = LlamaModel.load(served)
        try:
            threads = _threads(store, model, chosen.base_hash)
            window = min(int(settings.get(store, settings.CONTEXT)), model.n_ctx_train or 2**31)
            context = model.context(ContextSettings(window, SEQUENCES, threads.decode, threads.batch, CHUNK))
            renderer = Renderer(
                model.vocab, model.chat_template, str(settings.get(store, settings.SYSTEM_PROMPT))
            )
            info = ModelInfo(
                name=chosen.name,
                base_hash=chosen.base_hash,
                served="as it is" if chosen.served_as_it_is else "F16",
                context=context.n_ctx,
                template=renderer.fingerprint,
                decode_threads=threads.decode,
                batch_threads=threads.batch,
            )
            return cls(model, context, renderer, gguf_info.read(served), info)
        except BaseException:
            model.close()
            raise

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        """The prompt for a conversation."""
        return self._renderer.fit(turns, self.info.context, reserve)

    def is_end(self, token: int) -> bool:
        """Whether this token ends a reply."""
        return token in self._stop_ids

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text."""
        return self.model.vocab.piece(token)

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on; a few loaded ones are kept, so that going back is at once."""
        if adapter is None:
            self._context.set_adapter(None)
            return
        loaded = self._loaded.get(adapter)
        if loaded is None:
            adapter_file.verify(adapter, self._base, self.info.base_hash)
            loaded = self.model.load_adapter(adapter)
        self._context.set_adapter(loaded, scale)
        self._loaded[adapter] = loaded
        self._loaded.move_to_end(adapter)
        while len(self._loaded) > _LOADED_ADAPTERS:
            _, oldest = self._loaded.popitem(last=False)
            oldest.close()

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute tokens at a position of a sequence."""
        self._context.evaluate(tokens, position, sequence)

    def sampler(self, sampling: Sampling, grammar: str | None) -> _Sampler:
        """A sampler for one reply."""
        if grammar is not None:
            raise UsageError("this model host cannot follow a grammar")
        return _Sampler(self._context, sampling)

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""
        self._context.truncate(sequence, length)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""
        self._context.copy_prefix(source, target, length)

    def clear(self) -> None:
        """Drop all sequences."""
        self._context.clear()

    def close(self) -> None:
        """Free the model."""
        self.model.close()


class _Sampler:
    def __init__(self, context: LlamaContext, sampling: Sampling) -> None:
        settings_ = SamplerSettings(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            repeat_penalty=sampling.repeat_penalty,
            seed=sampling.seed,
        )
        self._context = context
        self._sampler = LlamaSampler(settings_, context.model.vocab)

    def sample(self) -> tuple[int, float]:
        """The next token, and its natural log-probability at temperature 1."""
        token = self._sampler.sample(self._context)
        return token, self._sampler.logprob(self._context.logits(), token)

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        """The likeliest tokens of the last evaluation, likeliest first."""
        logits = self._context.logits()
        best = np.argpartition(logits, -count)[-count:] if count else np.empty(0, np.int64)
        ordered = best[np.argsort(logits[best])[::-1]]
        return [(int(token), self._sampler.logprob(logits, int(token))) for token in ordered]

    def close(self) -> None:
        """Free it."""
        self._sampler.close()


def _threads(store: Store, model: LlamaModel, base_hash: str) -> Threads:
    """The measured numbers of threads, remembered for this model on this many cores."""
    machine = f"{base_hash}:{usable_cores()}"
    known = settings.get(store, settings.THREADS)
    if isinstance(known, dict) and known.get("for") == machine:
        return Threads(int(known["decode"]), int(known["batch"]))
    chosen = choose_threads(model)
    settings.put(store, settings.THREADS, {"for": machine, "decode": chosen.decode, "batch": chosen.batch})
    return chosen
