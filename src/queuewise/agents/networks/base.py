"""The base of all networks: scaled observations and a mask go in, a score per action and a value of the state come out.

B observations, F their size, A actions (the last is the wait), K outputs. Illegal actions score ILLEGAL, which no
softmax and no argmax picks. The same two outputs serve PPO (logits and value), D3QN (advantages and value) and SAC
(logits, or Q-values).

Token networks score only legal actions, because most jobs of a window do not fit. They see the rest of the state as a
summary of fixed size, so one set of weights works for any window and any number of hosts and GPUs.
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

from queuewise.agents.observation_scaling import count_slots
from queuewise.agents.task_shape import TaskShape
from queuewise.agents.train_settings import NetworkSettings
from queuewise.envs.features import GLOBAL, NUM_GLOBAL

ILLEGAL = -1e9
LOOKAHEAD_BINS = 8  # token networks see the lookahead as this many means


class ObservationParts(NamedTuple):
    """Views of a batch of observations."""

    overall: Tensor  # [B, 11]
    lookahead: Tensor  # [B, U]
    jobs: Tensor  # [B, S, Fj] the slots up to the last one that any row of the batch uses; unused ones are zero
    hosts: Tensor  # [B, H, Fh] unused rows are zero


class Network(nn.Module, ABC):
    problems: ClassVar[frozenset[str]]  # those it can decide

    def __init__(self, shape: TaskShape, settings: NetworkSettings, outputs: int = 1) -> None:
        super().__init__()
        self.shape, self.settings, self.outputs = shape, settings, outputs

    @abstractmethod
    def forward(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, F] scaled observations and [B, A] mask -> [B, A, K] scores, ILLEGAL where the mask is false, and [B, K]
        values.
        """

    def policy(self, observations: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """[B, A] logits and [B] values of a network with one output."""
        scores, values = self(observations, mask)
        return scores.squeeze(-1), values.squeeze(-1)

    def parts(self, observations: Tensor) -> ObservationParts:
        layout = self.shape.layout
        fj, fh = len(layout.job_features), len(layout.host_features)
        rows = self.without_empty_slots(observations)
        jobs_at, hosts_at = NUM_GLOBAL + layout.units, rows.shape[1] - layout.hosts * fh
        return ObservationParts(
            rows[:, :NUM_GLOBAL],
            rows[:, NUM_GLOBAL:jobs_at],
            rows[:, jobs_at:hosts_at].view(len(rows), -1, fj),
            rows[:, hosts_at:].view(len(rows), -1, fh),
        )

    def without_empty_slots(self, observations: Tensor) -> Tensor:
        """The batch without the slots that hold no job in any row, unless they are already removed."""
        if observations.shape[1] < self.shape.observation_size:
            return observations
        jobs = self.shape.job_columns
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


SMALL = 0.01  # gain of the layers that return scores: a new policy is nearly uniform


def summary_size(shape: TaskShape) -> int:
    return NUM_GLOBAL + LOOKAHEAD_BINS + 2 * len(shape.layout.job_features) + 2 * len(shape.layout.host_features)


def summary_names(shape: TaskShape) -> tuple[str, ...]:
    """The feature that each number of the summary comes from."""
    bins = ("lookahead",) * LOOKAHEAD_BINS
    return (*GLOBAL, *bins, *shape.layout.job_features * 2, *shape.layout.host_features * 2)


def summarise(parts: ObservationParts) -> Tensor:
    """[B, S] globals, binned lookahead, and mean and mean square of each feature over jobs and hosts."""
    return torch.cat([parts.overall, bin_lookahead(parts.lookahead), _moments(parts.jobs), _moments(parts.hosts)], dim=1)


def bin_lookahead(lookahead: Tensor) -> Tensor:
    """[B, U] -> [B, 8] means over runs of units, which overlap if 8 does not divide U."""
    return functional.adaptive_avg_pool1d(lookahead, LOOKAHEAD_BINS)


def _moments(tokens: Tensor) -> Tensor:
    """[B, N, F] -> [B, 2F]; the first feature is 1 for used rows."""
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
