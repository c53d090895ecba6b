"""How many bits the frozen base has while an adapter is trained over it; the adapter itself always has 32.

Thirty-two is the default: on a processor it is the quickest as well (README of the benchmarks), and it is what the
adapter is tested with. Sixteen halve the weights, which is what a larger model needs first. Four are bitsandbytes' NF4
(QLoRA, arXiv 2305.14314), on CUDA only, and an extra of the package, because it is large and useless elsewhere. What is
missing is said before anything was computed for the run.
"""

from __future__ import annotations

import importlib
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from store import settings
from store.db import Store
from store.errors import LearnerError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_NF4 = "nf4"
_SIXTEEN = f"`mynah config set {settings.PRECISION} {settings.BFLOAT16}`"


class Precision(StrEnum):
    """The form of the frozen weights."""

    FLOAT32 = settings.FLOAT32
    BFLOAT16 = settings.BFLOAT16
    FOUR_BIT = settings.FOUR_BIT

    @property
    def dtype(self) -> str:
        """The type that torch loads the weights in; four bits are made of sixteen, and computed in them."""
        return "float32" if self is Precision.FLOAT32 else "bfloat16"


def chosen(store: Store) -> Precision:
    """What the owner chose.

    Raises:
        LearnerError: it needs a GPU, or a library, that is not there.
    """
    precision = Precision(settings.get(store, settings.PRECISION))
    if precision is Precision.FOUR_BIT:
        if settings.get(store, settings.LEARNING_DEVICE) != settings.GPU:
            raise LearnerError(
                f"weights of 4 bits need a GPU: `mynah config set {settings.LEARNING_DEVICE} {settings.GPU}`, "
                f"or {_SIXTEEN}"
            )
        library()
    return precision


def library() -> Any:
    """The library. Raises LearnerError where it is not installed or does not start."""
    try:
        return importlib.import_module("bitsandbytes")
    except ImportError as error:
        raise LearnerError(
            f"weights of 4 bits need bitsandbytes: `pip install 'mynah-chat[cuda]'`, or {_SIXTEEN}"
        ) from error
    except (OSError, RuntimeError) as error:
        raise LearnerError(f"bitsandbytes does not start here ({error}): {_SIXTEEN}") from error


def in_four_bits(base: PreTrainedModel, bitsandbytes: Any) -> PreTrainedModel:
    """The base with its linear modules in 4 bits, all but the output's; they are packed when it goes to the GPU.

    Done here and not while loading, since only the model as it lies on the processor may be moved by `Device.place`.
    """
    import torch
    from torch import nn

    head = base.get_output_embeddings()
    for owner in list(base.modules()):
        for name, linear in list(owner.named_children()):
            if not isinstance(linear, nn.Linear) or linear is head:
                continue
            made = bitsandbytes.nn.Linear4bit(
                linear.in_features,
                linear.out_features,
                bias=linear.bias is not None,
                compute_dtype=torch.bfloat16,
                quant_type=_NF4,
                device="meta",
            )
            made.weight = bitsandbytes.nn.Params4bit(
                linear.weight.data, requires_grad=False, quant_type=_NF4, module=made
            )
            made.bias = linear.bias
            setattr(owner, name, made)
    # By this PEFT knows which of its own modules to put beside them.
    base.is_loaded_in_4bit = True
    return base
