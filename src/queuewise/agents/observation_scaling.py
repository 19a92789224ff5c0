"""Scaling of observations, and fast copies of their rows.

Features lie in [−1, 1], but some hardly vary (an estimate between 0.3 and 0.6, a wait close to 1). Mean and deviation
of every feature are measured once, before training, from random play, and then stay fixed: a network never sees the
same state in two ways. They are stored with the weights. There is one pair of numbers per feature, shared by all rows
of jobs, hosts and running jobs and by the whole lookahead, so they fit any number of those. A published view has one
pair per number. Flags that say whether a row is used, whether its job is being placed, or whether it may be stopped or
moved, are not scaled; unused rows stay zero.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from queuewise.envs.features import ObservationLayout
from queuewise.policies.networks.layer_kernels import clear_unused, scale_span, used_slots
from queuewise.sim.core.compilation import entry
from queuewise.sim.core.tables import F32

CONSTANT = 1e-4  # a feature with a smaller deviation counts as constant: it is shifted but not stretched
LEAST = 0.01  # smallest deviation used as a divisor
FLAGS = ("present", "host_present", "current", "shown", "may_stop", "may_move")  # never scaled: zero means no


@dataclass(frozen=True)
class Scaling:
    """x becomes (x − mean) × scale. One vector per part of the observation: [11], [1], [Fj], [Fh], …"""

    mean: dict[str, Tensor]
    scale: dict[str, Tensor]

    def tensors(self) -> dict[str, Tensor]:
        both = (("mean", self.mean), ("scale", self.scale))
        return {f"scaling.{part}.{name}": vector for name, vectors in both for part, vector in vectors.items()}


def read_scaling(tensors: dict[str, Tensor]) -> Scaling:
    parts = [name.split(".")[1] for name in tensors if name.startswith("scaling.") and name.endswith(".mean")]
    return Scaling(
        {part: tensors[f"scaling.{part}.mean"] for part in parts},
        {part: tensors[f"scaling.{part}.scale"] for part in parts},
    )


def identity(layout: ObservationLayout) -> Scaling:
    sizes = {part: 1 if part == "lookahead" else shape[-1] for part, shape in layout.shapes.items()}
    return Scaling({part: torch.zeros(size) for part, size in sizes.items()}, {part: torch.ones(size) for part, size in sizes.items()})


def measure_scaling(layout: ObservationLayout, observations: F32) -> Scaling:
    """Measure [N, F] observations as the environment gives them."""
    means, scales = {}, {}
    names = {"jobs": layout.job_features, "hosts": layout.host_features, "running": layout.running_features}
    for part, values in layout.parts(observations).items():
        rows = values.reshape(-1, 1) if part == "lookahead" else values.reshape(-1, values.shape[-1])
        rows = rows[rows[:, 0] > 0] if part in names else rows
        mean = rows.mean(0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1])
        deviation = rows.std(0, dtype=np.float64) if len(rows) else np.zeros(rows.shape[1])
        scale = np.where(deviation < CONSTANT, 1.0, 1.0 / np.maximum(deviation, LEAST))
        for index, name in enumerate(names.get(part, ())):
            if name in FLAGS:
                mean[index], scale[index] = 0.0, 1.0
        means[part], scales[part] = torch.from_numpy(mean).float(), torch.from_numpy(scale).float()
    return Scaling(means, scales)


class Scaler:
    """A scaling expanded to whole rows of one layout."""

    def __init__(self, scaling: Scaling, layout: ObservationLayout) -> None:
        self.scaling = scaling
        self._mean, self._scale = (_expand(vectors, layout) for vectors in (scaling.mean, scaling.scale))
        lengths = [math.prod(shape) for shape in layout.shapes.values()]
        firsts = dict(zip(layout.shapes, np.cumsum([0, *lengths]), strict=False))
        tokens = [(firsts[part], *shape) for part, shape in layout.shapes.items() if len(shape) > 1]
        self._tokens = np.array(tokens, np.int64).reshape(-1, 3)  # first column, number, features

    def apply(self, observations: Tensor, out: Tensor | None = None) -> Tensor:
        """Scale [B, F] observations, into `out` if given."""
        scaled = torch.empty_like(observations) if out is None else out
        if observations.shape != scaled.shape or observations.shape[1] != len(self._mean):
            raise ValueError(f"rows {tuple(observations.shape)} of {len(self._mean)} features cannot be scaled into {tuple(scaled.shape)}")
        scale_rows(observations.numpy(), self._mean, self._scale, self._tokens, scaled.numpy())
        return scaled


def _expand(vectors: dict[str, Tensor], layout: ObservationLayout) -> F32:
    """[F] the numbers of each part, repeated for all its rows."""
    return np.concatenate([np.resize(vectors[part].numpy(), math.prod(shape)) for part, shape in layout.shapes.items()])


# --- compiled copies of rows


@entry
def gather_rows(rows, chosen, before, after, out) -> None:  # type: ignore[no-untyped-def]
    """out[i] becomes row chosen[i] without the columns from `before` to `after`."""
    for i in range(len(chosen)):
        row = rows[chosen[i]]
        for column in range(before):
            out[i, column] = row[column]
        for column in range(after, len(row)):
            out[i, before + column - after] = row[column]


@entry
def count_slots(rows, first, slots, width) -> int:  # type: ignore[no-untyped-def]
    """How many slots, starting at column `first`, hold a job in any row; at least 1. Jobs fill the slots in order."""
    used = 1
    for i in range(len(rows)):
        used = used_slots(rows[i], first, slots, width, used)
    return used


@entry
def scale_rows(rows, mean, scale, tokens, out) -> None:  # type: ignore[no-untyped-def]
    """out becomes (rows − mean) × scale. Tokens (first column, number, width) whose first feature is 0 become all 0."""
    for i in range(len(rows)):
        scale_span(rows[i], mean, scale, 0, rows.shape[1], out[i])
        for part in range(len(tokens)):
            clear_unused(out[i], tokens[part, 0], tokens[part, 1], tokens[part, 2])
