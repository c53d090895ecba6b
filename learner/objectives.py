"""The learning objectives, as pure functions of log-probabilities and logits.

They hold no model, no batch and no state, so each can be checked by hand on tiny tensors, and against TRL where
TRL has it. Every preference-like term is bounded: an unbounded push away from a rejected reply is what made a
small model loop. Divergences over the top k tokens carry a tail bin for the rest, because a truncated reverse
KL without one rewards moving mass out of sight.

The objectives are `binary` (thumbs), `correction` (the owner's text) and `opd` (on-policy distillation from a hint):
each makes its terms, unweighted, and `combined`, which is what the trainer descends, weighs whatever terms there are.

Shapes: T positions of one reply, V the vocabulary, B replies. Log-probabilities are natural logarithms. All
functions return a scalar or, where said, one value per position or reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


Terms = dict[Term, Tensor]
Sides = tuple[Tensor, Tensor]
"""Student's and teacher's logits on the same reply, (T, V) each."""


def token_logprobs(logits: Tensor, targets: Tensor) -> Tensor:
    """Log-probability of each target: logits (T, V), targets (T,) → (T,).

    Raises ValueError where there are not as many targets as positions: padding one of them would be learned.
    """
    if logits.shape[:-1] != targets.shape:
        raise ValueError(f"{targets.numel()} targets for {logits.shape[0]} positions")
    chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    return chosen - logits.logsumexp(-1)


def weighted_nll(logprobs: Tensor, weights: Tensor) -> Tensor:
    """Mean negative log-likelihood of a reply under position weights: both (T,) → scalar.

    Raises ValueError when no position has weight, which would divide by zero, or there is not one for each.
    """
    if logprobs.shape != weights.shape:
        raise ValueError(f"{weights.numel()} weights for {logprobs.numel()} positions")
    total = weights.sum()
    if float(total) <= 0.0:
        raise ValueError("a reply needs at least one position with weight")
    return -(logprobs * weights).sum() / total


def apo_zero_unpaired(policy: Tensor, reference: Tensor, rewards: Tensor, beta: float) -> Tensor:
    """APO-zero for unpaired replies, one loss per reply, in [0, 1]: summed log-probabilities and ±1 rewards, (B,).

    Good: 1 - σ(β·(log π - log π_ref)); bad: σ(β·(log π - log π_ref)). D'Oosterlinck et al. 2024,
    arXiv 2408.06266, in the unpaired form of TRL's KTOTrainer (``loss_type="apo_zero_unpaired"``). Each reply stands
    for itself: where all rewards are the same there is a gradient all the same.

    Raises ValueError for a reward of zero, which would be a constant without a gradient.
    """
    if bool((rewards == 0).any()):
        raise ValueError("a reply without a reward teaches nothing: leave it out")
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


def binary(policy: Tensor, reference: Tensor, rewards: Tensor, beta: float) -> Terms:
    """Bare thumbs: the mean of `apo_zero_unpaired` over replies, (B,) each."""
    return {Term.BINARY: apo_zero_unpaired(policy, reference, rewards, beta).mean()}


def correction(chosen: Tensor, weights: Tensor, ratios: tuple[Tensor, Tensor] | None, beta: float) -> Terms:
    """The owner's text: its likelihood, and a bounded preference over the reply it replaces.

    ``chosen``: log-probabilities of the owner's text, ``weights``: of its positions, both (T,). ``ratios``: summed
    log π - log π_ref of the owner's text and of the rejected reply from where they part; None leaves the preference
    out.
    """
    terms = {Term.NLL: weighted_nll(chosen, weights)}
    if ratios is not None:
        terms[Term.PREFERENCE] = bounded_preference(*ratios, beta)
    return terms


def opd(own: Sides | None, accepted: Sequence[Sides], k: int) -> Terms:
    """On-policy distillation in its hindsight form; the teacher is the frozen base that sees the hint.

    ``own``: the reply's own tokens, by reverse KL over the teacher's top ``k``. ``accepted``: the teacher's replies
    that passed the checks, by forward KL. Either may be missing, and its term with it.
    """
    terms: Terms = {}
    if own is not None:
        terms[Term.ON_POLICY] = reverse_kl_topk(*own, k).mean()
    if accepted:
        terms[Term.DISTILL] = torch.stack([forward_kl(*sides).mean() for sides in accepted]).mean()
    return terms


def combined(terms: Mapping[Term, Tensor], weights: Mapping[Term, float]) -> Tensor:
    """Weighted sum of scalar terms. Raises ValueError for no term, KeyError for a term without a weight."""
    if not terms:
        raise ValueError("an objective needs at least one term")
    return torch.stack([weights[name] * value for name, value in terms.items()]).sum()


def _with_tail(logprobs: Tensor) -> Tensor:
    mass = logprobs.logsumexp(-1, keepdim=True).clamp(max=_LOG_MASS_LIMIT)
    return torch.cat([logprobs, torch.log(-torch.expm1(mass))], dim=-1)
