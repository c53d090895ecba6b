"""Forward passes that the trainer, the gate and the tests share: logits of a reply's positions, and no others.

The vocabulary's matrix is a fifth of SmolLM2's arithmetic and, over a long prompt, most of the memory, so it is
applied to the reply's positions only, and to few of them at once (positions.py). Sequences are padded on the right and
masked, which leaves the positions that count as they would be alone. Wherever the model lies, what is made of its
logits comes back to main memory: it is little, and what is kept of them would fill a GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from learner.objectives import token_logprobs
from learner.positions import Positions

Sequence2 = tuple[Sequence[int], Sequence[int]]
"""A prompt and a completion, as token ids."""


def completions(model: Any, sequences: Sequence[Sequence2]) -> list[Positions]:
    """The completion's positions of each sequence, from one forward pass. ``model``: PEFT or plain causal LM."""
    longest = max(len(prompt) + len(completion) for prompt, completion in sequences)
    ids = torch.zeros(len(sequences), longest, dtype=torch.long)
    mask = torch.zeros(len(sequences), longest, dtype=torch.long)
    for row, (prompt, completion) in enumerate(sequences):
        length = len(prompt) + len(completion)
        ids[row, :length] = torch.tensor([*prompt, *completion])
        mask[row, :length] = 1
    causal = model.get_base_model() if hasattr(model, "get_base_model") else model
    there = next(causal.parameters()).device
    hidden = causal.base_model(
        input_ids=ids.to(there), attention_mask=mask.to(there), use_cache=False
    ).last_hidden_state
    return [
        Positions(hidden[row, len(prompt) - 1 : len(prompt) + len(completion) - 1], causal.lm_head)
        for row, (prompt, completion) in enumerate(sequences)
    ]


def completion_logits(model: Any, sequences: Sequence[Sequence2]) -> list[Tensor]:
    """Logits at every completion position, one (T, V) tensor per sequence: for few positions."""
    return [said.logits() for said in completions(model, sequences)]


def completion_logprobs(model: Any, sequences: Sequence[Sequence2]) -> list[Tensor]:
    """Log-probability of every completion token, one (T,) tensor per sequence."""
    return [
        said.each(token_logprobs, torch.tensor(list(completion)))
        for said, (_, completion) in zip(completions(model, sequences), sequences, strict=True)
    ]


def passage(tokens: Sequence[int]) -> Sequence2:
    """A plain text as prompt and completion: its first token alone has no prediction."""
    return tokens[:1], tokens[1:]


@contextmanager
def as_base(model: Any) -> Iterator[None]:
    """The frozen base inside a PEFT model, for the length of the block."""
    with model.disable_adapter():
        yield


@contextmanager
def as_adapter(model: Any, name: str) -> Iterator[None]:
    """Another loaded adapter of a PEFT model, for the length of the block."""
    before = model.active_adapter
    model.set_adapter(name)
    try:
        yield
    finally:
        model.set_adapter(before)
