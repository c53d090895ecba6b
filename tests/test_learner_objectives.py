"""Objectives on tensors small enough to work out by hand, and against TRL where TRL has the same loss."""

from __future__ import annotations

import math
import warnings
from collections import defaultdict
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from learner import objectives
from learner.objectives import Term


def test_token_logprobs_are_those_of_a_softmax():
    logits = torch.tensor([[0.0, math.log(3.0)], [2.0, 2.0]])
    found = objectives.token_logprobs(logits, torch.tensor([1, 0]))
    assert found.tolist() == pytest.approx([math.log(0.75), math.log(0.5)])


def test_weighted_nll_leaves_out_positions_without_weight():
    logprobs = torch.tensor([-1.0, -100.0, -3.0])
    assert float(objectives.weighted_nll(logprobs, torch.tensor([1.0, 0.0, 3.0]))) == pytest.approx(2.5)


def test_weighted_nll_refuses_a_reply_without_weight():
    with pytest.raises(ValueError, match="at least one position"):
        objectives.weighted_nll(torch.tensor([-1.0]), torch.tensor([0.0]))


def test_apo_zero_pushes_good_up_and_bad_down_and_is_bounded():
    policy = torch.tensor([-5.0, -5.0], requires_grad=True)
    losses = objectives.apo_zero_unpaired(policy, torch.tensor([-5.0, -5.0]), torch.tensor([1.0, -1.0]), 0.1)
    losses.sum().backward()
    assert losses.tolist() == pytest.approx([0.5, 0.5])
    assert policy.grad is not None
    assert policy.grad[0] < 0 < policy.grad[1]
    far = objectives.apo_zero_unpaired(torch.tensor([-1e4]), torch.tensor([0.0]), torch.tensor([-1.0]), 0.1)
    assert 0.0 <= float(far) < 1e-6


