"""`attn`: legal jobs attend to the machine: one token a host and one a bin of the lookahead. A scorer shared by all jobs reads what each
job asks for, what it found, and a summary of the state."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from queuewise.agents.networks.base import (
    LOOKAHEAD_BINS,
    SMALL,
    Feedforward,
    Network,
    Parts,
    bin_lookahead,
    linear,
    spread,
    summarise,
    summary_size,
)
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec
from queuewise.errors import InputError


class Attention(Network):
    problems = frozenset({"job"})

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__(spec, settings, outputs)
        width, state = settings.width, summary_size(spec)
        if width % settings.heads:
            raise InputError(
                f"{settings.heads} heads do not divide a width of {width}", hint="give network.heads that divides network.width"
            )
        self.job = linear(len(spec.layout.job_features), width)
        self.context = linear(state, width, bias=False)
        self.host = linear(len(spec.layout.host_features), width)
        self.future = linear(1, width)
        self.position = nn.Parameter(torch.zeros(LOOKAHEAD_BINS, width))
        self.query = linear(width, width, 1.0, bias=False)
        self.key_value = linear(width, 2 * width, 1.0, bias=False)
        self.norm = nn.LayerNorm(width)
        self.score = Feedforward([*[width] * settings.depth, outputs], gain=SMALL)
        self.wait = Feedforward([state, width, outputs], gain=SMALL)
        self.value = Feedforward([state, *[width] * settings.depth, outputs])

    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        parts = self.parts(observations)
        state = summarise(parts)
        rows, slots = mask[:, :-1].nonzero(as_tuple=True)
        jobs = (self.job(parts.jobs[rows, slots]) + self.context(state)[rows]).relu()
        jobs = self.norm(jobs + self._look(jobs, rows, parts))
        return spread(self.score(jobs), rows, slots, self.wait(state), mask), self.value(state)

    def _look(self, jobs: Tensor, rows: Tensor, parts: Parts) -> Tensor:
        """[L, width] what each of the legal jobs finds in the tokens of its row."""
        heads, each = self.settings.heads, self.settings.width // self.settings.heads
        future = self.future(bin_lookahead(parts.lookahead).unsqueeze(-1)) + self.position
        tokens = torch.cat([self.host(parts.hosts), future], dim=1).relu()
        keys, values = self.key_value(tokens).unflatten(2, (2, heads, each)).transpose(1, 3).unbind(2)  # [B, heads, T, each]
        unused = torch.cat([parts.hosts[:, :, 0] == 0, torch.zeros_like(future[:, :, 0], dtype=torch.bool)], dim=1)
        query = self.query(jobs).unflatten(1, (heads, 1, each)) / math.sqrt(each)  # [L, heads, 1, each]
        weights = (query @ keys[rows].transpose(2, 3)).masked_fill(unused[rows][:, None, None], -math.inf).softmax(-1)
        found: Tensor = (weights @ values[rows]).flatten(1)
        return found
