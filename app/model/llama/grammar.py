"""Text that follows a grammar: llama.cpp's own, put before its samplers.

A grammar is asked in two steps, because to ask it about fifty thousand tokens takes longer than to compute them on a
small model: the samplers choose as if there were none, and only where their choice is not allowed is everything
that is not ruled out, and chosen again. Most tokens of a reply in JSON are allowed at the first try.

A grammar may hold only from a certain text on, such as the tag that begins a call. llama.cpp has that too, but ends the
whole process when the token that ends the text holds more, and the grammar does not allow that; so here a token that
would go beyond the text is chosen again, and the grammar begins with the next.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np

from app.model.llama.context import Logits
from app.model.llama.vocab import Vocab
from store.errors import UsageError

ROOT = b"root"
_Candidate = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Grammar:
    """A grammar on its way through one reply."""

    def __init__(self, source: str, vocab: Vocab, after: str | None = None) -> None:
        """From the text ``after`` on, where there is one. Raises UsageError where the grammar cannot be read."""
        handle = llama_cpp.llama_sampler_init_grammar(vocab.handle, source.encode("utf-8", "replace"), ROOT)
        if not handle:
            raise UsageError("the grammar cannot be read: it must be GBNF, with a rule called root")
        self._handle = handle
        self._free = weakref.finalize(self, llama_cpp.llama_sampler_free, handle)
        self._candidates = np.zeros(vocab.size, _Candidate)
        self._vocab = vocab
        self._after = (after or "").encode()
        self._said = b""
        self._holds = not self._after

    def sample(self, chain: object, logits: Logits) -> int:
        """What the chain of samplers chooses among the tokens that the grammar allows next; both remember it."""
        if not self._holds:
            return self._free_choice(chain, logits)
        token = self._chosen(chain, logits, ruled=False)
        if not self._allows(token):
            token = self._chosen(chain, logits, ruled=True)
        llama_cpp.llama_sampler_accept(self._handle, token)
        llama_cpp.llama_sampler_accept(chain, token)
        return token

    def _free_choice(self, chain: object, logits: Logits) -> int:
        """What the chain chooses, but for tokens that go beyond the text from which on the grammar holds."""
        barred: list[int] = []
        while True:
            token = self._chosen(chain, logits, ruled=False, barred=barred)
            said = self._said + self._vocab.piece(token)
            place = said.find(self._after)
            if place < 0 or place + len(self._after) == len(said):
                break
            barred.append(token)
        self._holds = place >= 0
        self._said = said[-len(self._after) :]
        llama_cpp.llama_sampler_accept(chain, token)
        return token

    def _chosen(self, chain: object, logits: Logits, *, ruled: bool, barred: Sequence[int] = ()) -> int:
        candidates = self._candidates
        candidates["id"] = np.arange(len(candidates), dtype=np.int32)
        candidates["logit"] = logits
        candidates["p"] = 0.0
        if barred:
            candidates["logit"][list(barred)] = -np.inf
        array = _array(candidates)
        if ruled:
            llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(array))
        llama_cpp.llama_sampler_apply(chain, ctypes.byref(array))
        return int(array.data[array.selected].id)

    def _allows(self, token: int) -> bool:
        one = np.array([(token, 1.0, 0.0)], _Candidate)
        array = _array(one)
        llama_cpp.llama_sampler_apply(self._handle, ctypes.byref(array))
        return bool(np.isfinite(one["logit"][0]))

    def close(self) -> None:
        """Free it. May be called twice."""
        self._free()


def _array(candidates: Any) -> llama_cpp.llama_token_data_array:
    """llama.cpp's view of numpy's memory, which must outlive it."""
    pointer = candidates.ctypes.data_as(llama_cpp.llama_token_data_p)
    return llama_cpp.llama_token_data_array(pointer, len(candidates), -1, False)
