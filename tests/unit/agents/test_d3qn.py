"""D3QN: values, distributions, masks, determinism, resuming."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents_setup import small_settings, small_setup
from queuewise.agents.d3qn import D3qn
from queuewise.agents.learner import DivergedError
from queuewise.agents.training_envs import Step
from queuewise.agents.values import action_scores, dueling, expectation, project
from queuewise.errors import InputError
from queuewise.policies.networks.layers import ILLEGAL

SMALL = {"num_envs": 4, "steps": 8, "replay": 96, "first_frames": 64, "batch": 16, "n_step": 3}
VARIANTS: dict[str, dict[str, Any]] = {"plain": {}, "noisy": {"noisy": True}, "distributions": {"atoms": 11}}


def learner(seed: int = 0, *, net: str = "kernel", task: dict[str, Any] | None = None, **changes: Any) -> D3qn:
    return D3qn(small_setup(**task or {}), small_settings(algo="d3qn", net=net, d3qn=SMALL | changes), seed)


def iterate(d3qn: D3qn, number: int) -> D3qn:
    for _ in range(number):
        d3qn.iterate()
    return d3qn


def weights(d3qn: D3qn) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in d3qn.network.parameters()])


def test_dueling_by_hand() -> None:
    """The mean is over legal actions alone: (3 + 1) / 2 in the first row."""
    scores = torch.tensor([[3.0, ILLEGAL, 1.0], [4.0, 5.0, 9.0]]).unsqueeze(2)
    mask = torch.tensor([[True, False, True], [True, True, True]])
    result = dueling(scores, torch.tensor([[10.0], [20.0]]), mask).squeeze(2)
    assert result.tolist() == [[11.0, ILLEGAL, 9.0], [18.0, 19.0, 23.0]]


def test_means_of_distributions_by_hand() -> None:
    logits = torch.tensor([[[0.0, math.log(3.0)], [9.0, 9.0]]])
    assert expectation(logits, torch.tensor([[True, False]]), -1.0, 1.0).tolist() == [[pytest.approx(0.5), ILLEGAL]]


def test_projection_by_hand() -> None:
    """Points 0, 1, 2. Mass ½ moves to 0.25, ¼ to 1.5, ¼ beyond the end."""
    result = project(torch.tensor([[0.25, 1.5, 7.0]]), torch.tensor([[0.5, 0.25, 0.25]]), 0.0, 2.0)
    assert result.tolist() == [[pytest.approx(0.375), pytest.approx(0.125 + 0.125), pytest.approx(0.125 + 0.25)]]


def test_the_best_of_a_distribution_has_the_highest_mean_and_is_legal() -> None:
    class Fixed:
        outputs = 3

        def __call__(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
            sure, wide, best = [0.0, 5.0, 0.0], [5.0, 0.0, 5.1], [0.0, 0.0, 9.0]
            return torch.tensor([[sure, wide, best]]), torch.zeros(1, 3)

    masks = [torch.tensor([mask]) for mask in ([True] * 3, [True, True, False])]
    chosen = [action_scores(Fixed(), torch.zeros(1, 1), mask).argmax().item() for mask in masks]  # type: ignore[arg-type]
    assert chosen == [2, 1]


def test_targets_by_hand() -> None:
    """Two legal actions ahead: the present network prefers the first, the target values it at 1, the other at 8. An end counts nothing."""
    d3qn = iterate(learner(), 1)
    d3qn.unit = 2.0
    batch = d3qn.replay.draw(2, 1.0, d3qn.random)
    batch = batch._replace(returns=torch.tensor([6.0, 6.0]), discounts=torch.tensor([0.5, 0.0]))
    ahead = torch.full((2, d3qn.envs.shape.num_actions, 1), ILLEGAL)
    present, target = ahead.clone(), ahead.clone()
    present[:, :2, 0], target[:, :2, 0] = torch.tensor([3.0, 2.0]), torch.tensor([1.0, 8.0])
    expected = torch.full((2, d3qn.envs.shape.num_actions, 1), 0.75)
    answers = iter([expected, present, target])
    d3qn._outputs = lambda *_: next(answers)  # type: ignore[method-assign]
    losses, errors, said, aimed = d3qn._losses(batch)
    assert errors.tolist() == pytest.approx([3.5 - 0.75, 3.0 - 0.75])
    assert losses.tolist() == pytest.approx([2.75 - 0.5, 2.25 - 0.5])  # beyond 1 the loss is linear
    assert (said.item(), aimed.item()) == pytest.approx((0.75, 3.25))


def test_what_is_remembered_of_an_episode_that_was_cut_off_counts_its_rest() -> None:
    """Three environments: one goes on, one ended, one was cut off. What is expected of the next state counts 0.9, 0 and 0.9."""
    step = Step(np.ones(3), np.array([False, True, True]), np.ones(3), np.array([2]), torch.zeros(1, 1), torch.ones(1, 2) > 0, [])
    d3qn: Any = object.__new__(D3qn)
    d3qn._row, d3qn._mask, d3qn.frames, d3qn._logs = torch.zeros(3, 1), torch.ones(3, 2) > 0, 0, [SimpleNamespace(actions=[])]
    d3qn._own = SimpleNamespace(gamma=0.9, num_envs=3)
    remembered: list[Any] = []
    d3qn.replay = SimpleNamespace(add=lambda *row: remembered.append(row), rows=99)
    settings = SimpleNamespace(discount_per_s=0.0)
    d3qn.envs = SimpleNamespace(step=lambda *_: step, setup=SimpleNamespace(settings=settings))
    d3qn._step(torch.zeros(3, dtype=torch.int64))
    assert remembered[0][3].tolist() == [0.9, 0.0, 0.9]


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (weights(iterate(learner(seed), 2)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("iterations", [1, 7])  # before a ring is full, and when all has been overwritten
def test_resuming_goes_on_to_the_bit(variant: str, iterations: int) -> None:
    changes: dict[str, Any] = {"task": {"max_steps": 20}, **VARIANTS[variant]}  # cut off often
    straight = iterate(learner(**changes), iterations)
    state = straight.state()
    iterate(straight, 2)  # what happens later does not touch the state that was told
    resumed = learner(**changes)
    resumed.restore(state)
    iterate(resumed, 2)
    ends = [one.state() for one in (straight, resumed)]
    assert ends[0].facts == ends[1].facts
    assert ends[0].facts["frames"] == 64 + (iterations + 2) * 32
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name


@pytest.mark.parametrize("variant", VARIANTS)
def test_only_legal_actions_are_played_and_learnt(variant: str) -> None:
    d3qn = iterate(learner(epsilon=0.3, **VARIANTS[variant]), 3)
    batch = d3qn.replay.draw(64, 1.0, d3qn.random)
    assert batch.masks.gather(1, batch.actions.unsqueeze(1)).all()
    assert (~batch.masks).any()


def test_epsilon_and_importance_follow_their_schedules() -> None:
    d3qn = learner(epsilon=0.9, final_epsilon=0.1, explore=0.5, importance=0.4)
    d3qn.total_frames = 1000
    told = []
    for d3qn.frames in (0, 250, 500, 1000):
        told.append((d3qn.epsilon, d3qn.importance))
    assert np.array(told).T.tolist() == [pytest.approx([0.9, 0.5, 0.1, 0.1]), pytest.approx([0.4, 0.55, 0.7, 1.0])]


def test_the_target_network_follows_or_is_copied() -> None:
    """An iteration is eight gradient steps: copied after the last, after the sixth, or drawn near at each."""

    def apart(**changes: Any) -> float:
        d3qn = iterate(learner(**changes), 1)
        return max(float((a - b).detach().abs().max()) for a, b in zip(d3qn.target.parameters(), d3qn.network.parameters(), strict=True))

    assert apart(target_every=4, target_share=1.0) == 0.0
    assert 0.0 < apart(target_every=3, target_share=1.0) < apart(target_share=0.005)


@pytest.mark.parametrize("net", ["mlp", "kernel", "attn"])
def test_a_smaller_unit_changes_no_value_in_rewards(net: str) -> None:
    """The rewards of recent play deviate far less than those of random play did: values are in the new unit."""
    d3qn = iterate(learner(net=net), 1)
    batch = d3qn.replay.draw(16, 1.0, d3qn.random)

    def in_rewards() -> list[Tensor]:
        with torch.no_grad():
            told = [dueling(*network.forward(batch.observations, batch.masks), batch.masks) for network in (d3qn.network, d3qn.target)]
        return [values.squeeze(2)[batch.masks] * d3qn.unit for values in told]

    d3qn.unit *= 50.0
    before, unit = in_rewards(), d3qn.unit
    d3qn._update_unit()
    assert d3qn.unit == pytest.approx(float(d3qn.replay.discounted_returns(32).std()))
    assert d3qn.unit < unit / 2
    for old, new in zip(before, in_rewards(), strict=True):
        assert torch.allclose(old, new, rtol=1e-4, atol=1e-5 * unit)
    again = d3qn.unit
    d3qn._update_unit()  # nothing more to change
    assert d3qn.unit == again


def test_a_loss_that_is_no_number_changes_no_weight() -> None:
    d3qn = iterate(learner(), 1)
    with torch.no_grad():
        next(d3qn.network.parameters())[0, 0] = torch.nan
    before = weights(d3qn)
    with pytest.raises(DivergedError, match="iteration 2, gradient step 9"):
        d3qn.iterate()
    assert torch.equal(before.nan_to_num(), weights(d3qn).nan_to_num())


def test_a_replay_smaller_than_what_is_played_first_is_refused() -> None:
    with pytest.raises(InputError, match=r"first_frames 65 does not fit a replay buffer of 64 states .*from 16 "):
        learner(first_frames=65, replay=64)
