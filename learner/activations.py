"""Whether a pass keeps what each layer made for its backward pass, or makes it again there.

A step of 768 tokens keeps 1.4 GB of SmolLM2's thirty layers, ten times what its weights take in 16 bits; a model of
1.5 billion parameters keeps 5 GB. Making a layer again costs a third of the step's time and leaves one layer's worth.
So it is kept while there is room, and nobody has to choose: how much a pass keeps follows from the model's widths, and
what there is room for from the machine. Both ways give the same gradient to the bit, so that what a lesson makes does
not depend on the memory that happened to be free. A layer that is made again is a border like any other (yielding.py).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from learner.yielding import decoder_layers

_FLOAT32 = 4
_HIDDEN, _FEED_FORWARD, _MODULES = 5, 4, 7
"""What a layer keeps for each token: five tensors as wide as the hidden state (norms, residuals, attention), the
queries, keys and values, four as wide as the feed-forward part, and for each of its seven adapted modules one as wide
as the rank. Counted in torch's graph of a llama layer; the families that are trained here differ by a norm."""
_INPUTS = 6
"""Adapted modules whose input is as wide as the hidden state; below 32 bits each keeps its own copy in 32."""


class Activations(Enum):
    """What becomes of a layer's intermediate results until its backward pass."""

    KEPT = "kept"
    RECOMPUTED = "recomputed"


def kept_bytes(config: Any, tokens: int, rank: int, width: int) -> int:
    """Bytes that a pass over so many tokens keeps, about.

    ``config``: transformers' of the model. ``rank``: of the adapter. ``width``: bytes of a number of the base.
    """
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    keys = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    attention = head * (config.num_attention_heads + 2 * keys)
    kept = width * (_HIDDEN * config.hidden_size + attention + _FEED_FORWARD * inner)
    kept += _FLOAT32 * _MODULES * rank
    if width < _FLOAT32:
        kept += _FLOAT32 * (_INPUTS * config.hidden_size + inner) - width * inner
    return int(tokens * config.num_hidden_layers * kept)


def choose(needed: int, room: int | None) -> Activations:
    """Keep them where they fit, or where it is not known what fits."""
    return Activations.KEPT if room is None or needed <= room else Activations.RECOMPUTED


def recompute(model: Any) -> None:
    """From now on a training pass makes each decoder layer's results again when it comes back to the layer.

    The layer's hooks stay outside, so that the look in front of its backward pass is in front of this too.
    """
    for layer in decoder_layers(model):
        layer.forward = partial(_forward, layer.forward)


def _forward(forward: Callable[..., Any], *given: Any, **named: Any) -> Any:
    if not torch.is_grad_enabled():
        return forward(*given, **named)
    # The re-entrant way would need inputs with a gradient, which a frozen embedding has not; no layer here draws random
    # numbers, so none need be kept.
    return checkpoint(partial(forward, **named), *given, use_reentrant=False, preserve_rng_state=False)
