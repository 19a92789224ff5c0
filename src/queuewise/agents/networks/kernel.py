"""`kernel`: one small scorer, shared by all jobs, of a job's features and a summary of the state (after RLScheduler's kernel network,
Zhang et al., SC 2020, which sees the job alone)."""

from __future__ import annotations

from torch import Tensor

from queuewise.agents.networks.base import SMALL, Feedforward, Network, linear, spread, summarise, summary_size
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec


class Kernel(Network):
    problems = frozenset({"job"})

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(spec, settings, outputs)
        width, state = settings.width, summary_size(spec)
        self.job = linear(len(spec.layout.job_features), width)
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
