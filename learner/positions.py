"""A reply's positions as hidden states, of which logits are made a few at a time: never all of them at once.

The vocabulary is what blows a small model's memory: 700 positions of 152,000 logits are 430 MB, and a loss over them
keeps three times that until its backward pass. Every loss here is made of one value for each position, which depends
on that position's hidden state alone; so its slope is known as soon as the value is. It is taken then, a chunk of
positions at a time, and only the slopes, as wide as a hidden state, are kept for the backward pass. Nothing is computed
twice, which checkpointing the head would do. The head must be frozen, as it always is here: no gradient reaches it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

CHUNK = 64
"""Positions whose logits exist at once: 13 MB of them with SmolLM2's vocabulary, 39 MB with Qwen's."""

Head = Callable[[Tensor], Tensor]
"""Hidden states (T, H) to logits (T, V)."""
Measure = Callable[..., Tensor]
"""Logits (T, V), and what stands beside each position, to one value for each, (T,). Positions must not mix."""


class Positions:
    """The positions of one reply: ``hidden`` (T, H) on whatever device the model lies, and the head over them."""

    def __init__(self, hidden: Tensor, head: Head) -> None:
        self._hidden = hidden
        self._head = head

    def __len__(self) -> int:
        return len(self._hidden)

    def at(self, places: Sequence[int]) -> Positions:
        """Some of the positions, in this order; one may come twice."""
        return Positions(self._hidden[list(places)], self._head)

    def kept(self) -> Positions:
        """The same without a way back to the model, in main memory: what is compared with must not fill a GPU."""
        return Positions(self._hidden.detach().cpu(), self._head)

    def logits(self) -> Tensor:
        """All logits in main memory, (T, V): for few positions."""
        return wide(self._head(self._hidden)).cpu()

    def each(self, measure: Measure, *beside: Tensor | Positions) -> Tensor:
        """One value for each position, (T,), in main memory; its gradient goes to the hidden states.

        ``beside``: what ``measure`` takes after the logits, as many positions of it; other positions come as logits.
        """

        def measured(rows: Tensor, part: slice) -> Tensor:
            others = [
                wide(other._head(other._hidden[part].to(rows.device)))
                if isinstance(other, Positions)
                else other[part].to(rows.device)
                for other in beside
            ]
            return measure(wide(self._head(rows)), *others)

        if torch.is_grad_enabled() and self._hidden.requires_grad:
            return _sloped(self._hidden, measured).cpu()
        return torch.cat([measured(self._hidden[part], part) for part in _parts(len(self))]).cpu()


def wide(logits: Tensor) -> Tensor:
    """Logits in 32 bits at the least: bfloat16 has three digits, and what is made of logits sums over a vocabulary."""
    return logits.float() if logits.dtype in (torch.bfloat16, torch.float16) else logits


class _Sloped(torch.autograd.Function):
    """Values with their slopes: d value / d hidden of each position, (T, H), taken chunk by chunk."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, measured: Callable[[Tensor, slice], Tensor]) -> Tensor:
        values, slopes = [], []
        for part in _parts(len(hidden)):
            with torch.enable_grad():
                rows = hidden[part].detach().requires_grad_()
                made = measured(rows, part)
                # A position's value depends on its own row alone, so the sum's gradient is each one's slope.
                slopes.append(torch.autograd.grad(made.sum(), rows)[0])
            values.append(made.detach())
        ctx.save_for_backward(torch.cat(slopes))
        return torch.cat(values)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (slopes,) = ctx.saved_tensors
        return (slopes * gradients[0].unsqueeze(-1)).to(slopes.dtype), None


_sloped: Callable[[Tensor, Callable[[Tensor, slice], Tensor]], Tensor] = _Sloped.apply


def _parts(count: int) -> Iterator[slice]:
    """Chunks of so many positions; one empty chunk of none."""
    for start in range(0, max(count, 1), CHUNK):
        yield slice(start, min(start + CHUNK, count))
