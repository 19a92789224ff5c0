"""PPO's loss, advantages and targets, worked out by hand: what the formulas say and not what the code does."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from agents_setup import small_setup
from queuewise.agents.algorithm_settings import PpoSettings
from queuewise.agents.ppo import LOSSES, Ppo, draw
from queuewise.agents.training_envs import Step, TrainingEnvs
from queuewise.agents.values import ReturnScale, advantages
from queuewise.agents.workers import Rollout, WorkerPool, shared_zeros
from queuewise.policies.networks.layers import ILLEGAL

LEARNT = {"value_weight": 0.5, "clip": 0.2, "normalise_values": False, "normalise_advantages": False}


def learner(**settings: Any) -> Any:
    """A learner without environments: its formulas only."""
    ppo: Any = object.__new__(Ppo)
    ppo.settings = PpoSettings(**LEARNT | settings)
    ppo.returns = ReturnScale()
    return ppo


def loss_of(
    ppo: Any,
    *,
    chances: list[list[float]] | None = None,
    old: list[float] | None = None,
    advantage: list[float] | None = None,
    value: float = 0.0,
    target: float = 0.0,
    old_value: float = 0.0,
    entropy: float = 0.0,
    temperature: float = 1.0,
    logits: Tensor | None = None,
) -> SimpleNamespace:
    """The loss of frames in which action 0 was played with probability `old` and now has the first of `chances`, with its gradients."""
    chances = chances if chances is not None else [[0.5, 0.5]]
    num = len(chances)
    scores = torch.tensor(chances).log() if logits is None else logits
    scores.requires_grad_(True)
    values = torch.full((num,), value, requires_grad=True)
    played = torch.tensor(old).log() if old is not None else torch.tensor([row[0] for row in chances]).log()
    gains = torch.tensor(advantage) if advantage is not None else torch.zeros(num)
    rows = (
        torch.zeros(num, 1), torch.ones(num, scores.shape[1], dtype=torch.bool), torch.zeros(num, dtype=torch.int64), played, gains,
        torch.full((num,), target), torch.full((num,), old_value),
    )  # fmt: skip
    worker = SimpleNamespace(
        rollout=SimpleNamespace(rows=lambda chosen: rows), network=SimpleNamespace(policy=lambda observations, masks: (scores, values))
    )
    loss, figures = ppo._loss(worker, torch.arange(num), entropy, temperature)
    loss.backward()
    return SimpleNamespace(total=float(loss.detach()), logits=scores.grad, values=values.grad, **named(figures))


def named(figures: Tensor) -> dict[str, float]:
    return {
        name.partition("/")[2] + "_loss" * name.startswith("loss/"): value for name, value in zip(LOSSES, figures.tolist(), strict=True)
    }


# --- the policy


@pytest.mark.parametrize(
    ("new", "old", "advantage", "objective", "slope"),
    [
        (0.6, 0.4, 2.0, 2.4, 0.0),  # ratio 1.5, a good action: counted up to 1.2, and no further reason to go on
        (0.6, 0.4, -2.0, -3.0, 1.2),  # ratio 1.5, a bad action: all of it counts, −1.5 · 2; slope 2 · 1.5 · (1 − 0.6)
        (0.3, 0.6, 2.0, 1.0, -0.7),  # ratio 0.5, a good action: all of it counts; slope −2 · 0.5 · (1 − 0.3)
        (0.3, 0.6, -2.0, -1.6, 0.0),  # ratio 0.5, a bad action: counted down to 0.8, and no further reason to go on
        (0.55, 0.5, 2.0, 2.2, -0.99),  # ratio 1.1: within the bounds; slope −2 · 1.1 · (1 − 0.55)
        (0.45, 0.5, -2.0, -1.8, 0.99),  # ratio 0.9: within the bounds; slope 2 · 0.9 · (1 − 0.45)
    ],
)
def test_the_ratio_is_clipped_on_the_side_that_gains(new: float, old: float, advantage: float, objective: float, slope: float) -> None:
    """The least of ratio · A and clipped ratio · A; the slope is by the logit of the action, p' = p (1 − p)."""
    found = loss_of(learner(), chances=[[new, 1 - new]], old=[old], advantage=[advantage])
    assert found.policy_loss == pytest.approx(-objective, rel=1e-5)
    assert found.total == pytest.approx(-objective, rel=1e-5)
    assert float(found.logits[0, 0]) == pytest.approx(slope, abs=1e-5)
    assert float(found.logits[0, 1]) == pytest.approx(-slope, abs=1e-5)


