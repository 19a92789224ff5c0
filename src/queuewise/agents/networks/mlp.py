"""`mlp`: the whole observation through one trunk; a head for the scores and one for the value. Sees slots and hosts by position."""

from __future__ import annotations

import math
from typing import cast

from torch import Tensor, nn
from torch.nn import functional

from queuewise.agents.networks.base import ILLEGAL, SMALL, Feedforward, Network, linear, slots_in_use
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec
from queuewise.envs.features import NUM_GLOBAL


class Mlp(Network):
    problems = frozenset({"job", "host", "joint"})

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(spec, settings, outputs)
        self.trunk = Feedforward([spec.observation_size, *[settings.width] * settings.depth], gain=math.sqrt(2.0))
        self.score = linear(settings.width, spec.num_actions * outputs, SMALL)
        self.value = linear(settings.width, outputs, 1.0)
        window, features = spec.layout.shapes["jobs"]
        jobs_at = NUM_GLOBAL + spec.layout.units
        self._places = jobs_at, jobs_at + window * features, window, features

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self._first_layer(observations)
        for layer in list(self.trunk)[1:]:
            hidden = layer(hidden)
        hidden = hidden.relu()
        scores = self.score(hidden).unflatten(1, (self.spec.num_actions, self.outputs))
        return scores.masked_fill(~mask.unsqueeze(-1), ILLEGAL), self.value(hidden)

    def _first_layer(self, observations: Tensor) -> Tensor:
        """As far as there are jobs: columns that are zero in the whole batch are left out."""
        layer = cast(nn.Linear, self.trunk[0])
        jobs_at, hosts_at, window, features = self._places
        used = jobs_at + features * slots_in_use(observations[:, jobs_at:hosts_at].view(-1, window, features))
        if used == hosts_at:
            return functional.linear(observations, layer.weight, layer.bias)
        before = functional.linear(observations[:, :used], layer.weight[:, :used], layer.bias)
        return before + functional.linear(observations[:, hosts_at:], layer.weight[:, hosts_at:])
