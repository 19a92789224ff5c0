"""`kernel`: one small scorer, shared by all jobs, that reads the features of a job and a summary of the state.

After the kernel network of RLScheduler (Zhang et al., SC 2020), which sees only the job.
"""

from __future__ import annotations

from torch import Tensor

from queuewise.agents.networks.base import SMALL, Feedforward, Network, linear, spread, summarise, summary_size
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings


class KernelNetwork(Network):
    problems = frozenset({"job"})

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(shape, settings, outputs)
        width, state = settings.width, summary_size(shape)
        self.job = linear(len(shape.layout.job_features), width)
        self.context = linear(state, width, bias=False)
        self.score = Feedforward([*[width] * settings.depth, outputs], gain=SMALL)
        self.wait = Feedforward([state, width, outputs], gain=SMALL)
        self.value = Feedforward([state, *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        state = summarise(parts)
        rows, slots = mask[:, :-1].nonzero(as_tuple=True)
        hidden = (self.job(parts.jobs[rows, slots]) + self.context(state)[rows]).relu()
        return spread(self.score(hidden), rows, slots, self.wait(state), mask), self.value(state)