def test_frames_are_averaged_and_the_moved_are_counted() -> None:
    """Ratios 1.5, 0.5 and 1.1 with advantages 2, −2 and 2: objectives 2.4, −1.6 and 2.2. Divergence: r − 1 − ln r."""
    found = loss_of(learner(), chances=[[0.6, 0.4], [0.3, 0.7], [0.55, 0.45]], old=[0.4, 0.6, 0.5], advantage=[2.0, -2.0, 2.0])
    assert found.policy_loss == pytest.approx(-(2.4 - 1.6 + 2.2) / 3, rel=1e-5)
    assert found.clip_fraction == pytest.approx(2 / 3)
    assert found.kl == pytest.approx(((0.5 - 0.405465) + (-0.5 + 0.693147) + (0.1 - 0.095310)) / 3, abs=1e-5)


def test_the_temperature_divides_the_logits() -> None:
    """p = (0.8, 0.2) at temperature 2 is (2, 1) ÷ 3, since √4 = 2."""
    found = loss_of(learner(), chances=[[0.8, 0.2]], old=[2 / 3], advantage=[3.0], temperature=2.0)
    assert found.policy_loss == pytest.approx(-3.0, rel=1e-5)
    assert found.kl == pytest.approx(0.0, abs=1e-6)


# --- the entropy


def test_entropy_is_rewarded() -> None:
    """p = (0.8, 0.2): H = 0.500402, dH/dz₀ = −0.8 (ln 0.8 + H) = −0.221807. The likelier action's logit is to fall."""
    found = loss_of(learner(), chances=[[0.8, 0.2]], entropy=0.1)
    assert found.entropy == pytest.approx(0.500402, abs=1e-5)
    assert found.total == pytest.approx(-0.0500402, abs=1e-6)
    assert found.logits.tolist() == [pytest.approx([0.0221807, -0.0221807], abs=1e-6)]


def test_illegal_actions_have_no_entropy_and_no_gradient() -> None:
    """Two legal actions of equal chance, whatever the number of illegal ones: H = ln 2."""
    logits = torch.tensor([[0.0, 0.0, ILLEGAL, ILLEGAL]])
    found = loss_of(learner(), chances=[[0.5, 0.5]], advantage=[1.0], entropy=0.1, logits=logits)
    assert found.entropy == pytest.approx(math.log(2), abs=1e-6)
    assert found.logits.tolist() == [pytest.approx([-0.5, 0.5, 0.0, 0.0], abs=1e-6)]  # −A (1 − p) for the action that was played


# --- the critic


@pytest.mark.parametrize(
    ("clip_value", "value", "target", "loss", "slope"),
    [  # the old value is 2; slope by the value, times value_weight 0.5
        (None, 3.0, 1.0, 2.0, 1.0),  # ½ (3 − 1)²
        (None, 3.0, 4.0, 0.5, -0.5),  # ½ (3 − 4)²
        (0.5, 3.0, 4.0, 1.125, 0.0),  # held at 2.5: ½ (2.5 − 4)², the greater
        (0.5, 3.0, 1.0, 2.0, 1.0),  # held at 2.5: ½ (2.5 − 1)² is the lesser, so that the way back stays open
        (0.5, 1.0, 0.0, 1.125, 0.0),  # held at 1.5 from below: ½ (1.5 − 0)², the greater
        (0.5, 2.4, 4.0, 1.28, -0.8),  # within the bounds
    ],
)
def test_the_value_is_clipped_by_the_greater_error(
    clip_value: float | None, value: float, target: float, loss: float, slope: float
) -> None:
    found = loss_of(learner(clip_value=clip_value), value=value, target=target, old_value=2.0)
    assert found.value_loss == pytest.approx(loss, rel=1e-5)
    assert found.total == pytest.approx(0.5 * loss, rel=1e-5)
    assert float(found.values[0]) == pytest.approx(slope, abs=1e-5)


def test_the_old_value_is_clipped_in_the_critics_own_unit() -> None:
    """Returns have mean 10 and deviation 2, so that an old value of 14 is an output of 2: held at 2.5 as above."""
    ppo = learner(clip_value=0.5, normalise_values=True)
    ppo.returns.update(torch.tensor([8.0, 12.0]))
    assert loss_of(ppo, value=3.0, target=4.0, old_value=14.0).value_loss == pytest.approx(1.125, rel=1e-5)


