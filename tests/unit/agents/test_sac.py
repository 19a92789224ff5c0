"""SAC: entropies by hand, determinism, resuming."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from agents_setup import small_settings, small_setup
from queuewise.agents.learner import DivergedError
from queuewise.agents.sac import Sac, choices, entropy_of, entropy_targets
from queuewise.policies.networks.layers import ILLEGAL

SMALL = {"num_envs": 4, "steps": 8, "replay": 96, "first_frames": 64, "batch": 16, "n_step": 3}


def learner(seed: int = 0, *, net: str = "kernel", task: dict[str, Any] | None = None, **changes: Any) -> Sac:
    return Sac(small_setup(**task or {}), small_settings(algo="sac", net=net, sac=SMALL | changes), seed)


def iterate(sac: Sac, number: int) -> Sac:
    for _ in range(number):
        sac.iterate()
    return sac


def weights(sac: Sac) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in sac.network.parameters()])


class Fixed:
    """An actor that always says the same."""

    def __init__(self, logits: list[list[float]]) -> None:
        self.logits = torch.tensor(logits)

    def policy(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        return self.logits, torch.zeros(len(mask))


def test_entropy_by_hand() -> None:
    """Probabilities ¾ and ¼ of two legal actions; one legal action; three alike."""
    actor = Fixed([[math.log(3.0), 0.0, ILLEGAL], [ILLEGAL, ILLEGAL, 2.0], [1.0, 1.0, 1.0]])
    mask = torch.tensor([[True, True, False], [False, False, True], [True, True, True]])
    probabilities, log_probs = choices(actor, torch.zeros(3, 1), mask)  # type: ignore[arg-type]
    assert probabilities.flatten().tolist() == pytest.approx([0.75, 0.25, 0.0, 0.0, 0.0, 1.0, 1 / 3, 1 / 3, 1 / 3])
    first = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert entropy_of(probabilities, log_probs).tolist() == pytest.approx([first, 0.0, math.log(3.0)])


def test_entropy_targets_scale_with_the_legal_actions() -> None:
    mask = torch.tensor([[True, True, True, True], [True, False, True, False], [False, True, False, False]])
    assert entropy_targets(mask, 0.5).tolist() == pytest.approx([math.log(2.0), 0.5 * math.log(2.0), 0.0])


@pytest.mark.parametrize(("wanted", "rises"), [(1.0, True), (0.0, False)])
def test_the_temperature_rises_where_entropy_is_wanted_and_falls_where_it_is_not(wanted: float, rises: bool) -> None:
    sac = iterate(learner(entropy=wanted, temperature=0.5, first_frames=64), 2)
    assert (float(sac.temperature) > 0.5) == rises


def test_the_lower_critic_counts_and_illegal_actions_do_not() -> None:
    sac = iterate(learner(), 1)
    batch = sac.replay.draw(32, 0.0, sac.random)
    with torch.no_grad():
        lower = sac._lower(sac.critics, batch.observations, batch.masks)
        alone = [sac._lower([critic, critic], batch.observations, batch.masks) for critic in sac.critics]
    assert torch.equal(lower, torch.minimum(*alone))
    assert not torch.equal(*alone)
    assert (lower[~batch.masks] == 0).all()


def test_equal_seeds_give_equal_weights_and_others_do_not() -> None:
    first, again, other = (weights(iterate(learner(seed), 2)) for seed in (5, 5, 6))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("iterations", [1, 7])  # before a ring is full, and when all has been overwritten
def test_resuming_goes_on_to_the_bit(iterations: int) -> None:
    task = {"max_steps": 20, "discount_per_s": 1e-4}  # cut off often, discounted by time
    straight = iterate(learner(task=task), iterations)
    state = straight.state()
    iterate(straight, 2)
    resumed = learner(task=task)
    resumed.restore(state)
    iterate(resumed, 2)
    ends = [one.state() for one in (straight, resumed)]
    assert ends[0].facts == ends[1].facts
    assert ends[0].tensors.keys() == ends[1].tensors.keys()
    for name, tensor in ends[0].tensors.items():
        assert torch.equal(tensor, ends[1].tensors[name]), name


def test_a_loss_that_is_no_number_changes_no_weight() -> None:
    sac = iterate(learner(), 1)
    with torch.no_grad():
        next(sac.critics[0].parameters())[0, 0] = torch.nan
    before = weights(sac)
    with pytest.raises(DivergedError, match="the loss of the critics is nan in iteration 2, gradient step 9"):
        sac.iterate()
    assert torch.equal(before, weights(sac))
