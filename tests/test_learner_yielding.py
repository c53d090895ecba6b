"""The learner steps aside at borders and inside a step, and is not starved."""

from __future__ import annotations

import torch
from torch import nn

from learner.yielding import Yielding, decoder_layers
from tests.leases import ScriptedLease


def test_waiting_time_is_counted():
    yielding = Yielding(ScriptedLease(held_for=3))
    yielding.border()
    yielding.within()
    assert yielding.waited == 0.03


def test_after_a_full_wait_one_micro_batch_is_granted():
    lease = ScriptedLease(for_ever=True)
    yielding = Yielding(lease, max_wait=5.0)
    yielding.border()
    yielding.within()
    yielding.within()
    assert lease.looks == 1
    yielding.border()
    assert lease.looks == 2


def test_every_layer_is_a_border_forward_and_backward():
    blocks = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
    model = nn.Sequential(nn.Linear(4, 4), *blocks)
    model.register_module("blocks", blocks)
    lease = ScriptedLease()
    yielding = Yielding(lease)
    with yielding.inside(decoder_layers(model)):
        model[0](torch.ones(1, 4))
        lease.looks = 0
        hidden = torch.ones(1, 4, requires_grad=True)
        for block in blocks:
            hidden = block(hidden)
        assert lease.looks == 3
        hidden.sum().backward()
        assert lease.looks == 6
    blocks[0](torch.ones(1, 4))
    assert lease.looks == 6


def test_a_model_without_blocks_has_no_inner_borders():
    assert list(decoder_layers(nn.Linear(2, 2))) == []
