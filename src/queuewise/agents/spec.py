"""The shape of a task as a network sees it: parts of the observation and number of actions.

Actions are flat: a job's slot, a host, or slot × H + host (joint); the last action is always the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from queuewise.envs.features import GLOBAL, NUM_GLOBAL, ObservationLayout
from queuewise.errors import InputError

TASK_VERSION = 1  # raise it when the meaning of a feature or of an action changes and its name does not


@dataclass(frozen=True)
class Spec:
    problem: str  # job, host or joint
    layout: ObservationLayout

    def __post_init__(self) -> None:
        if self.layout.stops:
            raise InputError(
                f"networks start jobs and stop none: this task offers {self.layout.stops} running jobs to preempt or migrate",
                hint="leave out stops to train on it",
            )

    @cached_property
    def num_actions(self) -> int:
        choices = {"job": self.layout.window, "host": self.layout.hosts, "joint": self.layout.window * self.layout.hosts}
        return choices[self.problem] + 1

    @cached_property
    def observation_size(self) -> int:
        return self.layout.size

    @cached_property
    def job_columns(self) -> range:
        """Columns of an observation that tell of the jobs; its step is from a job to the next."""
        window, features = self.layout.shapes["jobs"]
        first = NUM_GLOBAL + self.layout.units
        return range(first, first + window * features, features)

    def as_json(self) -> dict[str, Any]:
        layout = self.layout
        return {
            "version": TASK_VERSION,
            "problem": self.problem,
            "window": layout.window,
            "hosts": layout.hosts,
            "units": layout.units,
            "features": {"global": list(GLOBAL), "jobs": list(layout.job_features), "hosts": list(layout.host_features)},
        }


def read_spec(data: dict[str, Any], *, where: str) -> Spec:
    """The spec that `as_json` wrote; one made for other features than this version's is refused."""
    scores = tuple(name.removeprefix("score_") for name in data["features"]["jobs"] if name.startswith("score_"))
    spec = Spec(data["problem"], ObservationLayout(data["window"], data["hosts"], data["units"], scores))
    present = spec.as_json()
    for key in ("version", "features"):
        if data[key] != present[key]:
            raise InputError(
                f"was trained for another version of the task: {key} {data[key]} instead of {present[key]}",
                where=where,
                hint="train again, or use the version of queuewise that wrote it",
            )
    return spec