def test_the_loss_is_the_weighted_sum() -> None:
    """Policy −2.4, critic ½ (3 − 1)² = 2 at weight 0.5, entropy of (0.6, 0.4) 0.673012 at weight 0.1."""
    found = loss_of(learner(), chances=[[0.6, 0.4]], old=[0.4], advantage=[2.0], value=3.0, target=1.0, entropy=0.1)
    assert found.total == pytest.approx(-2.4 + 1.0 - 0.0673012, abs=1e-5)


# --- advantages of played episodes


class Scripted:
    """Two environments: both episodes end with the first step, one at its end and one cut off where the value is 8."""

    def __init__(self, elapsed: float, discount_per_s: float) -> None:
        self.setup = SimpleNamespace(settings=SimpleNamespace(discount_per_s=discount_per_s))
        self.elapsed = np.full(2, elapsed)
        self.steps = 0

    def step(self, actions: Tensor, observations: Tensor, mask: Tensor) -> Step:
        first = self.steps == 0
        self.steps += 1
        observations[:, 0] = 2.0 if first else 6.0  # the value of the state after the step
        mask[:] = True
        cut = np.array([1] if first else [], np.int64)
        last = torch.full((len(cut), 1), 8.0)
        return Step(np.full(2, 1.0 if first else 3.0), np.full(2, first), self.elapsed, cut, last, torch.ones(len(cut), 2) > 0, [])


def played(ppo: Any, *, elapsed: float = 1.0, discount_per_s: float = 0.0) -> SimpleNamespace:
    """Two steps of two environments whose first states are worth 4: the value of a state is its observation."""
    rollout = SimpleNamespace(
        observations=torch.full((3, 2, 1), 4.0), masks=torch.ones(3, 2, 2, dtype=torch.bool), actions=torch.zeros(2, 2, dtype=torch.int64),
        log_probs=torch.zeros(2, 2), rewards=torch.zeros(2, 2), discounts=torch.zeros(2, 2), values=torch.zeros(3, 2),
        advantages=torch.zeros(2, 2), targets=torch.zeros(2, 2), count_shown=lambda: None,
    )  # fmt: skip
    network = SimpleNamespace(policy=lambda rows, masks: (torch.zeros(len(rows), 2), rows[:, 0]))
    worker = SimpleNamespace(
        rollout=rollout, network=network, envs=Scripted(elapsed, discount_per_s), random=torch.Generator().manual_seed(1)
    )
    ppo.pool = SimpleNamespace(workers=[worker])
    ppo.play(worker, 1.0)
    ppo._estimate_returns()
    return rollout


BY_HAND = (
    # second step, still going on: 3 + 0.5 · 6 − 2 = 4
    # first step, ended: 1 − 4 = −3; cut off: 1 + 0.5 · 8 − 4 = 1. Neither counts what the next episode brings.
    [[-3.0, 1.0], [4.0, 4.0]],
    [[1.0, 5.0], [6.0, 6.0]],  # advantage + value
)


@pytest.mark.parametrize(
    "time", [{"elapsed": 1.0, "discount_per_s": 0.0}, {"elapsed": 10.0, "discount_per_s": math.log(2) / 10}], ids=["by step", "by second"]
)
def test_an_episode_that_was_cut_off_is_worth_its_rest_and_one_that_ended_is_not(time: dict[str, float]) -> None:
    """γ = ½ a step, or a half-life of ten seconds at ten seconds a step."""
    rollout = played(learner(gamma=0.5, gae_lambda=0.5), **time)
    assert rollout.values.tolist() == [[4.0, 4.0], [2.0, 2.0], [6.0, 6.0]]
    torch.testing.assert_close(rollout.advantages, torch.tensor(BY_HAND[0]))
    torch.testing.assert_close(rollout.targets, torch.tensor(BY_HAND[1]))
    torch.testing.assert_close(rollout.log_probs, torch.full((2, 2), math.log(0.5)))


