"""`mlp`: the whole observation through one trunk; a head for the scores and one for the value. Sees slots and hosts by position."""

from __future__ import annotations

import math

from torch import Tensor

from queuewise.agents.networks.base import ILLEGAL, SMALL, Feedforward, Network, linear
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec


class Mlp(Network):
    problems = frozenset({"job", "host", "joint"})

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(spec, settings, outputs)
        self.trunk = Feedforward([spec.observation_size, *[settings.width] * settings.depth], gain=math.sqrt(2.0))
        self.score = linear(settings.width, spec.num_actions * outputs, SMALL)
        self.value = linear(settings.width, outputs, 1.0)

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.trunk(observations).relu()
        scores = self.score(hidden).unflatten(1, (self.spec.num_actions, self.outputs))
        return scores.masked_fill(~mask.unsqueeze(-1), ILLEGAL), self.value(hidden)
