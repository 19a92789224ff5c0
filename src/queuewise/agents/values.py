"""Returns and action values.

Returns: generalised advantage estimation and the running scale of returns that a critic learns in. T steps of E
environments. Action values: dueling heads (Wang et al., 2016), and means where a network predicts distributions. B
states, A actions, K numbers per action: 1, or the logits of K equally spaced points.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from queuewise.agents.network import Network
from queuewise.policies.networks.layers import ILLEGAL
from queuewise.sim.core.tables import F64

LEAST_WEIGHT = 0.05  # of the newest update in the running moments
LEAST_DEVIATION = 1e-6


def step_discounts(elapsed: F64, gamma: float, per_s: float) -> F64:
    """[E] the discounts of steps of `elapsed` simulated seconds: by time if the task says so, otherwise γ."""
    return np.exp(-per_s * elapsed) if per_s else np.full(len(elapsed), gamma)


def advantages(rewards: Tensor, values: Tensor, discounts: Tensor, gae_lambda: float) -> Tensor:
    """[T, E] generalised advantages (Schulman et al., 2016).

    rewards [T, E]: where an episode was truncated, the discounted value of the rest is already added. values [T + 1,
    E]. discounts [T, E]: the weight of the next state's value, 0 where an episode ended, so nothing leaks into the next
    one.
    """
    result = torch.empty_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        surprise = rewards[t] + discounts[t] * values[t + 1] - values[t]
        running = surprise + discounts[t] * gae_lambda * running
        result[t] = running
    return result


class ReturnScale:
    """Running mean and deviation of returns: a plain mean over the first updates, then an exponential one."""

    def __init__(self) -> None:
        self.moments = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)  # mean, mean square, updates

    def update(self, returns: Tensor) -> None:
        values = returns.double()
        updates = self.moments[2] + 1.0
        weight = torch.clamp(1.0 / updates, min=LEAST_WEIGHT)
        fresh = torch.stack([values.mean(), values.square().mean()])
        self.moments.copy_(torch.cat([torch.lerp(self.moments[:2], fresh, weight), updates.unsqueeze(0)]))

    @property
    def mean(self) -> float:
        return float(self.moments[0])

    @property
    def deviation(self) -> float:
        variance = float(self.moments[1] - self.moments[0] ** 2)
        return math.sqrt(max(variance, LEAST_DEVIATION**2))

    def normalise(self, returns: Tensor) -> Tensor:
        return (returns - self.mean) / self.deviation

    def denormalise(self, outputs: Tensor) -> Tensor:
        return outputs * self.deviation + self.mean


# --- action values

HEADS = ("score", "wait", "value")  # names of the output layers of networks


def action_scores(network: Network, observations: Tensor, mask: Tensor) -> Tensor:
    """[B, A] what actions are picked by: the scores of the network, or the means of its distributions."""
    scores, values = network(observations, mask)
    return scores.squeeze(-1) if network.outputs == 1 else expectation(dueling(scores, values, mask), mask)


def dueling(scores: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """[B, A, K] value of the state + score of the action − mean score of the legal actions; ILLEGAL if masked."""
    illegal = ~mask.unsqueeze(-1)
    mean = scores.masked_fill(illegal, 0.0).sum(1, keepdim=True) / mask.sum(1)[:, None, None]
    return (values.unsqueeze(1) + scores - mean).masked_fill(illegal, ILLEGAL)


def expectation(logits: Tensor, mask: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """[B, A] means of distributions over points from `low` to `high`; ILLEGAL where the mask is false."""
    points = torch.linspace(low, high, logits.shape[-1])
    return (logits.softmax(-1) @ points).masked_fill(~mask, ILLEGAL)


def project(points: Tensor, probabilities: Tensor, low: float, high: float) -> Tensor:
    """[B, K] project moved points onto the fixed ones from `low` to `high` (Bellemare et al., 2017).

    The probability of a moved point is divided between its two neighbours, the nearer one getting more.
    """
    number = points.shape[1]
    places = (points.clamp(low, high) - low) * ((number - 1) / (high - low))
    nearness = (1.0 - (places.unsqueeze(2) - torch.arange(number)).abs()).clamp(min=0.0)  # [B, from, to]
    return (probabilities.unsqueeze(2) * nearness).sum(1)


def scale_outputs(network: Network, factor: float) -> None:
    """Multiply all scores and values by `factor`: every head ends in a linear layer."""
    heads = [
        [layer for layer in head.modules() if isinstance(layer, nn.Linear)] for name, head in network.named_children() if name in HEADS
    ]
    with torch.no_grad():
        for *_, last in heads:
            for parameter in last.parameters():
                parameter.mul_(factor)
