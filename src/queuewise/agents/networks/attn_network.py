"""`attn`: legal jobs attend to the cluster, which is one token per host and one per bin of the lookahead.

A scorer shared by all jobs reads the features of a job, the result of its attention, and a summary of the state.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from queuewise.agents.networks import base
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.errors import InputError


class AttnNetwork(base.Network):
    problems = frozenset({"job"})

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(shape, settings, outputs)
        width, state = settings.width, base.summary_size(shape)
        if width % settings.heads:
            raise InputError(
                f"{settings.heads} heads do not divide a width of {width}", hint="choose a network.heads that divides network.width"
            )
        self.job = base.linear(len(shape.layout.job_features), width)
        self.context = base.linear(state, width, bias=False)
        self.host = base.linear(len(shape.layout.host_features), width)
        self.future = base.linear(1, width)
        self.position = nn.Parameter(torch.zeros(base.LOOKAHEAD_BINS, width))
        self.query = base.linear(width, width, 1.0, bias=False)
        self.key_value = base.linear(width, 2 * width, 1.0, bias=False)
        self.norm = nn.LayerNorm(width)
        self.score = base.Feedforward([*[width] * settings.depth, outputs], gain=base.SMALL)
        self.wait = base.Feedforward([state, width, outputs], gain=base.SMALL)
        self.value = base.Feedforward([state, *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        state = base.summarise(parts)
        rows, slots = mask[:, :-1].nonzero(as_tuple=True)
        jobs = (self.job(parts.jobs[rows, slots]) + self.context(state)[rows]).relu()
        jobs = self.norm(jobs + self._attend(jobs, rows, parts))
        return base.spread(self.score(jobs), rows, slots, self.wait(state), mask), self.value(state)

    def _attend(self, jobs: Tensor, rows: Tensor, parts: base.ObservationParts) -> Tensor:
        """[L, width] the attention of each legal job over the tokens of its row."""
        heads, each = self.settings.heads, self.settings.width // self.settings.heads
        future = self.future(base.bin_lookahead(parts.lookahead).unsqueeze(-1)) + self.position
        tokens = torch.cat([self.host(parts.hosts), future], dim=1).relu()
        keys, values = self.key_value(tokens).unflatten(2, (2, heads, each)).transpose(1, 3).unbind(2)  # [B, heads, T, each]
        unused = torch.cat([parts.hosts[:, :, 0] == 0, torch.zeros_like(future[:, :, 0], dtype=torch.bool)], dim=1)
        query = self.query(jobs).unflatten(1, (heads, 1, each)) / math.sqrt(each)  # [L, heads, 1, each]
        weights = (query @ keys[rows].transpose(2, 3)).masked_fill(unused[rows][:, None, None], -math.inf).softmax(-1)
        found: Tensor = (weights @ values[rows]).flatten(1)
        return found
