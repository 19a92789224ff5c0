"""Where policies train and are judged: one workload on one cluster, its TRAIN windows to learn from, its VAL windows to choose by, its
REPORT windows for the figures that are told. The three never share a job or a seed (`evaluation.protocol`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from queuewise.agents.objective import parse_reward, reward_for
from queuewise.agents.settings import TrainSettings
from queuewise.cluster.spec import Cluster
from queuewise.envs.env_setup import EnvSetup, build_arena
from queuewise.envs.presets import preset as preset_settings
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Experiment, ReplaySettings
from queuewise.evaluation.protocol import BLOCK_SEEDS, Plan, block_windows
from queuewise.reading import Notify
from queuewise.workload import Workload
from queuewise.workload.models import is_model

MODEL_CLUSTER = "1x8:V100-16"  # for models, which tell of no cluster
# Without a published scheme: a queue longer than the window shows its shortest jobs, and instants without a choice are passed over.
OWN_TASK: dict[str, Any] = {"window_order": "sjf", "skip_forced": True}
NEVER_CUT = {"horizon_factor": 1e6, "max_steps": None}  # a judged episode goes on until every job has ended


@dataclass(frozen=True, eq=False)
class Grounds:
    settings: TrainSettings
    workload: Workload  # the log, or one draw of the model
    cluster: Cluster
    task: dict[str, Any]  # settings of the environment

    @property
    def from_model(self) -> bool:
        return is_model(self.settings.workload)

    @cached_property
    def setup(self) -> EnvSetup:
        """For training."""
        return self.task_arena("train")

    def task_arena(self, block: str) -> EnvSetup:
        """The task as it is, rewards and cutting off included, on the windows of a block."""
        return self._arena(block, self.settings.workload if self.from_model else self.workload)

    def _arena(self, block: str, workload: Any, **changes: Any) -> EnvSetup:
        s = self.settings
        sizes: dict[str, Any] = {"jobs": s.jobs, "pool": s.pool, "model_args": model_args(s)}
        return build_arena(s.env, workload=workload, cluster=self.cluster, block=block, **sizes, **self.task | changes)

    def judging_arena(self, windows: list[Workload]) -> EnvSetup:
        """For playing these windows to their ends, with nothing paid."""
        return self._arena("report", windows, **NEVER_CUT, reward=(), baseline=None)

    def experiment(self, block: str) -> Experiment:
        """The windows of VAL or REPORT, the same for every policy."""
        s = self.settings
        number, seed = (s.val_windows, 0) if block == "val" else (s.report_windows, s.report_seed)
        windows = block_windows(self.workload, block, number, s.jobs, seed, from_model=self.from_model)
        commits = self.setup.settings.dispatch == "commit"
        replay = ReplaySettings(dispatch="commit" if commits else "reorder", estimates=self.setup.settings.estimates)
        return Experiment(self.workload, self.cluster, Plan("blocks", windows), replay, self._drawer(block) if self.from_model else None)

    def _drawer(self, block: str) -> Callable[[int, int], Workload]:
        """Draws windows of the model as environments do: with sizes that suit the cluster."""
        source = self.task_arena(block).source
        return lambda jobs, seed: source.window(seed - BLOCK_SEEDS[block].start)[0]


def make_grounds(settings: TrainSettings, tell: Notify = lambda remark: None) -> Grounds:
    """Load the workload and its cluster, and settle what the task is; `tell` hears what the reader skipped and filled in."""
    from_model = is_model(settings.workload)
    cluster = settings.cluster or (MODEL_CLUSTER if from_model else None)
    loaded, machine = settings.reading.load_with_cluster(settings.workload, cluster, settings.jobs if from_model else None, 0, tell)
    return grounds_of(settings, loaded.workload, machine)


def model_args(settings: TrainSettings) -> dict[str, Any]:
    """The parameters that the user gave the workload model; their values are checked where it draws."""
    for pair in settings.workload_args:
        if "=" not in pair or not is_model(settings.workload):
            raise InputError(
                f"workload_args {pair!r} is not PARAMETER=VALUE of a workload model", hint="for example workload bursty, bursts=3"
            )
    return dict(pair.split("=", 1) for pair in settings.workload_args)


def grounds_of(settings: TrainSettings, workload: Workload, cluster: Cluster) -> Grounds:
    """The task of these settings, on another workload and cluster perhaps than they name."""
    return Grounds(settings, workload, cluster, _task(settings, workload))


def _task(settings: TrainSettings, workload: Workload) -> dict[str, Any]:
    """The environment's settings: a published scheme's, changed by what the user chose."""
    choices = settings.task.model_dump(exclude={"preset", "reward"}, exclude_none=True)
    base = preset_settings(settings.task.preset) if settings.task.preset else OWN_TASK
    task = base | choices
    if settings.task.reward is not None:
        task["reward"] = parse_reward(settings.task.reward)
    elif "reward" not in task:
        task["reward"] = reward_for(settings.score)
    if "estimates" not in task:
        known = not np.isnan(workload.requested).all()
        task["estimates"] = "requested" if known or not is_model(settings.workload) else "oracle"
    task.pop("problem", None)
    return task | {"observation": "flat", "illegal": "error"}
