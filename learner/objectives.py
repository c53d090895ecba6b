"""The learning objectives, as pure functions of log-probabilities and logits.

They hold no model, no batch and no state, so each can be checked by hand on tiny tensors, and against TRL where
TRL has it. Every preference-like term is bounded: an unbounded push away from a rejected reply is what made a
small model loop. Divergences over the top k tokens carry a tail bin for the rest, because a truncated reverse
KL without one rewards moving mass out of sight.

Shapes: T positions of one reply, V the vocabulary, B replies. Log-probabilities are natural logarithms. All
functions return a scalar or, where said, one value per position or reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import torch
from torch import Tensor
from torch.nn import functional

# Keeps log(1 - p) finite where the top k hold all of the mass in float32.
_LOG_MASS_LIMIT = -1e-7


class Term(StrEnum):
    """The parts of the combined objective."""

    NLL = "nll"
    PREFERENCE = "preference"
    BINARY = "binary"
    DISTILL = "distill"
    ON_POLICY = "on_policy"
    ANCHOR = "anchor"


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each target: logits (T, V), targets (T,) → (T,)."""
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(-1)


def weighted_nll(logprobs: Tensor, weights: Tensor) -> Tensor:
    """Mean negative log-likelihood of a reply under position weights: both (T,) → scalar.

    Raises ValueError when no position has weight, which would divide by zero.
    """
    total = weights.sum()
    if float(total) <= 0.0:
        raise ValueError("a reply needs at least one position with weight")
    return -(logprobs * weights).sum() / total


def apo_zero_unpaired(policy: Tensor, reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """APO-zero for unpaired replies, one loss per reply, in [0, 1]: summed log-probabilities and ±1 rewards, (B,).

    Good: 1 - σ(β·(log π - log π_ref)); bad: σ(β·(log π - log π_ref)). D'Oosterlinck et al. 2024,
    arXiv 2408.06266, in the unpaired form of TRL's KTOTrainer (``loss_type="apo_zero_unpaired"``).
    """
    return torch.sigmoid(-torch.sign(rewards) * beta * (policy - reference))


def bounded_preference(chosen_ratio: Tensor, rejected_ratio: Tensor, beta: float) -> Tensor:
    """Prefer one reply over another, in [0, 1]: log π - log π_ref of each, any equal shape → the same shape.

    1 - σ(β·(chosen - rejected)). DPO's logarithm is left out on purpose: its gradient never ends where the two
    replies share most of their text, as a correction and its reply do.
    """
    return torch.sigmoid(-beta * (chosen_ratio - rejected_ratio))


def forward_kl(student_logits: Tensor, teacher_logits: Tensor) -> Tensor:
    """KL(teacher ‖ student) at each position over the whole vocabulary: (T, V) twice → (T,)."""
    teacher = functional.log_softmax(teacher_logits, -1)
    student = functional.log_softmax(student_logits, -1)
    return (teacher.exp() * (teacher - student)).sum(-1)


def reverse_kl_topk(student_logits: Tensor, teacher_logits: Tensor, k: int) -> Tensor:
    """KL(student ‖ teacher) at each position over the teacher's top k tokens and one bin for the rest.

    (T, V) twice → (T,). The tail bin holds log(1 - Σ p) of each side.
    """
    teacher = functional.log_softmax(teacher_logits, -1)
    student = functional.log_softmax(student_logits, -1)
    support = teacher.topk(min(k, teacher.shape[-1]), dim=-1).indices
    teacher_bins = _with_tail(teacher.gather(-1, support))
    student_bins = _with_tail(student.gather(-1, support))
    return (student_bins.exp() * (student_bins - teacher_bins)).sum(-1)


def combined(terms: Mapping[Term, Tensor], weights: Mapping[Term, float]) -> Tensor:
    """Weighted sum of scalar terms. Raises ValueError for no term, KeyError for a term without a weight."""
    if not terms:
        raise ValueError("an objective needs at least one term")
    return torch.stack([weights[name] * value for name, value in terms.items()]).sum()


def _with_tail(logprobs: Tensor) -> Tensor:
    mass = logprobs.logsumexp(-1, keepdim=True).clamp(max=_LOG_MASS_LIMIT)
    return torch.cat([logprobs, torch.log(-torch.expm1(mass))], dim=-1)
