"""`hosts`: scores every host that can take tasks of the job being placed. Host encoder, job encoder, and attention of the job over all
hosts; sizes do not depend on the number of hosts, so that weights trained on 50 decide for 500."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from queuewise.agents.networks.base import SMALL, Feedforward, Network, linear, spread, summarise, summary_size
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec
from queuewise.errors import InputError


class Hosts(Network):
    problems = frozenset({"host"})

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(spec, settings, outputs)
        width, state = settings.width, summary_size(spec)
        if width % settings.heads:
            raise InputError(
                f"{settings.heads} heads do not divide a width of {width}", hint="give network.heads that divides network.width"
            )
        self.current = spec.layout.job_features.index("current")
        self.job = linear(len(spec.layout.job_features) + state, width)
        self.host = linear(len(spec.layout.host_features), width)
        self.query = linear(width, width, 1.0, bias=False)
        self.key_value = linear(width, 2 * width, 1.0, bias=False)
        self.found = linear(width, width, bias=False)
        self.score = Feedforward([*[width] * settings.depth, outputs], gain=SMALL)
        self.wait = Feedforward([width, width, outputs], gain=SMALL)
        self.value = Feedforward([width, *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        rows, columns = mask[:, :-1].nonzero(as_tuple=True)
        being_placed = parts.jobs[:, :, self.current : self.current + 1] > 0  # one job, or none while all wait
        placed = (parts.jobs * being_placed).sum(1)
        job = self.job(torch.cat([placed, summarise(parts)], dim=1)).relu()
        hosts = self.host(parts.hosts)
        context = job + self.found(self._look(job, hosts.relu(), parts.hosts[:, :, 0] == 0))
        hidden = (hosts[rows, columns] + context[rows]).relu()
        return spread(self.score(hidden), rows, columns, self.wait(context.relu()), mask), self.value(context.relu())

    def _look(self, job: Tensor, hosts: Tensor, unused: Tensor) -> Tensor:
        """[B, width] what the job finds among the hosts: a weighted mean, so that twice as many hosts of each sort change nothing."""
        heads, each = self.settings.heads, self.settings.width // self.settings.heads
        keys, values = self.key_value(hosts).unflatten(2, (2, heads, each)).transpose(1, 3).unbind(2)  # [B, heads, H, each]
        query = self.query(job).unflatten(1, (heads, 1, each)) / math.sqrt(each)
        weights = (query @ keys.transpose(2, 3)).masked_fill(unused[:, None, None], -math.inf).softmax(-1)
        found: Tensor = (weights @ values).flatten(1)
        return found
