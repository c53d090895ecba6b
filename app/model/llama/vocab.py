"""Text to tokens and back, in the model's own vocabulary.

Control tokens are kept apart from text on both ways: only a template's own parts are read with them, and none is ever
written into a text that is shown.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import llama_cpp

if TYPE_CHECKING:
    from app.model.llama.model import LlamaModel


class Vocab:
    """Text to tokens and back. Lives as long as its model."""

    def __init__(self, model: LlamaModel, handle: object) -> None:
        self._model = model
        self._pointer = handle
        self.size: int = llama_cpp.llama_vocab_n_tokens(handle)
        self.adds_bos: bool = llama_cpp.llama_vocab_get_add_bos(handle)
        self._pieces: dict[int, bytes] = {}

    @property
    def handle(self) -> object:
        """The C pointer. Raises LlamaError once the model is closed."""
        # The pointer is into the model: after its end it must not be followed.
        assert self._model.handle is not None
        return self._pointer

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Tokens of `text`, without any that the text does not hold.

        With `special`, the text of a control token (`<|im_end|>`) becomes that token: for a template's own
        parts only.
        """
        if not text:
            return []
        data = text.encode("utf-8", "replace")
        room = len(data) + 8
        while True:
            tokens = (llama_cpp.llama_token * room)()
            count: int = llama_cpp.llama_tokenize(self.handle, data, len(data), tokens, room, False, special)
            if count >= 0:
                return list(tokens[:count])
            room = -count

    def piece(self, token: int) -> bytes:
        """The bytes that a token adds to a text: may end inside a character; b"" for control tokens."""
        known = self._pieces.get(token)
        if known is None:
            known = self._pieces[token] = self._piece(token, special=False)
        return known

    def text(self, tokens: Sequence[int]) -> str:
        """The text of a sequence of tokens, control tokens left out."""
        return b"".join(map(self.piece, tokens)).decode("utf-8", "replace")

    def control_text(self, token: int) -> str:
        """How a template writes a control token (`<|im_end|>`); "" for no token (-1)."""
        return self._piece(token, special=True).decode("utf-8", "replace") if token >= 0 else ""

    def _piece(self, token: int, *, special: bool) -> bytes:
        room = 64
        while True:
            buffer = ctypes.create_string_buffer(room)
            count: int = llama_cpp.llama_token_to_piece(self.handle, token, buffer, room, 0, special)
            if count >= 0:
                return buffer.raw[:count]
            room = -count

    def is_end(self, token: int) -> bool:
        """Whether a reply is over when this token is sampled."""
        return bool(llama_cpp.llama_vocab_is_eog(self.handle, token))

    def is_control(self, token: int) -> bool:
        """Whether the token is one that only a template may write."""
        return bool(llama_cpp.llama_vocab_is_control(self.handle, token))

    def is_unused(self, token: int) -> bool:
        """Whether the entry only fills the vocabulary up to a round size."""
        attributes = llama_cpp.llama_vocab_get_attr(self.handle, token)
        return bool(attributes & llama_cpp.LLAMA_TOKEN_ATTR_UNUSED)

    @cached_property
    def end_ids(self) -> frozenset[int]:
        """Every token that ends a reply."""
        return frozenset(token for token in range(self.size) if self.is_end(token))

    @cached_property
    def bos(self) -> int:
        """The token that begins a text, or -1."""
        return int(llama_cpp.llama_vocab_bos(self.handle))

    @cached_property
    def eos(self) -> int:
        """The token that ends a text, or -1."""
        return int(llama_cpp.llama_vocab_eos(self.handle))

    @cached_property
    def end_of_turn(self) -> int:
        """The token that ends a turn: end of text or end of turn, whichever the file's template writes.

        Neither name can be trusted alone: in SmolLM2 the "end of turn" is `<|endoftext|>` and the end of
        text `<|im_end|>`.
        """
        template = self._model.chat_template or ""
        candidates = [self.eos, int(llama_cpp.llama_vocab_eot(self.handle))]
        written = [token for token in candidates if token >= 0 and self.control_text(token) in template]
        return (written or candidates)[0]