def test_advantages_of_an_update_have_mean_0_and_deviation_1() -> None:
    """−3, 1, 4, 4: mean 1.5, squares of the differences 20.25 + 0.25 + 6.25 + 6.25 = 33, deviation √(33 ÷ 3) = 3.316625."""
    rollout = played(learner(gamma=0.5, gae_lambda=0.5, normalise_advantages=True))
    expected = torch.tensor([[-4.5, -0.5], [2.5, 2.5]]) / 3.316625
    torch.testing.assert_close(rollout.advantages, expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(rollout.targets, torch.tensor(BY_HAND[1]))  # the critic's targets are not scaled


def test_values_are_learnt_on_the_scale_of_returns() -> None:
    """The critic says 4, 2, 6 and 8 in units of the scale so far, mean 10 and deviation 2: 18, 14, 22 and 26 in rewards.

    Advantages: 3 + ½ · 22 − 14 = 0; ended 1 − 18 = −17; cut off 1 + ½ · 26 − 18 = −4. Targets 14, 14, 1, 14: mean 10.75, mean square
    (3 · 196 + 1) ÷ 4 = 147.25. The running moments, of which this is the second update: mean 10.375, mean square (104 + 147.25) ÷ 2.
    """
    ppo = learner(gamma=0.5, gae_lambda=0.5, normalise_values=True)
    ppo.returns.update(torch.tensor([8.0, 12.0]))
    rollout = played(ppo)
    torch.testing.assert_close(rollout.advantages, torch.tensor([[-17.0, -4.0], [0.0, 0.0]]))
    deviation = math.sqrt(125.625 - 10.375**2)
    expected = torch.tensor([[(1 - 10.375) / deviation, (14 - 10.375) / deviation], [(14 - 10.375) / deviation] * 2])
    torch.testing.assert_close(rollout.targets, expected, atol=1e-5, rtol=0)


def test_a_long_episode_discounts_advantages_by_gamma_and_lambda() -> None:
    """With λ = ½ and γ = ½ the second advantage counts ¼ in the first: values 4, 2, 6; rewards 1, 3; no end."""
    rewards, values = torch.tensor([[1.0], [3.0]]), torch.tensor([[4.0], [2.0], [6.0]])
    found = advantages(rewards, values, torch.full((2, 1), 0.5), 0.5)
    assert found.squeeze(1).tolist() == pytest.approx([1 + 0.5 * 2 - 4 + 0.25 * 4, 4.0])


# --- actions and rows


def test_actions_are_drawn_as_often_as_their_probability_says_and_only_legal_ones() -> None:
    """Chances 0.6, 0.3 and 0.1, of which the first is not legal: 0.75 and 0.25 of the others."""
    num = 4000
    mask = torch.tensor([[False, True, True]]).expand(num, 3)
    drawn = draw(torch.tensor([[0.6, 0.3, 0.1]]).log().expand(num, 3), mask, torch.Generator().manual_seed(3))
    shares = torch.bincount(drawn, minlength=3) / num
    assert shares[0] == 0.0
    assert shares.tolist() == pytest.approx([0.0, 0.75, 0.25], abs=0.02)  # three deviations of the mean


def test_rows_belong_to_their_frames() -> None:
    """Frame t · E + e has the mask, action, … of step t and environment e; values and masks of the state before the step."""
    envs = TrainingEnvs(small_setup(), 3, seed=1)
    rollout = Rollout(2, 3, envs.shape)
    rollout.masks.random_(2, generator=torch.Generator().manual_seed(1))
    for offset, column in enumerate((rollout.actions, rollout.log_probs, rollout.advantages, rollout.targets)):
        column.copy_(torch.arange(6).view(2, 3) + 10 * offset)
    rollout.values.copy_(torch.arange(9).view(3, 3) + 100)
    chosen = torch.tensor([4, 0])
    _, masks, *columns = rollout.rows(chosen)
    assert torch.equal(masks, torch.stack([rollout.masks[1, 1], rollout.masks[0, 0]]))
    assert [column.tolist() for column in columns] == [[4, 0], [14, 10], [24, 20], [34, 30], [104, 100]]
    envs.close()


def test_gradients_of_workers_are_averaged() -> None:
    workers = [SimpleNamespace(gradients=shared_zeros(2)) for _ in range(2)]
    workers[0].gradients.copy_(torch.tensor([1.0, 2.0]))
    workers[1].gradients.copy_(torch.tensor([3.0, 6.0]))
    WorkerPool(workers, object()).add_gradients()  # type: ignore[arg-type]
    assert workers[0].gradients.tolist() == [2.0, 4.0]
