"""Ways to need less memory that must teach the same: logits in chunks, layers made again, weights of fewer bits."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

from learner import activations, device, export, objectives, positions, precision, scoring
from learner.activations import Activations
from learner.positions import Positions
from learner.precision import Precision
from learner.trainer import ADAPTER, Trainer, TrainSettings, with_adapter
from learner.yielding import Yielding, decoder_layers
from store import settings
from store.db import Store
from store.errors import LearnerError, UsageError
from store.options import change
from store.types import UnitKind
from tests.leases import Free
from tests.test_learner_device import ScriptedCuda
from tests.test_learner_trainer import LAYERS, WORDS, example, tiny

TOKENS, WIDTH = 11, 6
KINDS = [
    example("a"),
    example("b", UnitKind.THUMB_DOWN),
    example("c", UnitKind.THUMB_DOWN, hint="h", hinted=[1, 30, 31, 3], accepted=([7, 8, 2], [9, 2])),
]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "CHUNK", 4)


def whole(measure: Callable[..., Tensor], said: Positions, *beside: Tensor | Positions) -> Tensor:
    """What `Positions.each` must equal: every logit at once, and autograd over all of it."""
    return measure(said.logits(), *(o.logits() if isinstance(o, Positions) else o for o in beside))


@pytest.mark.parametrize(
    "measure",
    [
        objectives.token_logprobs,
        objectives.forward_kl,
        partial(objectives.reverse_kl_topk, k=5),
        objectives.forward_kl_bins,
        objectives.reverse_kl_bins,
    ],
    ids=["log-probability", "forward", "reverse, top k", "forward, bins", "reverse, bins"],
)
def test_in_chunks_values_and_gradients_are_those_of_all_logits_at_once(
    small_chunks: None, measure: Callable[..., Tensor]
) -> None:
    chance = torch.Generator().manual_seed(4)
    head = nn.Linear(WIDTH, WORDS, bias=False, dtype=torch.float64).requires_grad_(False)
    hidden = torch.randn(TOKENS, WIDTH, generator=chance, dtype=torch.float64)
    teacher = Positions(torch.randn(TOKENS, WIDTH, generator=chance, dtype=torch.float64), head)
    likeliest = teacher.logits().log_softmax(-1).topk(5)
    beside: list[Any] = [teacher]
    if measure is objectives.token_logprobs:
        beside = [torch.randint(WORDS, (TOKENS,), generator=chance)]
    elif measure in (objectives.forward_kl_bins, objectives.reverse_kl_bins):
        beside = [likeliest.indices, likeliest.values]
    weights = torch.rand(TOKENS, generator=chance, dtype=torch.float64)
    found = []
    for way in (Positions.each, lambda said, *given: whole(given[0], said, *given[1:])):
        moved = hidden.clone().requires_grad_()
        values = way(Positions(moved, head), measure, *beside)
        torch.autograd.backward((values * weights).sum())
        assert moved.grad is not None
        found.append((values.detach(), moved.grad))
    assert found[0][0].shape == (TOKENS,)
    assert torch.allclose(found[0][0], found[1][0], atol=1e-12)
    assert torch.allclose(found[0][1], found[1][1], atol=1e-12)


def test_never_more_logits_exist_than_a_chunk_of_them(small_chunks: None) -> None:
    made: list[int] = []

    def head(hidden: Tensor) -> Tensor:
        made.append(len(hidden))
        return hidden

    said = Positions(torch.ones(TOKENS, WIDTH, requires_grad=True), head)
    said.each(objectives.forward_kl, said.kept())
    with torch.no_grad():
        said.each(objectives.token_logprobs, torch.zeros(TOKENS, dtype=torch.long))
    assert max(made) == 4
    assert sum(made) == 3 * TOKENS, "and none is made twice"


def test_no_positions_have_no_values() -> None:
    assert Positions(torch.ones(0, WIDTH), nn.Identity()).each(
        objectives.token_logprobs, torch.zeros(0).long()
    ).shape == (0,)


def stepped(room: int | None = None, base: Any = None, lease: Free | None = None) -> Trainer:
    """A trainer after two epochs over one example of each kind."""
    recipe = TrainSettings(rank=4, alpha=8, learning_rate=5e-3, max_epochs=2, learned_loss=0.0)
    made = Trainer(
        tiny() if base is None else base,
        recipe,
        [[1, 2, 3, 4, 5]],
        Yielding(lease or Free()),
        lambda *_: None,
        lambda: room,
    )
    made.run(KINDS, lambda: None)
    return made


def test_layers_that_are_made_again_teach_the_same_to_the_bit_and_are_borders_all_the_same() -> None:
    leases = Free(), Free()
    plain, thrifty = stepped(None, lease=leases[0]), stepped(0, lease=leases[1])
    for name, matrices in export.lora_matrices(plain.model, ADAPTER).items():
        for one, other in zip(matrices, export.lora_matrices(thrifty.model, ADAPTER)[name], strict=True):
            assert np.array_equal(one, other)
    assert leases[0].looks == leases[1].looks


def kept_by(model: Any) -> int:
    """Bytes that autograd keeps of a pass over 128 tokens, each piece of memory once, without the weights."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    seen: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            seen[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        # Held until it was counted: what is freed makes room for the next tensor at the same place.
        said = scoring.completions(model, [([1] * 32, [2] * 96)])
    assert len(said[0]) == 96
    return sum(seen.values())


