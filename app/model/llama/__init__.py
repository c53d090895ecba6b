"""llama.cpp as this project needs it: one set of weights, several contexts, an adapter for each context.

The only package that imports llama_cpp, and it calls the C interface, not the binding's `Llama` object: that object
has one context, keeps every logit to give a log-probability, cannot change its adapter, and raises from a
half-torn-down module when the interpreter closes it. With several contexts on one model a new adapter is warmed in
the second while the first still streams.

A context belongs to one thread at a time; several contexts of one model may compute at once. Everything made here is
closed by hand, or at exit before the interpreter goes: contexts first, then adapters, then the model.
"""

from app.model.llama.context import ContextSettings, LlamaContext, Logits
from app.model.llama.embedding import EmbeddingContext, Vector
from app.model.llama.library import BrokenOff, LlamaError, LlamaMemoryError, library_version
from app.model.llama.model import LlamaAdapter, LlamaModel
from app.model.llama.sampling import (
    SampledToken,
    Sampler,
    SamplerSettings,
    evaluate_prompt,
    generate,
    generate_together,
    shared_prefix,
)
from app.model.llama.vocab import Vocab

__all__ = [
    "BrokenOff",
    "ContextSettings",
    "EmbeddingContext",
    "LlamaAdapter",
    "LlamaContext",
    "LlamaError",
    "LlamaMemoryError",
    "LlamaModel",
    "Logits",
    "SampledToken",
    "Sampler",
    "SamplerSettings",
    "Vector",
    "Vocab",
    "evaluate_prompt",
    "generate",
    "generate_together",
    "library_version",
    "shared_prefix",
]
