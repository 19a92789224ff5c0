"""Slots that no state of a batch uses are left out of the work, and change nothing."""

from __future__ import annotations

import pytest
import torch

from agents_setup import small_setup
from queuewise.agents.network import build_network
from queuewise.agents.observation_scaling import count_slots
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings


@pytest.mark.parametrize("used", [0, 1, 2, 6, 7])
def test_the_last_used_slot_is_found(used: int) -> None:
    rows = torch.zeros(3, 4 + 7 * 2 + 3)
    rows[:, -3:] = 1.0
    jobs = rows[:, 4:-3].view(3, 7, 2)
    jobs[1, :used, 0] = 1.0
    jobs[0, : used // 2, 0] = 1.0
    assert count_slots(rows.numpy(), 4, 7, 2) == max(used, 1)


@pytest.mark.parametrize("net", ["mlp", "kernel", "attn"])
def test_a_state_is_valued_alike_beside_longer_queues(net: str) -> None:
    """One state alone is worked on up to its last job; beside a full window, to the end. Gradients are the same too."""
    shape = TaskShape("job", small_setup().layout)
    network = build_network(net, shape, NetworkSettings(width=16), seed=0)
    random = torch.Generator().manual_seed(0)
    rows = torch.rand(2, shape.observation_size, generator=random)
    window, features = shape.layout.shapes["jobs"]
    first = 11 + shape.layout.units
    jobs = rows[:, first : first + window * features].view(2, window, features)
    jobs[:, :, 0] = 1.0
    jobs[0, 2:] = 0.0
    mask = torch.ones(2, shape.num_actions, dtype=torch.bool)
    mask[0, 2:-1] = False
    alone, beside = network(rows[:1], mask[:1]), network(rows, mask)
    for one, both in zip(alone, beside, strict=True):
        torch.testing.assert_close(one[0], both[0], rtol=1e-5, atol=1e-6)
    (alone[0][mask[:1]].sum() + alone[1].sum()).backward()
    expected = {name: weight.grad.clone() for name, weight in network.named_parameters() if weight.grad is not None}
    network.zero_grad()
    (beside[0][0][mask[0]].sum() + beside[1][0].sum()).backward()
    for name, weight in network.named_parameters():
        if name in expected:
            assert weight.grad is not None
            torch.testing.assert_close(weight.grad, expected[name], rtol=1e-4, atol=1e-6)
