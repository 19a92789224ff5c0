"""`joint`: scores every legal pair of a job and a host, from their encodings and a summary of the state."""

from __future__ import annotations

from torch import Tensor

from queuewise.agents.networks.base import SMALL, Feedforward, Network, linear, spread, summarise, summary_size
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings


class JointNetwork(Network):
    problems = frozenset({"joint"})

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(shape, settings, outputs)
        width, state = settings.width, summary_size(shape)
        self.job = linear(len(shape.layout.job_features), width)
        self.host = linear(len(shape.layout.host_features), width, bias=False)
        self.context = linear(state, width, bias=False)
        self.score = Feedforward([*[width] * settings.depth, outputs], gain=SMALL)
        self.wait = Feedforward([state, width, outputs], gain=SMALL)
        self.value = Feedforward([state, *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        state = summarise(parts)
        rows, pairs = mask[:, :-1].nonzero(as_tuple=True)
        slots, hosts = pairs // self.shape.layout.hosts, pairs % self.shape.layout.hosts
        hidden = self.job(parts.jobs)[rows, slots] + self.host(parts.hosts)[rows, hosts] + self.context(state)[rows]
        return spread(self.score(hidden.relu()), rows, pairs, self.wait(state), mask), self.value(state)
