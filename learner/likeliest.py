"""What a teacher in llama.cpp thinks of each position of a reply: its likeliest tokens, and how likely it finds them.

Its hidden states are not to be had there, and its logits are too large to keep: a reply of 200 tokens over Qwen's
vocabulary is 120 MB. Sixty-four tokens hold nearly all of a good teacher's mass, and the objectives give the rest a bin
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOP_K = 64
Logits = NDArray[np.float32]


@dataclass(frozen=True)
class Likeliest:
    """For each position of a reply: token ids, likeliest first, and their log-probabilities, (T, k) each."""

    tokens: NDArray[np.int64]
    logprobs: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.tokens)


def of(rows: Iterable[Logits], words: int) -> Likeliest:
    """The likeliest tokens of each row of logits, (V,) each, among the first ``words`` of the vocabulary."""
    tokens, logprobs = [], []
    for row in rows:
        values = row[:words].astype(np.float64)
        count = min(TOP_K, len(values))
        found = np.argpartition(-values, count - 1)[:count]
        found = found[np.argsort(-values[found], kind="stable")]
        top = values[found[0]]
        tokens.append(found)
        logprobs.append(values[found] - top - np.log(np.exp(values - top).sum()))
    return Likeliest(np.array(tokens, np.int64), np.array(logprobs, np.float32))
