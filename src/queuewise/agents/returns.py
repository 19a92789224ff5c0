"""Returns: generalised advantage estimation, and the running scale of returns that a critic learns in. T steps of E environments."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from queuewise.sim.core.tables import F64

SLOWEST = 0.05  # weight of the newest update in the running moments, once there are many
LEAST_DEVIATION = 1e-6


def step_discounts(elapsed: F64, gamma: float, per_s: float) -> F64:
    """[E] what the state after a step of so many simulated seconds counts: by time where the task discounts by time, else γ."""
    return np.exp(-per_s * elapsed) if per_s else np.full(len(elapsed), gamma)


def advantages(rewards: Tensor, values: Tensor, discounts: Tensor, gae_lambda: float) -> Tensor:
    """[T, E] generalised advantages (Schulman et al., 2016).

    rewards [T, E]; where an episode was cut off, what the critic expects of the rest is already added, discounted. values [T + 1, E].
    discounts [T, E]: what the next state's value counts, 0 where an episode ended, so that nothing leaks from one to the next.
    """
    result = torch.empty_like(rewards)
    running = torch.zeros_like(rewards[0])
    for t in range(len(rewards) - 1, -1, -1):
        surprise = rewards[t] + discounts[t] * values[t + 1] - values[t]
        running = surprise + discounts[t] * gae_lambda * running
        result[t] = running
    return result


class ReturnScale:
    """Mean and deviation of returns: a plain mean over the first updates, then one that forgets."""

    def __init__(self) -> None:
        self.moments = torch.tensor([0.0, 1.0, 0.0], dtype=torch.float64)  # mean, mean square, updates

    def update(self, returns: Tensor) -> None:
        values = returns.double()
        updates = self.moments[2] + 1.0
        weight = torch.clamp(1.0 / updates, min=SLOWEST)
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
