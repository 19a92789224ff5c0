"""`hosts`: scores every host that can take tasks of the job being placed.

A host encoder, a job encoder, and attention of the job over all hosts. Sizes do not depend on the number of hosts, so
weights trained on 50 hosts decide for 500. For the same reason scores do not see features that count jobs or are
relative to the whole cluster (`COUNTED`): in a cluster ten times as large, those take values never seen before. The
value sees everything. The encoding of a host is a product of two linear layers, because its free capacity is its size
times a share.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from queuewise.agents.networks.base import SMALL, Feedforward, Network, linear, spread, summarise, summary_names
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.errors import InputError

COUNTED = frozenset({"queue_length", "beyond_window", "running", "size", "ways", "share_of_free"})


class HostsNetwork(Network):
    problems = frozenset({"host"})
    steady: Tensor  # [I] 1 for inputs of the job encoder that mean the same in a cluster of any size, else 0

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(shape, settings, outputs)
        width, state = settings.width, summary_names(shape)
        if width % settings.heads:
            raise InputError(
                f"{settings.heads} heads do not divide a width of {width}", hint="choose a network.heads that divides network.width"
            )
        self.current = shape.layout.job_features.index("current")
        inputs = (*shape.layout.job_features, *state)
        self.register_buffer("steady", torch.tensor([float(name not in COUNTED) for name in inputs]))
        self.job = linear(len(inputs), width)
        self.host = linear(len(shape.layout.host_features), width)
        self.gain = linear(len(shape.layout.host_features), width, 1.0)
        nn.init.ones_(self.gain.bias)
        self.query = linear(width, width, 1.0, bias=False)
        self.key_value = linear(width, 2 * width, 1.0, bias=False)
        self.found = linear(width, width, bias=False)
        self.score = Feedforward([*[width] * settings.depth, outputs], gain=SMALL)
        self.wait = Feedforward([width, width, outputs], gain=SMALL)
        self.value = Feedforward([width + len(state), *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        rows, columns = mask[:, :-1].nonzero(as_tuple=True)
        being_placed = parts.jobs[:, :, self.current : self.current + 1] > 0  # one job, or none
        placed = (parts.jobs * being_placed).sum(1)
        state = summarise(parts)
        job = self.job(torch.cat([placed, state], dim=1) * self.steady).relu()
        hosts = self.host(parts.hosts) * self.gain(parts.hosts)
        context = job + self.found(self._attend(job, hosts.relu(), parts.hosts[:, :, 0] == 0))
        hidden = (hosts[rows, columns] + context[rows]).relu()
        seen = context.relu()
        return spread(self.score(hidden), rows, columns, self.wait(seen), mask), self.value(torch.cat([seen, state], dim=1))

    def _attend(self, job: Tensor, hosts: Tensor, unused: Tensor) -> Tensor:
        """[B, width] attention of the job over the hosts: a weighted mean, so twice the hosts of every kind change
        nothing.
        """
        heads, each = self.settings.heads, self.settings.width // self.settings.heads
        keys, values = self.key_value(hosts).unflatten(2, (2, heads, each)).transpose(1, 3).unbind(2)  # [B, heads, H, each]
        query = self.query(job).unflatten(1, (heads, 1, each)) / math.sqrt(each)
        weights = (query @ keys.transpose(2, 3)).masked_fill(unused[:, None, None], -math.inf).softmax(-1)
        found: Tensor = (weights @ values).flatten(1)
        return found
