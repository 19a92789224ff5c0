"""The features of an observation: names, order and shapes. docs/mdp.md describes each of them; a test compares the two.

An observation is one row of float32 numbers in [−1, 1]: globals, lookahead, job tokens, host tokens and, if jobs may be
preempted, tokens of running jobs. A Dict observation names the same parts. Both are views of one buffer.
"""

from __future__ import annotations

from collections import namedtuple
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import gymnasium
import numpy as np

from queuewise.sim.core.tables import F32

GLOBAL = (
    "queue_length", "beyond_window", "running", "gpu_use", "cpu_use", "mem_use", "day_sin", "day_cos", "week_sin", "week_cos", "choices",
)  # fmt: skip
JOB_FIXED = ("present", "estimate", "size", "tasks", "gpu", "cpu", "mem", "priority", "allowed")
JOB_LIVE = ("wait", "fits", "ways", "share_of_free", "user_usage", "slack", "current")
CLASS_LIVE = ("fits", "ways", "share_of_free")  # features of JOB_LIVE that are equal for all jobs of a demand class
HOST_FIXED = ("host_present", "gpu_total", "cores_norm", "mem_norm", "kind", "speed")
HOST_LIVE = ("gpu_free", "core_util", "mem_util", "remaining", "fragmentation", "slots")
RUNNING = ("shown", "held", "gang", "weight", "ran", "left", "stopped", "may_stop", "may_move")
LOOKAHEADS = ("off", "per_gpu", "sorted", "cdf")

VIEWS = ("tokens", "gpu-optimizer", "drl-scheduler", "lsf", "rltune", "rlscheduler")  # the last five are published vectors
ROW_WIDTH = {"gpu-optimizer": 4, "drl-scheduler": 4, "rltune": 7, "rlscheduler": 8}  # numbers per job in a published vector
HIGHEST = {"rltune": 1.5}  # largest number of a published vector, if it is not 1

LONGEST_S = 30 * 86_400.0  # an estimate of 30 days is shown as 1


def positions(features: tuple[str, ...]) -> Any:
    """Positions of the features by name, so that kernels can write `out[at + JOB_AT.wait]`."""
    return namedtuple("Positions", features)(*range(len(features)))


GLOBAL_AT = positions(GLOBAL)
JOB_AT = positions((*JOB_FIXED, *JOB_LIVE))
HOST_AT = positions((*HOST_FIXED, *HOST_LIVE))
RUNNING_AT = positions(RUNNING)
CLASS_AT = positions(CLASS_LIVE)
NUM_GLOBAL = len(GLOBAL)
NUM_JOB_FIXED, NUM_JOB_LIVE = len(JOB_FIXED), len(JOB_LIVE)
NUM_HOST_FIXED, NUM_HOST_LIVE = len(HOST_FIXED), len(HOST_LIVE)
NUM_RUNNING = len(RUNNING)
NUM_CLASS_LIVE = len(CLASS_LIVE)


@dataclass(frozen=True)
class ObservationLayout:
    """Sizes of the parts of an observation, and their order in its row."""

    window: int  # Q
    hosts: int  # H
    units: int  # U
    scores: tuple[str, ...] = ()  # heuristics whose scores are features
    view: str = "tokens"
    stops: int = 0  # P
    moves: bool = False  # whether the P running jobs may be migrated, too

    @property
    def global_features(self) -> tuple[str, ...]:
        return GLOBAL

    @property
    def job_features(self) -> tuple[str, ...]:
        return (*JOB_FIXED, *JOB_LIVE, *(f"score_{name}" for name in self.scores))

    @property
    def host_features(self) -> tuple[str, ...]:
        return (*HOST_FIXED, *HOST_LIVE)

    @property
    def running_features(self) -> tuple[str, ...]:
        return RUNNING

    def num_choices(self, problem: str) -> int:
        """Number of flat actions but the wait: jobs, then jobs to preempt, then jobs to migrate; or hosts; or pairs of job and host."""
        if problem == "job":
            return self.window + self.stops * (2 if self.moves else 1)
        return self.hosts if problem == "host" else self.window * self.hosts

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the parts, in the order of the row."""
        if self.view != "tokens":
            return {"published": (self._published_size(),)}
        parts: dict[str, tuple[int, ...]] = {
            "global": (NUM_GLOBAL,),
            "lookahead": (self.units,),
            "jobs": (self.window, len(self.job_features)),
            "hosts": (self.hosts, len(self.host_features)),
        }
        return parts | ({"running": (self.stops, NUM_RUNNING)} if self.stops else {})

    def _published_size(self) -> int:
        if self.view == "lsf":
            return 4 * self.hosts + 2
        rows = self.window * ROW_WIDTH[self.view]
        return {"gpu-optimizer": rows + self.units + 2, "drl-scheduler": 1 + rows + 1}.get(self.view, rows)

    @cached_property
    def size(self) -> int:
        return sum(int(np.prod(shape)) for shape in self.shapes.values())

    def parts(self, rows: F32) -> dict[str, F32]:
        """Views of [..., size] rows, one per part."""
        views, at = {}, 0
        for name, shape in self.shapes.items():
            length = int(np.prod(shape))
            views[name] = rows[..., at : at + length].reshape(*rows.shape[:-1], *shape)
            at += length
        return views

    def space(self, observation: str) -> gymnasium.Space[Any]:
        high = HIGHEST.get(self.view, 1.0)
        if observation == "flat":
            return gymnasium.spaces.Box(-1.0, high, (self.size,), np.float32)
        return gymnasium.spaces.Dict({name: gymnasium.spaces.Box(-1.0, high, shape, np.float32) for name, shape in self.shapes.items()})
