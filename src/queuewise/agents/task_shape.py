"""The shape of a task as a network sees it: parts of an observation, number of actions, flat actions and masks.

Actions are flat: a job's slot, a host, or slot × H + host (joint problem). In the job problem, running jobs to preempt
and to migrate may follow. The last action is always the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, Field, field_validator

from queuewise.config import Config, validate
from queuewise.envs.features import GLOBAL, NUM_GLOBAL, ObservationLayout
from queuewise.errors import InputError

TASK_VERSION = 1  # raise it when the meaning of a feature or of an action changes and its name does not


@dataclass(frozen=True)
class TaskShape:
    """The problem and the layout of its observations."""

    problem: str  # job, host or joint
    layout: ObservationLayout

    @cached_property
    def num_actions(self) -> int:
        return self.layout.num_choices(self.problem) + 1

    @cached_property
    def observation_size(self) -> int:
        return self.layout.size

    @cached_property
    def job_columns(self) -> range:
        """The columns of an observation that describe jobs; the step is the width of one job. None in published views."""
        if self.layout.view != "tokens":
            return range(self.layout.size, self.layout.size)
        window, features = self.layout.shapes["jobs"]
        first = NUM_GLOBAL + self.layout.units
        return range(first, first + window * features, features)

    def as_json(self) -> dict[str, Any]:
        layout = self.layout
        features = {"global": list(GLOBAL), "jobs": list(layout.job_features), "hosts": list(layout.host_features)}
        of_running = {"running": list(layout.running_features)} if layout.stops else {}
        return {
            "version": TASK_VERSION,
            "problem": self.problem,
            "window": layout.window,
            "hosts": layout.hosts,
            "units": layout.units,
            **({"stops": layout.stops, "moves": layout.moves} if layout.stops else {}),
            **({"view": layout.view} if layout.view != "tokens" else {}),
            "features": features | of_running,
        }


class TaskFields(Config):
    """What `as_json` writes."""

    model_config = ConfigDict(strict=True)
    version: int
    problem: Literal["job", "host", "joint"]
    window: int = Field(ge=1)
    hosts: int = Field(ge=0)
    units: int = Field(ge=0)
    stops: int = Field(0, ge=0)
    moves: bool = False
    view: str = "tokens"
    features: dict[Literal["global", "jobs", "hosts", "running"], list[str]]

    @field_validator("features")
    @classmethod
    def _has_all(cls, features: dict[str, list[str]]) -> dict[str, list[str]]:
        if missing := {"global", "jobs", "hosts"} - set(features):
            raise ValueError(f"lacks {', '.join(sorted(missing))}")
        return features


def read_shape(data: dict[str, Any], *, where: str) -> TaskShape:
    """The shape that `as_json` wrote; a task with other features than in this version is refused."""
    task = validate(TaskFields, data, source=f"{where} (card: task)")
    scores = tuple(name.removeprefix("score_") for name in task.features["jobs"] if name.startswith("score_"))
    layout = ObservationLayout(task.window, task.hosts, task.units, scores, task.view, task.stops, task.moves)
    shape = TaskShape(task.problem, layout)
    present = shape.as_json()
    for key in ("version", "features"):
        if data[key] != present[key]:
            raise InputError(
                f"was trained for another version of the task: {_difference(key, data[key], present[key])}",
                where=where,
                hint="train again, or use the version of queuewise that wrote it",
            )
    return shape


def _difference(key: str, then: Any, now: Any) -> str:
    if key == "version":
        return f"version {then} instead of {now}"
    parts = []
    for kind in now:
        removed, added = ([name for name in a if name not in b] for a, b in ((then[kind], now[kind]), (now[kind], then[kind])))
        parts += [f"{kind} had {', '.join(removed)}"] if removed else []
        parts += [f"{kind} did not have {', '.join(added)}"] if added else []
    return "; ".join(parts) or "its features have another order"


# --- flat actions and masks

Bools = NDArray[np.bool_]
I64 = NDArray[np.int64]


def flat_mask(mask: Any, shape: TaskShape) -> Bools:
    """[E, A] flat mask from the mask of the batch. In the joint problem the pairs come first, then the wait."""
    slots = shape.layout.window + 1
    flat: Bools = np.concatenate([mask[:, slots:], mask[:, slots - 1 : slots]], axis=1) if shape.problem == "joint" else mask
    return flat


def split_actions(flat: I64, shape: TaskShape) -> I64:
    """Flat actions [E] as the batch takes them: [E], or [E, 2] with slot and host in the joint problem."""
    if shape.problem != "joint":
        return flat
    waits = flat == shape.num_actions - 1
    slot = np.where(waits, shape.layout.window, flat // shape.layout.hosts)
    return np.stack([slot, np.where(waits, 0, flat % shape.layout.hosts)], axis=1)
