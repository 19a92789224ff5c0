"""`mlp`: the whole observation goes through one trunk with a head for the scores and one for the value.

Slots and hosts are identified by position.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from queuewise.agents.networks.base import ILLEGAL, SMALL, Feedforward, Network, linear
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings


class MlpNetwork(Network):
    problems = frozenset({"job", "host", "joint"})

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(shape, settings, outputs)
        self.trunk = Feedforward([shape.observation_size, *[settings.width] * settings.depth], gain=math.sqrt(2.0))
        self.score = linear(settings.width, shape.num_actions * outputs, SMALL)
        self.value = linear(settings.width, outputs, 1.0)

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self._first_layer(observations)
        for layer in list(self.trunk)[1:]:
            hidden = layer(hidden)
        hidden = hidden.relu()
        scores = self.score(hidden).unflatten(1, (self.shape.num_actions, self.outputs))
        return scores.masked_fill(~mask.unsqueeze(-1), ILLEGAL), self.value(hidden)

    def _first_layer(self, observations: Tensor) -> Tensor:
        """The first layer without the slots that no row of the batch uses."""
        layer, full = cast(nn.Linear, self.trunk[0]), self.shape.job_columns
        observations = self.without_empty_slots(observations)
        left_out = self.shape.observation_size - observations.shape[1]
        if left_out == 0:
            return functional.linear(observations, layer.weight, layer.bias)
        weight = torch.cat([layer.weight[:, : full.stop - left_out], layer.weight[:, full.stop :]], dim=1)
        return functional.linear(observations, weight, layer.bias)
