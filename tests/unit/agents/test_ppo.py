"""PPO: determinism, resuming, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from agents_setup import small_settings, small_setup
from queuewise.agents.learner import DivergedError
from queuewise.agents.ppo import Ppo
from queuewise.errors import InputError


def learner(seed: int = 0, task: dict[str, Any] | None = None, **changes: Any) -> Ppo:
    return Ppo(small_setup(**task or {}), small_settings(**changes), seed)


STOPPING = {"stops": 3, "moves": True}


def weights(ppo: Ppo) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in ppo.network.parameters()])


def iterate(ppo: Ppo, number: int) -> Ppo:
    for _ in range(number):
        ppo.iterate()
    return ppo


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (weights(iterate(learner(seed), 3)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(
    ("net", "task"), [("mlp", {}), ("kernel", {}), ("attn", {}), ("kernel", STOPPING), ("attn", STOPPING), ("mlp", {"view": "rltune"})]
)
def test_resuming_goes_on_to_the_bit(net: str, task: dict[str, Any]) -> None:
    straight = iterate(learner(net=net, task=task), 8)
    before = iterate(learner(net=net, task=task), 5)
    state = before.state()
    before.iterate()  # what happens later does not touch the state that was told
    resumed = learner(net=net, task=task)
    resumed.restore(state)
    iterate(resumed, 3)
    assert torch.equal(weights(straight), weights(resumed))
    assert straight.frames == resumed.frames == 8 * 64
    ends = [ppo.state() for ppo in (straight, resumed)]
    assert ends[0].facts == ends[1].facts
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name


@pytest.mark.parametrize("task", [{}, STOPPING])
def test_only_legal_actions_are_played(task: dict[str, Any]) -> None:
    ppo = iterate(learner(task=task), 4)
    for worker in ppo.pool.workers:
        rollout = worker.rollout
        assert rollout.masks[:-1].gather(2, rollout.actions.unsqueeze(2)).all()
        assert (~rollout.masks[:-1]).any()  # some were not legal


def test_a_loss_that_is_no_number_changes_no_weight() -> None:
    ppo = learner(ppo={"learning_rate": 1e-3})
    iterate(ppo, 1)
    with torch.no_grad():
        next(ppo.network.parameters())[0, 0] = torch.nan
    before = weights(ppo)
    with pytest.raises(DivergedError, match="iteration 2, epoch 1, minibatch 1"):
        ppo.iterate()
    assert torch.equal(before.nan_to_num(), weights(ppo).nan_to_num())


def test_pieces_of_a_minibatch_add_up_to_the_same_gradient() -> None:
    whole, pieces = (iterate(learner(ppo={"accumulate": number}), 2) for number in (1, 4))
    assert torch.allclose(weights(whole), weights(pieces), atol=1e-5)


def test_a_small_target_of_divergence_ends_the_update() -> None:
    held = learner(ppo={"target_kl": 1e-7, "learning_rate": 1e-2})
    assert held.iterate()["gradient/steps"] < 4
    assert learner(ppo={"learning_rate": 1e-2}).iterate()["gradient/steps"] == 4


@pytest.mark.parametrize(
    ("ppo", "message"),
    [
        ({"minibatch": 48}, r"minibatches of 48 .* can be 16, 32, 64"),
        ({"minibatch": 2, "accumulate": 2}, r"minibatches of 2 .* can be 4, 8, 16"),
        ({"num_envs": 3}, "3 environments cannot be divided among 2 workers"),
    ],
)
def test_impossible_splits_are_refused(ppo: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        learner(ppo=ppo)
