"""The divergences against TRL's own functions, and the trainer's gradient against finite differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from learner import objectives, scoring
from learner.examples import Example, Target
from learner.trainer import Trainer, TrainSettings
from learner.yielding import Yielding
from store.types import UnitKind
from tests.leases import Free
from tests.test_learner_trainer import example, tiny

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from trl.experimental.gkd import GKDTrainer
    from trl.experimental.sdpo import loss_utils

POSITIONS, VOCABULARY, TOP = 6, 40, 8


def sides(seed: int) -> tuple[Tensor, Tensor]:
    """Logits of a student and a teacher whose likeliest eight tokens are the same ones, as TRL and we name them."""
    chance = torch.Generator().manual_seed(seed)
    both = torch.randn(2, POSITIONS, VOCABULARY, generator=chance, dtype=torch.float64)
    both[:, :, :TOP] += 12.0
    return both[0], both[1]


def full(alpha: float) -> Callable[[Tensor, Tensor], Any]:
    return lambda student, teacher: loss_utils.compute_full_logit_self_distillation_loss(
        student, teacher, distillation_alpha=alpha
    )


def with_tail(student: Tensor, teacher: Tensor) -> Any:
    return loss_utils.compute_topk_self_distillation_loss(
        student, teacher, distillation_topk=TOP, distillation_alpha=1.0, distillation_add_tail=True
    )


def generalized(student: Tensor, teacher: Tensor) -> Any:
    """GKD's divergence at beta 0, KL(teacher ‖ student), one value for each position."""
    each = GKDTrainer.generalized_jsd_loss(student[None], teacher[None], beta=0, reduction="none")
    return each[0].sum(-1)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (objectives.forward_kl, full(0.0)),
        (objectives.forward_kl, generalized),
        (lambda student, teacher: objectives.reverse_kl_topk(student, teacher, TOP), with_tail),
        (lambda student, teacher: objectives.reverse_kl_topk(student, teacher, VOCABULARY), full(1.0)),
    ],
    ids=["forward, self-distillation", "forward, generalized JSD", "reverse, top k and tail", "reverse, all"],
)
@pytest.mark.parametrize("seed", range(3))
def test_divergences_and_their_gradients_equal_trl(ours, theirs, seed: int):
    student, teacher = sides(seed)
    values: list[Tensor] = []
    gradients: list[Tensor] = []
    for loss in (ours, theirs):
        moved = student.clone().requires_grad_()
        made = loss(moved, teacher)
        made.mean().backward()
        values.append(made.detach())
        assert moved.grad is not None
        gradients.append(moved.grad)
    assert values[0].shape == (POSITIONS,)
    # With every token in the support the tail is a mass of nothing, which both sides clamp at 1e-7.
    assert torch.allclose(values[0], values[1], atol=1e-5)
    assert torch.allclose(gradients[0], gradients[1], atol=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_the_bounded_preference_is_dpos_probability_of_being_wrong(seed: int):
    """DPO's loss is -log σ(β·Δ) (arXiv 2305.18290, eq. 7), ours 1 - σ(β·Δ): its gradient ends where DPO's does not."""
    chance = torch.Generator().manual_seed(seed)
    wanted, other = torch.randn(2, 5, generator=chance) * 20
    dpo = -torch.nn.functional.logsigmoid(0.1 * (wanted - other))
    assert torch.allclose(objectives.bounded_preference(wanted, other, 0.1), 1 - torch.exp(-dpo), atol=1e-6)


def norm(self: LlamaRMSNorm, hidden: Tensor) -> Any:
    """The library's, which computes in float32 whatever it is given: too coarse for small differences."""
    return self.weight * hidden * torch.rsqrt(hidden.square().mean(-1, keepdim=True) + self.variance_epsilon)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> Trainer:
    """A trainer of a tiny model in double precision whose adapter has moved already."""
    monkeypatch.setattr(LlamaRMSNorm, "forward", norm)
    settings = TrainSettings(rank=4, alpha=8, preference_reach=2)
    made = Trainer(tiny().double(), settings, [[1, 2, 3, 4, 5]], Yielding(Free()), lambda *_: None)
    made.model.double()
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in parameters(made):
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return made


def parameters(of: Trainer) -> list[torch.nn.Parameter]:
    return [parameter for parameter in of.model.parameters() if parameter.requires_grad]


def loss_of(of: Trainer, one: Example) -> Tensor:
    parts = of._parts(one)
    said = scoring.completions(of.model, list(parts.values()))
    return of._loss(one, dict(zip(parts, said, strict=True)))[0]


LATE = Target([21, 5, 6, 7, 9, 2], [0.1, 0.1, 0.1, 1.0, 1.0, 4.0])
KINDS = {
    "correction": example("a"),
    "correction that parts late": example("a", chosen=LATE, reply=Target([21, 5, 6, 8, 2], [1.0] * 5)),
    "thumb up": example("b", UnitKind.THUMB_UP),
    "thumb down": example("b", UnitKind.THUMB_DOWN),
    "hint, two accepted": example(
        "c",
        UnitKind.THUMB_DOWN,
        hint="h",
        hinted=[1, 30, 31, 3],
        accepted=([7, 8, 2], [9, 2]),
    ),
    "hint, none accepted": example("c", UnitKind.THUMB_DOWN, hint="h", hinted=[1, 30, 31, 3]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_of_an_example_is_that_of_finite_differences(exact: Trainer, kind: str):
    teaching, one = exact, KINDS[kind]
    moved = parameters(teaching)
    gradients = torch.autograd.grad(loss_of(teaching, one), moved)
    torch.manual_seed(11)
    for _ in range(3):
        direction = [torch.randn_like(parameter) for parameter in moved]
        ahead, behind = (shifted_loss(teaching, one, direction, step) for step in (1e-5, -1e-5))
        slope = sum(float((gradient * way).sum()) for gradient, way in zip(gradients, direction, strict=True))
        assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-4, abs=1e-7)
        assert abs(slope) > 1e-6


def shifted_loss(of: Trainer, one: Example, direction: list[Tensor], step: float) -> float:
    with torch.no_grad():
        shift(of, direction, step)
        value = float(loss_of(of, one))
        shift(of, direction, -step)
    return value


def shift(of: Trainer, direction: list[Tensor], step: float) -> None:
    for parameter, way in zip(parameters(of), direction, strict=True):
        parameter.add_(way, alpha=step)


def test_a_steps_gradient_is_the_weighted_mean_of_its_examples_and_the_anchor(exact: Trainer):
    teaching = exact
    batch = [KINDS["correction"], example("d", weight=0.5), KINDS["thumb down"]]
    teaching._backward(batch, 0)
    made = [parameter.grad for parameter in parameters(teaching)]
    weights = [each.weight for each in batch]
    losses = torch.stack(
        [loss_of(teaching, each) * weight for each, weight in zip(batch, weights, strict=True)]
    )
    anchor = scoring.completion_logits(teaching.model, [teaching._anchors[0]])[0]
    drift = objectives.forward_kl(anchor, teaching._anchored(0).logits()).mean()
    expected = torch.autograd.grad(losses.sum() / sum(weights) + drift, parameters(teaching))
    for ours, theirs in zip(made, expected, strict=True):
        assert ours is not None
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-8)
