"""Where the training model computes: on the processor, or on the GPU, which the chat may be computing on too.

A GPU knows no idle class and no lease: what was handed over to it is computed, whoever waits. So one pass at a time is
handed over there, and waited for before the lease is looked at; and no more than half of the memory that was free at
the beginning is ever taken, so that the host's caches and another version's context have room. Only the model lies
there: what it is compared with (the base's and the teacher's positions) is in main memory. The replies that teach and
test are written on the processor in any case: llama.cpp cannot break an evaluation off on a GPU, and would hold the
weights there a second time. A GPU adds up in another order, so what is made anew there equals what was made before in
effect, not to the bit; that, and that none was at hand to measure it on, is why the processor is the default.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Any, Protocol

from app.model import memory
from store import settings
from store.db import Store
from store.errors import LearnerError

SHARE = 0.5
"""Of the memory that is free when training begins."""

_PROCESSOR = f"`mynah config set {settings.LEARNING_DEVICE} processor`"


class Borders(Enum):
    """Where training steps aside: at each layer, or where a pass is handed over whole, between two passes."""

    LAYERS = "layers"
    PASSES = "passes"


class Device(Protocol):
    """Where passes are computed."""

    @property
    def borders(self) -> Borders:
        """Where it can step aside."""

    def place(self, model: Any) -> Any:
        """The model, ready to compute there."""

    def room(self) -> int | None:
        """Bytes that a pass may still take; None where that is not known."""

    def finish(self) -> None:
        """Return when all that was handed over has been computed."""

    def give_back(self) -> None:
        """Free what nothing holds any more."""


class Processor:
    """The cores, which the operating system shares out: the learner is in its idle class."""

    borders = Borders.LAYERS

    def place(self, model: Any) -> Any:
        """It is there."""
        return model

    def room(self) -> int | None:
        """A share of what the system calls available."""
        available = memory.available_bytes()
        return None if available is None else int(SHARE * available)

    def finish(self) -> None:
        """It is computed when it returns."""

    def give_back(self) -> None:
        """The operating system has it."""


class Gpu:
    """One GPU. ``cuda`` is `torch.cuda`, or a script in a test. Raises LearnerError where there is none."""

    borders = Borders.PASSES

    def __init__(self, cuda: Any) -> None:
        if not cuda.is_available():
            raise LearnerError(f"PyTorch finds no GPU to learn on: {_PROCESSOR}")
        self._cuda = cuda
        self._others = 0
        """Bytes that were free and are left to others."""

    def place(self, model: Any) -> Any:
        """Take a share of what is free, and move the model there."""
        free, total = self._cuda.mem_get_info()
        self._cuda.set_per_process_memory_fraction(SHARE * free / total)
        self._others = int((1 - SHARE) * free)
        return model.to("cuda")

    def room(self) -> int | None:
        """What the model left of the share."""
        return max(0, int(self._cuda.mem_get_info()[0]) - self._others)

    def finish(self) -> None:
        """Wait for the GPU."""
        self._cuda.synchronize()

    def give_back(self) -> None:
        """Give torch's own reserve back to the GPU."""
        self._cuda.empty_cache()


@contextmanager
def chosen(store: Store) -> Iterator[Device]:
    """The device that the owner chose, for the length of the block.

    Raises:
        LearnerError: there is no such device, or its memory does not do.
    """
    device: Device = Processor()
    if settings.get(store, settings.LEARNING_DEVICE) == settings.GPU:
        import torch

        device = Gpu(torch.cuda)
    with given_back(device):
        yield device


@contextmanager
def given_back(device: Device) -> Iterator[None]:
    """Free a device's memory at the end of the block, and say in words where it did not do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise LearnerError(
            f"the GPU has too little free memory to learn with this model: {_PROCESSOR}"
        ) from error
    finally:
        device.give_back()
