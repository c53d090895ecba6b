"""Learning on a GPU, on a script of one: a pass at a time, never while a reply is written, within its memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import numpy as np
import pytest
import torch
from torch import nn

from app.model import memory
from learner import device, export, gate, scoring
from learner.contexts import load_served
from learner.device import SHARE, Borders, Device, Gpu, Processor
from learner.trainer import ADAPTER, Trainer, TrainSettings
from learner.yielding import Yielding, decoder_layers
from store import settings
from store.db import Store
from store.errors import LearnerError, ModelFileError
from store.types import UnitKind
from tests.leases import Free
from tests.test_learner_trainer import example, tiny


class ScriptedDevice:
    """Stands for a GPU: a pass that is handed over counts as under way until it is waited for."""

    borders = Borders.PASSES

    def __init__(self) -> None:
        self.under_way = 0
        self.most_at_once = 0
        self.passes = 0
        self.given_back = 0

    def place(self, model: Any) -> Any:
        next(decoder_layers(model)).register_forward_hook(self._handed_over)
        return model

    def _handed_over(self, *_pass: object) -> None:
        self.under_way += 1
        self.passes += 1
        self.most_at_once = max(self.most_at_once, self.under_way)

    def room(self) -> int | None:
        return None

    def finish(self) -> None:
        self.under_way = 0

    def give_back(self) -> None:
        self.given_back += 1


class Watched(Free):
    """A lease that is only ever looked at when nothing is being computed any more."""

    def __init__(self, on: ScriptedDevice) -> None:
        super().__init__()
        self._on = on

    def wait_until_free(self, max_wait: float) -> float:
        assert self._on.under_way == 0, "a reply would wait for what was handed over before"
        return super().wait_until_free(max_wait)


def trained(on: Device, lease: Free) -> Trainer:
    yielding = Yielding(lease)
    recipe = TrainSettings(rank=4, alpha=8, learning_rate=5e-2, max_epochs=3, learned_loss=0.0)
    examples = [example("a"), example("b", UnitKind.THUMB_DOWN), example("c")]
    with yielding.on(on):
        trainer = Trainer(on.place(tiny()), recipe, [[1, 2, 3, 4, 5]], yielding, lambda *_: None)
        held_out = example("d")
        trainer.run(examples, lambda: gate.preference(trainer.model, held_out))
        with yielding.inside(decoder_layers(trainer.model)):
            gate.measure_drift(trainer.model, [[1, 2, 3, 4]], yielding.border)
    return trainer


def test_one_pass_is_handed_over_at_a_time_and_waited_for_before_the_lease_is_looked_at() -> None:
    gpu = ScriptedDevice()
    lease = Watched(gpu)
    trainer = trained(gpu, lease)
    assert gpu.passes > 10
    assert gpu.most_at_once == 1
    assert gpu.passes <= lease.looks <= 2 * gpu.passes, "once a pass and once a border, never once a layer"
    plain = trained(Processor(), Free())
    for name, matrices in export.lora_matrices(plain.model, ADAPTER).items():
        for here, there in zip(matrices, export.lora_matrices(trainer.model, ADAPTER)[name], strict=True):
            assert np.array_equal(here, there), "where it is computed does not change what is learned"


class ScriptedCuda:
    """What is used of `torch.cuda`."""

    def __init__(self, free: int = 6, total: int = 8, available: bool = True) -> None:
        self.calls: list[tuple[str, object]] = []
        self.free, self.total, self.available = free, total, available

    def is_available(self) -> bool:
        return self.available

    def mem_get_info(self) -> tuple[int, int]:
        return self.free, self.total

    def set_per_process_memory_fraction(self, fraction: float) -> None:
        self.calls.append(("share", fraction))

    def synchronize(self) -> None:
        self.calls.append(("wait", None))

    def empty_cache(self) -> None:
        self.calls.append(("give back", None))


def test_its_share_is_taken_before_the_model_is_there() -> None:
    cuda = ScriptedCuda(free=6, total=8)

    class Model:
        def to(self, where: str) -> str:
            cuda.calls.append(("to", where))
            return "placed"

    gpu = Gpu(cuda)
    assert gpu.place(Model()) == "placed"
    gpu.finish()
    gpu.give_back()
    assert cuda.calls == [("share", SHARE * 6 / 8), ("to", "cuda"), ("wait", None), ("give back", None)]


def test_a_pass_may_take_what_the_model_left_of_the_share() -> None:
    cuda = ScriptedCuda(free=600, total=800)
    gpu = Gpu(cuda)
    gpu.place(SimpleNamespace(to=lambda _: None))
    cuda.free = 450
    assert gpu.room() == 150, "half of 600 is left to others"
    cuda.free = 200
    assert gpu.room() == 0
    available = memory.available_bytes()
    room = Processor().room()
    assert (room is None) == (available is None)
    if room is not None and available is not None:
        assert 0 < room < available


def test_where_there_is_none_it_is_said_and_what_to_do() -> None:
    with pytest.raises(LearnerError, match=r"no GPU .*config set learning\.device processor"):
        Gpu(ScriptedCuda(available=False))


def test_the_owner_chooses(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "cuda", ScriptedCuda())
    with device.chosen(store) as place:
        assert isinstance(place, Processor)
    settings.put(store, settings.LEARNING_DEVICE, settings.GPU)
    with device.chosen(store) as place:
        assert isinstance(place, Gpu)


def test_too_little_memory_is_said_in_words_and_what_there_was_is_given_back() -> None:
    gpu = ScriptedDevice()
    with (
        pytest.raises(LearnerError, match=r"too little .*learning\.device processor"),
        device.given_back(gpu),
    ):
        raise torch.OutOfMemoryError("CUDA out of memory")
    assert gpu.given_back == 1


def test_tokens_go_where_the_model_lies() -> None:
    """On torch's device without memory, which shows where a tensor is and computes nothing."""
    seen: list[torch.device] = []

    class Elsewhere(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.empty(1, device="meta"))

        def base_model(self, **given: Any) -> SimpleNamespace:
            seen.extend(tensor.device for tensor in given.values() if isinstance(tensor, torch.Tensor))
            return SimpleNamespace(last_hidden_state=torch.ones(1, 5, 2))

        def lm_head(self, hidden: torch.Tensor) -> torch.Tensor:
            return hidden

    [logits] = scoring.completion_logits(Elsewhere(), [([1, 2, 3], [4, 5])])
    assert [each.type for each in seen] == ["meta", "meta"]
    assert logits.device.type == "cpu"


def test_the_replies_that_teach_and_test_are_written_on_the_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def load(_path: bytes, params: Any) -> None:
        asked.append(params.n_gpu_layers)

    monkeypatch.setattr(llama_cpp, "llama_model_load_from_file", load)
    empty = tmp_path / "model.gguf"
    empty.write_bytes(b"")
    with pytest.raises(ModelFileError):
        load_served(empty)
    assert asked == [0]
