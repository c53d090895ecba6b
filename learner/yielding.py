"""Makes the learner step aside while a reply is written, at micro-batch borders and inside a step.

A training step takes a second and more, which is a long time to wait for a first token: idle priority alone
leaves the caches, the memory bus and a shared core busy. So the lease is looked at in front of every decoder
layer too, forward and backward, and a reply that begins in the middle of a step waits for one layer at most
(15 ms with SmolLM2). Looking costs under a microsecond. A host that streams without a pause must not starve
the learner for ever: after ``max_wait`` seconds it may finish one micro-batch. On a GPU, which computes what it was
handed over whoever waits, the borders are the passes (device.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from learner.device import Borders, Device, Processor

if TYPE_CHECKING:
    from torch import Tensor, nn

MAX_WAIT_SECONDS = 20.0
MAX_THREADS = 8


class Lease(Protocol):
    """What is needed of `store.activity.Activity`."""

    @property
    def held(self) -> bool: ...
    @property
    def signal(self) -> int | None: ...
    def wait_until_free(self, max_wait: float) -> float: ...


class _Turn(Enum):
    ASKING = "asking"
    GRANTED = "granted"


class Yielding:
    """Waits where it is called; counts the seconds it gave away in ``waited``."""

    def __init__(self, lease: Lease, max_wait: float = MAX_WAIT_SECONDS) -> None:
        self._lease = lease
        self._max_wait = max_wait
        self._turn = _Turn.ASKING
        self._device: Device = Processor()
        self.waited = 0.0

    def border(self) -> None:
        """Between micro-batches, and between tokens: a granted turn is over, wait while a reply is written."""
        self._turn = _Turn.ASKING
        self.within()

    def within(self) -> None:
        """Inside a micro-batch: wait, unless this micro-batch was granted after a full wait."""
        if self._turn is _Turn.GRANTED:
            return
        self._device.finish()
        slept = self._lease.wait_until_free(self._max_wait)
        self.waited += slept
        if slept >= self._max_wait and self._lease.held:
            self._turn = _Turn.GRANTED

    @property
    def signal(self) -> int | None:
        """Address of a byte that is not 0 while a reply is written, or None where the lease has none."""
        return self._lease.signal

    @contextmanager
    def on(self, device: Device) -> Iterator[None]:
        """While the block runs, what is computed is computed there."""
        before, self._device = self._device, device
        try:
            yield
        finally:
            self._device = before

    @contextmanager
    def inside(self, layers: Iterator[nn.Module]) -> Iterator[None]:
        """While the block runs, step aside at each of these layers, forward and backward, or at each whole pass."""
        handles = []
        whole = self._device.borders is Borders.PASSES
        for layer in islice(layers, 1 if whole else None):
            handles.append(layer.register_forward_pre_hook(self._on_forward))
            if not whole:
                handles.append(layer.register_forward_hook(self._after_forward))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _on_forward(self, _module: nn.Module, _inputs: Any) -> None:
        self.within()

    def _after_forward(self, _module: nn.Module, _inputs: Any, output: Any) -> None:
        hidden = output[0] if isinstance(output, tuple) else output
        if hidden.requires_grad:
            hidden.register_hook(self._on_gradient)

    def _on_gradient(self, _gradient: Tensor) -> None:
        """The gradient has come down to this layer; its own backward pass is next."""
        self.within()


def usable_threads() -> int:
    """Cores the learner may compute on, eight at the most."""
    return min(len(os.sched_getaffinity(0)), MAX_THREADS)


def decoder_layers(model: nn.Module) -> Iterator[nn.Module]:
    """The transformer's blocks: the members of the longest module list, which every decoder model has."""
    from torch import nn

    lists = [list(module) for module in model.modules() if isinstance(module, nn.ModuleList)]
    longest: list[nn.Module] = max(lists, key=len, default=[])
    return iter(longest)
