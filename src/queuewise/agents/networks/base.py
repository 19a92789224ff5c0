"""What every network is: scaled observations and a mask in, a score for every action and a value of the state out.

B observations, F their size, A actions (the last is the wait), K outputs. Scores of illegal actions are ILLEGAL, which no softmax and no
argmax ever picks; values do not depend on the mask alone. The same two outputs serve PPO (logits and value), D3QN (advantages and value)
and SAC (logits, or Q-values).

Token networks score legal actions only: most of a window does not fit, and work on what cannot be chosen is work for nothing. They see
the rest of the state as a summary of fixed size, so that one set of weights serves any window, any number of hosts and of GPUs.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from queuewise.agents.rows import count_slots
from queuewise.agents.settings import NetworkSettings
from queuewise.agents.spec import Spec
from queuewise.envs.features import GLOBAL, NUM_GLOBAL

ILLEGAL = -1e9
LOOKAHEAD_BINS = 8  # the lookahead is shown to token networks as so many means


class Parts(NamedTuple):
    """Views of a batch of observations."""

    overall: Tensor  # [B, 11]
    lookahead: Tensor  # [B, U]
    jobs: Tensor  # [B, S, Fj] the slots up to the last that any of the batch uses; unused rows are zero
    hosts: Tensor  # [B, H, Fh] unused rows are zero


class Network(nn.Module, ABC):
    problems: ClassVar[frozenset[str]]  # that it can decide

    def __init__(self, spec: Spec, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__()
        self.spec, self.settings, self.outputs = spec, settings, outputs

    @abstractmethod
    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, F] scaled observations and [B, A] mask -> [B, A, K] scores, ILLEGAL where the mask is false, and [B, K] values."""

    def policy(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, A] logits and [B] values, of a network with one output."""
        scores, values = self(observations, mask)
        return scores.squeeze(-1), values.squeeze(-1)

    def parts(self, observations: Tensor) -> Parts:
        layout = self.spec.layout
        fj, fh = len(layout.job_features), len(layout.host_features)
        rows = self.without_empty_slots(observations)
        jobs_at, hosts_at = NUM_GLOBAL + layout.units, rows.shape[1] - layout.hosts * fh
        return Parts(
            rows[:, :NUM_GLOBAL],
            rows[:, NUM_GLOBAL:jobs_at],
            rows[:, jobs_at:hosts_at].view(len(rows), -1, fj),
            rows[:, hosts_at:].view(len(rows), -1, fh),
        )

    def without_empty_slots(self, observations: Tensor) -> Tensor:
        """The batch without the slots that hold no job in any of it, unless that has been done: queues are mostly shorter."""
        if observations.shape[1] < self.spec.observation_size:
            return observations
        jobs = self.spec.job_columns
        used = jobs.start + jobs.step * count_slots(observations.detach().numpy(), jobs.start, len(jobs), jobs.step)
        if used == jobs.stop:
            return observations
        return torch.cat([observations[:, :used], observations[:, jobs.stop :]], dim=1)


class Feedforward(nn.Sequential):
    """Linear layers with ReLU between them."""

    def __init__(self, sizes: Sequence[int], *, gain: float = 1.0) -> None:
        layers: list[nn.Module] = []
        for number, (before, after) in enumerate(pairwise(sizes)):
            last = number == len(sizes) - 2
            layers += [linear(before, after, gain if last else math.sqrt(2.0)), *([] if last else [nn.ReLU()])]
        super().__init__(*layers)


def linear(before: int, after: int, gain: float = math.sqrt(2.0), *, bias: bool = True) -> nn.Linear:
    layer = nn.Linear(before, after, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


SMALL = 0.01  # gain of layers that give scores: a new policy is nearly uniform


def summary_size(spec: Spec) -> int:
    return NUM_GLOBAL + LOOKAHEAD_BINS + 2 * len(spec.layout.job_features) + 2 * len(spec.layout.host_features)


def summary_names(spec: Spec) -> tuple[str, ...]:
    """The feature that each number of the summary tells of."""
    bins = ("lookahead",) * LOOKAHEAD_BINS
    return (*GLOBAL, *bins, *spec.layout.job_features * 2, *spec.layout.host_features * 2)


def summarise(parts: Parts) -> Tensor:
    """[B, S] globals, binned lookahead, and mean and mean square of every feature over the jobs shown and over the hosts."""
    return torch.cat([parts.overall, bin_lookahead(parts.lookahead), _moments(parts.jobs), _moments(parts.hosts)], dim=1)


def bin_lookahead(lookahead: Tensor) -> Tensor:
    """[B, U] -> [B, 8] means over (overlapping, where 8 does not divide U) runs of units."""
    return functional.adaptive_avg_pool1d(lookahead, LOOKAHEAD_BINS)


def _moments(tokens: Tensor) -> Tensor:
    """[B, N, F] -> [B, 2F]; the first feature says whether a row is used."""
    per = tokens[:, :, 0].sum(1).clamp(min=1.0).reciprocal().unsqueeze(1)
    return torch.cat([tokens.sum(1) * per, tokens.square().sum(1) * per], dim=1)


def spread(scores: Tensor, rows: Tensor, columns: Tensor, wait: Tensor, mask: Tensor) -> Tensor:
    """[L, K] scores of legal choices (row, column) and [B, K] of waiting -> [B, A, K], ILLEGAL elsewhere."""
    batch, actions = mask.shape
    flat = scores.new_full((batch * actions, scores.shape[-1]), ILLEGAL)
    waiting = mask[:, -1].nonzero().squeeze(1)
    where = torch.cat([rows * actions + columns, waiting * actions + actions - 1])
    flat = flat.index_copy(0, where, torch.cat([scores, wait[waiting]]))
    return flat.view(batch, actions, -1)