def test_binary_equals_trl():
    """Same log-probabilities in, same loss and same gradient out, two good and three bad replies."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from trl import KTOTrainer
    generator = torch.Generator().manual_seed(3)
    per_token = -torch.rand(5, 6, generator=generator) * 4
    reference = -torch.rand(5, generator=generator) * 12
    labels = torch.tensor([True, False, False, True, False])

    theirs_in = per_token.clone().requires_grad_()
    theirs = KTOTrainer._compute_loss(
        _trl_self(0.1), lambda **_: _outputs(theirs_in), _batch(labels, reference), False
    )
    theirs.backward()

    ours_in = per_token.clone().requires_grad_()
    rewards = torch.where(labels, 1.0, -1.0)
    ours = objectives.binary(ours_in.sum(-1), reference, rewards, 0.1)[Term.BINARY]
    ours.backward()

    assert float(ours.detach()) == pytest.approx(float(theirs.detach()), abs=1e-6)
    assert ours_in.grad is not None
    assert theirs_in.grad is not None
    assert torch.allclose(ours_in.grad, theirs_in.grad, atol=1e-7)


def test_bounded_preference_is_half_at_the_start_and_stops_pushing():
    even = objectives.bounded_preference(torch.tensor(0.0), torch.tensor(0.0), 0.1)
    assert float(even) == pytest.approx(0.5)
    rejected = torch.tensor(-500.0, requires_grad=True)
    objectives.bounded_preference(torch.tensor(50.0), rejected, 0.1).backward()
    assert rejected.grad is not None
    assert float(rejected.grad) == pytest.approx(0.0, abs=1e-9)


def test_forward_kl_by_hand():
    student = torch.log(torch.tensor([[0.5, 0.5]]))
    teacher = torch.log(torch.tensor([[0.9, 0.1]]))
    expected = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    assert float(objectives.forward_kl(student, teacher)) == pytest.approx(expected)


def test_reverse_kl_with_every_token_is_the_whole_divergence():
    generator = torch.Generator().manual_seed(1)
    student, teacher = torch.randn(3, 7, generator=generator), torch.randn(3, 7, generator=generator)
    log_s, log_t = student.log_softmax(-1), teacher.log_softmax(-1)
    expected = (log_s.exp() * (log_s - log_t)).sum(-1)
    found = objectives.reverse_kl_topk(student, teacher, 6)
    # Six of seven tokens and a tail bin that holds exactly the seventh.
    assert torch.allclose(found, expected, atol=1e-5)


def test_reverse_kl_sees_mass_outside_the_top_tokens():
    teacher = torch.log(torch.tensor([[0.6, 0.3, 0.05, 0.05]]))
    outside = torch.log(torch.tensor([[0.06, 0.03, 0.455, 0.455]]))
    assert float(objectives.reverse_kl_topk(outside, teacher, 2)) > 1.0


@given(st.lists(st.floats(-8, 8), min_size=5, max_size=5), st.lists(st.floats(-8, 8), min_size=5, max_size=5))
def test_divergences_are_never_negative_and_zero_for_equals(one: list[float], other: list[float]):
    student, teacher = torch.tensor([one]), torch.tensor([other])
    assert float(objectives.forward_kl(student, teacher)) >= -1e-5
    assert float(objectives.reverse_kl_topk(student, teacher, 3)) >= -1e-5
    assert float(objectives.reverse_kl_topk(student, student, 3)) == pytest.approx(0.0, abs=1e-5)


def test_binary_is_the_mean_over_replies():
    policy, reference = torch.tensor([-2.0, -9.0]), torch.tensor([-4.0, -4.0])
    terms = objectives.binary(policy, reference, torch.tensor([1.0, -1.0]), 0.5)
    # Good: sigmoid(-0.5 * 2); bad: sigmoid(0.5 * -5).
    expected = (1 / (1 + math.exp(1.0)) + 1 / (1 + math.exp(2.5))) / 2
    assert set(terms) == {Term.BINARY}
    assert float(terms[Term.BINARY]) == pytest.approx(expected)


def test_correction_is_likelihood_and_a_preference_where_there_is_a_rejected_reply():
    chosen, weights = torch.tensor([-1.0, -3.0]), torch.tensor([1.0, 3.0])
    terms = objectives.correction(chosen, weights, (torch.tensor(2.0), torch.tensor(-3.0)), 0.2)
    assert set(terms) == {Term.NLL, Term.PREFERENCE}
    assert float(terms[Term.NLL]) == pytest.approx(2.5)
    assert float(terms[Term.PREFERENCE]) == pytest.approx(1 / (1 + math.exp(1.0)))
    assert set(objectives.correction(chosen, weights, None, 0.2)) == {Term.NLL}


def test_correction_raises_the_owners_text_and_lowers_the_rejected_reply():
    chosen = torch.tensor([-1.0, -2.0], requires_grad=True)
    rejected = torch.tensor(-4.0, requires_grad=True)
    terms = objectives.correction(chosen, torch.ones(2), (chosen.sum() + 3.0, rejected + 4.0), 0.1)
    objectives.combined(terms, {Term.NLL: 1.0, Term.PREFERENCE: 1.0}).backward()
    assert chosen.grad is not None
    assert rejected.grad is not None
    assert (chosen.grad < 0).all()
    assert rejected.grad > 0


def test_opd_takes_the_reply_backwards_and_the_teachers_replies_forwards():
    student = torch.log(torch.tensor([[0.5, 0.5]]))
    teacher = torch.log(torch.tensor([[0.9, 0.1]]))
    forward = 0.9 * math.log(0.9 / 0.5) + 0.1 * math.log(0.1 / 0.5)
    backward = 0.5 * math.log(0.5 / 0.9) + 0.5 * math.log(0.5 / 0.1)
    own = objectives.reverse_kl_topk(student, teacher, 1)
    same, other = objectives.forward_kl(teacher, teacher), objectives.forward_kl(student, teacher)
    terms = objectives.opd(own, [other, same])
    assert set(terms) == {Term.ON_POLICY, Term.DISTILL}
    assert float(terms[Term.ON_POLICY]) == pytest.approx(backward, abs=1e-5)
    assert float(terms[Term.DISTILL]) == pytest.approx(forward / 2)
    assert set(objectives.opd(own, [])) == {Term.ON_POLICY}
    assert set(objectives.opd(None, [other])) == {Term.DISTILL}
    assert objectives.opd(None, []) == {}


def test_combined_weighs_its_terms():
    terms = {Term.NLL: torch.tensor(2.0), Term.PREFERENCE: torch.tensor(0.5)}
    assert float(objectives.combined(terms, {Term.NLL: 1.0, Term.PREFERENCE: 0.4})) == pytest.approx(2.2)
    with pytest.raises(ValueError, match="at least one term"):
        objectives.combined({}, {})


def _batch(labels: torch.Tensor, reference: torch.Tensor) -> dict[str, torch.Tensor]:
    shape = (len(labels), 7)
    return {
        "label": labels,
        "ref_logps": reference,
        "input_ids": torch.ones(shape, dtype=torch.long),
        "attention_mask": torch.ones(shape, dtype=torch.long),
        "completion_mask": torch.ones(shape, dtype=torch.long),
    }


def _outputs(per_token: torch.Tensor) -> SimpleNamespace:
    return SimpleNamespace(log_probs=per_token, entropy=per_token, mean_logits=per_token)


def _trl_self(beta: float) -> SimpleNamespace:
    """What TRL's loss reads of its trainer, on one process and with reference log-probabilities given."""
    return SimpleNamespace(
        model=SimpleNamespace(training=True),
        accelerator=SimpleNamespace(device=torch.device("cpu"), gather_for_metrics=lambda value: value),
        _compute_kl_logps=lambda *_: None,
        aux_loss_enabled=False,
        precompute_ref_logps=True,
        calculate_KL=False,
        loss_type="apo_zero_unpaired",
        beta=beta,
        desirable_weight=1.0,
        undesirable_weight=1.0,
        _metrics=defaultdict(lambda: defaultdict(list)),
        _total_train_tokens=0,
        _tp_size=1,
        state=SimpleNamespace(num_input_tokens_seen=0),
    )
