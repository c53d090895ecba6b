"""The real runtime: one GGUF model, the lanes that compute on it, and the adapters it has loaded.

The window is as long as the setting says, and never longer than the model was trained for. A lane keeps a few
conversations, a sequence each, and each costs as much memory as the window is long (SmolLM2 at 4096 tokens: 94 MB):
as many as the setting says, fewer where they would take more than a quarter of the memory that is free.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from app.host.jobs import Sampling
from app.host.runtime import STEPS, BrokenOff, ModelInfo
from app.model import adapter_file, catalogue, convert, gguf_info, llama, memory
from app.model.embedder import Embedder
from app.model.llama import (
    ContextSettings,
    LlamaAdapter,
    LlamaContext,
    LlamaError,
    LlamaModel,
    SamplerSettings,
    library_version,
)
from app.model.llama import Sampler as LlamaSampler
from app.model.renderer import Fitted, Renderer, Turn
from app.model.threads import Threads, choose_threads, usable_cores
from store import settings
from store.db import Store

log = logging.getLogger("mynah.host")

CHUNK = 64
"""Tokens per evaluation of a prompt. A stop breaks one off; beside others, it is how long they wait for their turn."""

FEWEST_SEQUENCES = 3
"""One for each level of priority: a reply that gives way keeps its own."""

_LOADED_ADAPTERS = 3
_SHARE_OF_MEMORY = 4


class LlamaRuntime:
    """llama.cpp behind the engine's protocol."""

    chunk = CHUNK

    def __init__(
        self,
        model: LlamaModel,
        context: LlamaContext,
        renderer: Renderer,
        adapters: Adapters,
        info: ModelInfo,
        cache: Path,
    ) -> None:
        self.info = info
        self._cache = cache
        self.model = model
        self.lane = LlamaLane(context, adapters)
        self._adapters = adapters
        self._renderer = renderer
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
        model = LlamaModel.load(served, gpu_layers=settings.get(store, settings.GPU_LAYERS))
        try:
            threads = _threads(store, model, chosen.base_hash)
            window = min(int(settings.get(store, settings.CONTEXT)), model.n_ctx_train or 2**31)
            sequences = _sequences(model, window, int(settings.get(store, settings.WARM_CONVERSATIONS)))
            context = model.context(ContextSettings(window, sequences, threads.decode, threads.batch, CHUNK))
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
                engine=f"{library_version()}, {model.attention}",
            )
            adapters = Adapters(model, gguf_info.read(served), chosen.base_hash)
            return cls(model, context, renderer, adapters, info, store.home.cache)
        except BaseException:
            model.close()
            raise

    def spare_lane(self) -> LlamaLane | None:
        """Another lane of the same sizes; None where there is no memory for it."""
        try:
            context = self.model.context(self.lane.context.settings)
        except LlamaError as error:
            log.info("no second context: %s", error)
            return None
        return LlamaLane(context, self._adapters)

    def fit(self, turns: Sequence[Turn], reserve: int) -> Fitted:
        """The prompt for a conversation."""
        step = max((self.info.context - reserve) // STEPS, 1)
        return self._renderer.fit(turns, self.info.context, reserve, step)

    def continuation(self, text: str) -> list[int]:
        """The tokens of a reply that has come as far as this text."""
        return self._renderer.unfinished(text)

    def is_end(self, token: int) -> bool:
        """Whether this token ends a reply."""
        return token in self._stop_ids

    def piece(self, token: int) -> bytes:
        """The bytes a token adds to the text."""
        return self.model.vocab.piece(token)

    def encoder(self) -> Embedder:
        """Load the small encoder, written into the cache first where it is not there."""
        return Embedder.load(self._cache)

    def close(self) -> None:
        """Free the model."""
        self.model.close()


class Adapters:
    """The loaded adapters, shared by the lanes; a few more than are attached, so that going back is at once."""

    def __init__(self, model: LlamaModel, base: gguf_info.GgufInfo, base_hash: str) -> None:
        self._model = model
        self._base = base
        self._base_hash = base_hash
        self._loaded: OrderedDict[Path, LlamaAdapter] = OrderedDict()
        self._guard = threading.Lock()

    def attach(self, context: LlamaContext, path: Path, scale: float) -> None:
        """Load an adapter where it is not, and let a context compute with it.

        Raises:
            AdapterFileError: it is damaged, or of another model.
        """
        with self._guard:
            loaded = self._loaded.get(path)
            if loaded is None:
                adapter_file.verify(path, self._base, self._base_hash)
                loaded = self._model.load_adapter(path)
            context.set_adapter(loaded, scale)
            self._loaded[path] = loaded
            self._loaded.move_to_end(path)
            # One that a reply still computes with is never freed, however old it is.
            idle = [each for each, adapter in self._loaded.items() if not self._model.attached(adapter)]
            for each in idle[: max(0, len(self._loaded) - _LOADED_ADAPTERS)]:
                self._loaded.pop(each).close()


class LlamaLane:
    """One context of the model."""

    def __init__(self, context: LlamaContext, adapters: Adapters) -> None:
        self.context = context
        self.sequences = context.settings.n_seq
        self._adapters = adapters

    def attach(self, adapter: Path | None, scale: float) -> None:
        """Compute with this adapter from now on."""
        if adapter is None:
            self.context.set_adapter(None)
        else:
            self._adapters.attach(self.context, adapter, scale)

    def evaluate(self, tokens: Sequence[int], position: int, sequence: int) -> None:
        """Compute tokens at a position of a sequence."""
        try:
            self.context.evaluate(tokens, position, sequence)
        except llama.BrokenOff as error:
            raise BrokenOff from error

    def interrupt(self) -> None:
        """Break off the evaluation under way, and all to come."""
        self.context.interrupt()

    def proceed(self) -> None:
        """Take an `interrupt` back."""
        self.context.proceed()

    def sampler(self, sampling: Sampling, grammar: str | None, after: str | None = None) -> _Sampler:
        """A sampler for one reply."""
        return _Sampler(self.context, sampling, grammar, after)

    def truncate(self, sequence: int, length: int) -> None:
        """Drop everything of a sequence from this position on."""
        self.context.truncate(sequence, length)

    def copy_prefix(self, source: int, target: int, length: int) -> None:
        """Make a sequence equal to the first positions of another."""
        self.context.copy_prefix(source, target, length)

    def save(self, sequence: int) -> bytes:
        """What the cache holds of a sequence."""
        return self.context.save(sequence)

    def restore(self, sequence: int, state: bytes) -> None:
        """Make a sequence what was saved."""
        self.context.restore(sequence, state)

    def clear(self) -> None:
        """Drop all sequences."""
        self.context.clear()

    def close(self) -> None:
        """Free it."""
        self.context.close()


class _Sampler:
    def __init__(
        self, context: LlamaContext, sampling: Sampling, grammar: str | None, after: str | None
    ) -> None:
        settings_ = SamplerSettings(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            repeat_penalty=sampling.repeat_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            seed=sampling.seed,
        )
        self._context = context
        self._sampler = LlamaSampler(settings_, context.model.vocab, grammar, after)

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


def _sequences(model: LlamaModel, window: int, wanted: int) -> int:
    """How many conversations a lane keeps."""
    available = memory.available_bytes()
    if available is None:
        return max(FEWEST_SEQUENCES, wanted)
    most = available // _SHARE_OF_MEMORY // model.cache_shape.bytes(window)
    return max(FEWEST_SEQUENCES, min(wanted, most))


def _threads(store: Store, model: LlamaModel, base_hash: str) -> Threads:
    """The owner's number of threads, else the measured ones, remembered for this model on this many cores."""
    machine = f"{base_hash}:{usable_cores()}"
    known = settings.get(store, settings.THREADS)
    if isinstance(known, int):
        chosen_by_hand = min(known, usable_cores())
        return Threads(chosen_by_hand, chosen_by_hand)
    if isinstance(known, dict) and known.get("for") == machine:
        return Threads(int(known["decode"]), int(known["batch"]))
    chosen = choose_threads(model)
    settings.put(store, settings.THREADS, {"for": machine, "decode": chosen.decode, "batch": chosen.batch})
    return chosen