def wider(layers: int, dtype: str = "float32") -> Any:
    config = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=96,
        intermediate_size=256,
        num_hidden_layers=layers,
        num_attention_heads=6,
        num_key_value_heads=2,
        attn_implementation="sdpa",
        dtype=dtype,
    )
    return LlamaForCausalLM._from_config(config).requires_grad_(False).eval()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_estimate_of_what_layers_keep_is_near_what_they_keep(dtype: str) -> None:
    recipe = TrainSettings(rank=8, alpha=8)
    few, many = (kept_by(with_adapter(wider(layers, dtype), recipe)) for layers in (2, 6))
    width = torch.finfo(getattr(torch, dtype)).bits // 8
    assert activations.kept_bytes(wider(4).config, 128, 8, width) == pytest.approx(many - few, rel=0.2)


def test_a_layer_that_is_made_again_keeps_only_what_came_into_it() -> None:
    recipe = TrainSettings(rank=8, alpha=8)
    plain, thrifty = with_adapter(wider(4), recipe), with_adapter(wider(4), recipe)
    activations.recompute(thrifty)
    assert kept_by(thrifty) < kept_by(plain) / 10


def test_layers_are_made_again_where_there_is_no_room_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    assert activations.choose(100, None) is Activations.KEPT
    assert activations.choose(100, 100) is Activations.KEPT
    assert activations.choose(101, 100) is Activations.RECOMPUTED
    asked: list[int] = []

    def note(_config: Any, tokens: int, *_: int) -> int:
        asked.append(tokens)
        return 0

    monkeypatch.setattr(activations, "kept_bytes", note)
    long = example("long", reply=KINDS[0].reply, prompt=[1] * 900)
    trainer = Trainer(tiny(), TrainSettings(rank=4), [], Yielding(Free()), lambda *_: None)
    trainer._activations(KINDS)
    trainer._activations([*KINDS, long])
    assert asked == [768, 2 * (900 + 5)], "a pass, or the longest example with both of its sequences"


def test_a_base_of_16_bits_has_an_adapter_of_32_and_learns() -> None:
    trainer = stepped(base=tiny().to(torch.bfloat16))
    types = {parameter.dtype for parameter in trainer.model.parameters() if parameter.requires_grad}
    assert types == {torch.float32}
    assert next(trainer.model.parameters()).dtype == torch.bfloat16
    near = export.lora_matrices(stepped().model, ADAPTER)
    for name, (_, up) in export.lora_matrices(trainer.model, ADAPTER).items():
        assert np.abs(up).max() > 0
        cosine = float((up * near[name][1]).sum() / np.linalg.norm(up) / np.linalg.norm(near[name][1]))
        assert cosine > 0.5, "the same lesson in fewer bits"


class Params4bit(nn.Parameter):
    """As bitsandbytes'; that one packs itself when it is moved."""

    quant_type = ""

    def __new__(cls, data: Tensor, requires_grad: bool, quant_type: str, module: Any = None) -> Any:
        made = super().__new__(cls, data, requires_grad)
        made.quant_type = quant_type
        return made


class Linear4bit(nn.Linear):
    def __init__(
        self, ins: int, outs: int, bias: bool, compute_dtype: torch.dtype, quant_type: str, device: str
    ) -> None:
        super().__init__(ins, outs, bias, device=device)
        self.compute_dtype = compute_dtype


@pytest.fixture
def bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """A script of the library, as far as it is used."""
    scripted = ModuleType("bitsandbytes")
    scripted.nn = ModuleType("bitsandbytes.nn")  # type: ignore[attr-defined]
    scripted.nn.Linear4bit = Linear4bit
    scripted.nn.Params4bit = Params4bit
    monkeypatch.setitem(sys.modules, "bitsandbytes", scripted)
    return scripted


def test_in_four_bits_every_linear_module_but_the_heads_is_the_librarys(bitsandbytes: ModuleType) -> None:
    plain = tiny().to(torch.bfloat16)
    packed = precision.in_four_bits(tiny().to(torch.bfloat16), bitsandbytes)
    of_library = [name for name, module in packed.named_modules() if isinstance(module, Linear4bit)]
    assert len(of_library) == 7 * LAYERS
    assert type(packed.lm_head) is nn.Linear
    assert packed.is_loaded_in_4bit
    weights: list[Any] = [each.weight for each in packed.modules() if isinstance(each, Linear4bit)]
    assert {(type(weight), weight.quant_type) for weight in weights} == {(Params4bit, "nf4")}
    ids = torch.tensor([[1, 2, 3]])
    # What the script does not pack computes what it did.
    assert torch.equal(packed(input_ids=ids).logits, plain(input_ids=ids).logits)


def test_what_four_bits_need_is_said_before_anything_is_computed(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert precision.chosen(store) is Precision.FLOAT32
    change(store, settings.PRECISION, "4bit")
    with pytest.raises(LearnerError, match=r"need a GPU: `mynah config set learning\.device gpu`"):
        precision.chosen(store)
    change(store, settings.LEARNING_DEVICE, "gpu")
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(LearnerError, match=r"pip install 'mynah-chat\[cuda\]'"):
        precision.chosen(store)

    def fails(_name: str) -> None:
        raise RuntimeError("no CUDA library")

    monkeypatch.setattr(precision.importlib, "import_module", fails)  # type: ignore[attr-defined]
    with pytest.raises(LearnerError, match=r"does not start here \(no CUDA library\)"):
        precision.chosen(store)
    with pytest.raises(LearnerError, match="finds no GPU"):
        device.Gpu(ScriptedCuda(available=False))
    with pytest.raises(UsageError, match="float32, bfloat16 or"):
        change(store, settings.PRECISION, "8bit")


def test_what_is_there_is_used(store: Store, bitsandbytes: ModuleType) -> None:
    change(store, settings.PRECISION, "4bit")
    change(store, settings.LEARNING_DEVICE, "gpu")
    assert precision.chosen(store) is Precision.FOUR_BIT
    assert precision.library() is bitsandbytes
    assert len(list(decoder_layers(tiny()))) == LAYERS
