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
    likeliest = teacher.topk(min(k, teacher.shape[-1]), dim=-1)
    return reverse_kl_bins(student_logits, likeliest.indices, likeliest.values)


def reverse_kl_bins(student_logits: Tensor, support: Tensor, teacher: Tensor) -> Tensor:
    """The same where of the teacher only its likeliest tokens are known: student (T, V), the others (T, k) → (T,).

    ``support``: their ids, ``teacher``: its log-probabilities of them.
    """
    teacher_bins, student_bins = _with_tail(teacher), _binned(student_logits, support)
    return (student_bins.exp() * (student_bins - teacher_bins)).sum(-1)


def forward_kl_bins(student_logits: Tensor, support: Tensor, teacher: Tensor) -> Tensor:
    """KL(teacher ‖ student) at each position over the teacher's likeliest tokens and one bin for the rest.

    Shapes as in `reverse_kl_bins`. Never more than `forward_kl`: what the tail holds is not told apart.
    """
    teacher_bins, student_bins = _with_tail(teacher), _binned(student_logits, support)
    return (teacher_bins.exp() * (teacher_bins - student_bins)).sum(-1)


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
        terms |= preference(ratios, beta)
    return terms


def preference(ratios: tuple[Tensor, Tensor], beta: float) -> Terms:
    """One reply was preferred to another, and more is not known: ``ratios`` as in `correction`."""
    return {Term.PREFERENCE: bounded_preference(*ratios, beta)}


def opd(own: Tensor | None, accepted: Sequence[Tensor]) -> Terms:
    """On-policy distillation in its hindsight form; the teacher sees the hint.

    ``own``: reverse KL at each position of the reply as it was given. ``accepted``: forward KL at each position of the
    teacher's replies that passed the checks, one (T,) for each. Either may be missing, and its term with it.
    """
    terms: Terms = {}
    if own is not None:
        terms[Term.ON_POLICY] = own.mean()
    if accepted:
        terms[Term.DISTILL] = torch.stack([each.mean() for each in accepted]).mean()
    return terms


def combined(terms: Mapping[Term, Tensor], weights: Mapping[Term, float]) -> Tensor:
    """Weighted sum of scalar terms. Raises ValueError for no term, KeyError for a term without a weight."""
    if not terms:
        raise ValueError("an objective needs at least one term")
    return torch.stack([weights[name] * value for name, value in terms.items()]).sum()


def _binned(logits: Tensor, support: Tensor) -> Tensor:
    return _with_tail(functional.log_softmax(logits, -1).gather(-1, support))


def _with_tail(logprobs: Tensor) -> Tensor:
    mass = logprobs.logsumexp(-1, keepdim=True).clamp(max=_LOG_MASS_LIMIT)
    return torch.cat([logprobs, torch.log(-torch.expm1(mass))], dim=-1)
