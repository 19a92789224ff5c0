"""A fixed set of tasks by which policies are ranked: logs on later days, and workload models on random windows.

Every task fixes its jobs, cluster, estimates and protocol, so figures of different people compare. Tasks of workload models always run.
Tasks of logs run where the logs are. A policy's standing is the geometric mean, over tasks, of its mean bounded slowdown and mean wait
relative to `fcfs+easy`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.cluster import load_cluster
from queuewise.evaluation.experiment import Cell, Experiment, ReplaySettings, run_experiment
from queuewise.evaluation.judging import UTILISATION, busier_resource, mean_of
from queuewise.evaluation.protocol import make_plan
from queuewise.evaluation.remarks import equal_requests
from queuewise.evaluation.statistics import ScoreSeries
from queuewise.evaluation.units import mean_series
from queuewise.policies import simulate
from queuewise.policies.names import WISE
from queuewise.workload import ReadOptions, load_workload
from queuewise.workload.estimates import default_estimates
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

REFERENCE = "fcfs+easy"
POLICIES = (  # that are shown without others
    WISE, "model:generalist-hpc", REFERENCE, "fcfs+easy:sjf", "sjf+easy", "saf+easy~3d", "wfp3+easy", "fcfs+conservative",
)  # fmt: skip
SCORES = ("bsld", "wait")
LEAST_WAIT_S = 60.0  # added to waits before ratios are taken


@dataclass(frozen=True)
class SuiteTask:
    """A log (`path` below the folder of logs) or a workload model, on a cluster."""

    name: str
    cluster: str
    path: str = ""
    model: str = ""
    quick: bool = False  # a part of the quick suite
    windows: int = 6
    window_jobs: int = 1024
    shakes: int = 4  # replays of a log


TASKS = (
    SuiteTask("lublin", "flat:256", model="lublin", quick=True),
    SuiteTask("bursty", "2x8:V100-16", model="bursty", quick=True),
    SuiteTask("bench", "32x8:V100-16", model="bench", quick=True),
    SuiteTask("hetero", "hetero56", model="hetero"),
    SuiteTask("poisson", "2x8:V100-16", model="poisson"),
    SuiteTask("KTH", "flat:100", path="swf/KTH-SP2-1996-2.swf.gz"),
    SuiteTask("CTC", "flat:338", path="swf/CTC-SP2-1996-3.1-cln.swf.gz"),
    SuiteTask("HPC2N", "flat:240", path="swf/HPC2N-2002-2.2-cln.swf.gz"),
    SuiteTask("Venus", "80x8:V100-16", path="helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz"),
    SuiteTask("Philly", "80x8:P100", path="philly/philly_jobs_2017-09_to_10.csv.gz"),
)


@dataclass(frozen=True, eq=False)
class Outcome:
    """A policy on a task."""

    task: str
    policy: str
    means: dict[str, float]  # of SCORES
    max_wait_s: float
    p99_wait_s: float | None = None  # these three are means over windows or replays
    makespan_by_span: float | None = None
    utilisation: float | None = None  # of the GPUs or the cores, of which the jobs use the larger share


@dataclass(frozen=True, eq=False)
class Standings:
    outcomes: list[Outcome]
    left_out: list[str]  # tasks whose logs are not there
    remarks: Sequence[str] = ()  # what should be known of tasks, each with its name

    def ratio(self, policy: str) -> float:
        """The geometric mean over tasks and scores of the policy's mean ÷ that of the reference."""
        found = {(one.task, one.policy): one for one in self.outcomes}
        tasks = {one.task for one in self.outcomes}
        logs = [np.log(_padded(score, found[task, policy]) / _padded(score, found[task, REFERENCE])) for task in tasks for score in SCORES]
        return float(np.exp(np.mean(logs)))

    @property
    def policies(self) -> list[str]:
        """From the best to the worst."""
        return sorted(dict.fromkeys(one.policy for one in self.outcomes), key=self.ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "standings": [{"policy": policy, "ratio": self.ratio(policy)} for policy in self.policies],
            "tasks": [
                {"task": one.task, "policy": one.policy, **{f"mean_{name}": value for name, value in one.means.items()},
                 "max_wait_s": one.max_wait_s, "wait_p99_s": one.p99_wait_s, "makespan_by_span": one.makespan_by_span,
                 "utilisation": one.utilisation}
                for one in self.outcomes
            ],
            "left_out": self.left_out,
        }  # fmt: skip


def _padded(score: str, one: Outcome) -> float:
    return one.means[score] + (LEAST_WAIT_S if score == "wait" else 0.0)


def traces_folder() -> Path | None:
    """Where the logs are: the folder that QUEUEWISE_TRACES names."""
    named = os.environ.get("QUEUEWISE_TRACES")
    return Path(named) if named else None


def run_suite(
    policies: Sequence[str],
    *,
    quick: bool = False,
    traces: Path | None = None,
    on_task: Callable[[SuiteTask], None] = lambda task: None,
    tasks: Sequence[SuiteTask] = TASKS,
) -> Standings:
    """All tasks under all policies, and under the reference."""
    names = list(dict.fromkeys((*policies, REFERENCE)))
    outcomes: list[Outcome] = []
    left_out: list[str] = []
    remarks: list[str] = []
    for task in (task for task in tasks if task.quick or not quick):
        if task.path and (traces is None or not (traces / task.path).exists()):
            left_out.append(task.name)
            continue
        on_task(task)
        experiment = _experiment(task, traces)
        remarks += [f"{task.name}: {remark}" for remark in equal_requests(experiment.workload, experiment.settings.estimates or "")]
        cells = run_experiment(experiment, names, simulate)
        resource = UTILISATION[busier_resource(cells)]
        outcomes += [_outcome(task, name, [cell for cell in cells if cell.policy == name], resource) for name in names]
    return Standings(outcomes, left_out, remarks)


def _experiment(task: SuiteTask, traces: Path | None) -> Experiment:
    cluster = load_cluster(task.cluster)
    if task.path:
        assert traces is not None
        options = ReadOptions(processors="requested", clean=True) if ".swf" in task.path else None
        workload = load_workload(traces / task.path, options=options).workload
        plan = make_plan("days", workload, shakes=task.shakes)
        return Experiment(workload, cluster, plan, ReplaySettings(estimates=default_estimates(workload)))

    def draw(num_jobs: int, seed: int) -> Workload:
        return generate(task.model, num_jobs, seed)

    workload = draw(task.window_jobs, 0)
    plan = make_plan("blocks", workload, num_windows=task.windows, window_jobs=task.window_jobs, from_model=True)
    return Experiment(workload, cluster, plan, ReplaySettings(estimates=default_estimates(workload)), draw)


def _outcome(task: SuiteTask, policy: str, cells: Sequence[Cell], resource: str) -> Outcome:
    def mean(score: str) -> float:
        if task.path:
            return mean_series([cell.units or {} for cell in cells], [(1.0, score)]).mean
        return ScoreSeries.of_means([cell.scores[score] or 0.0 for cell in cells]).mean

    longest = max(float(cell.metrics["wait_s"]["max"]) for cell in cells)
    beside = [[cell.metrics["wait_s"]["p99"], cell.makespan_by_span, cell.metrics.get(resource)] for cell in cells]
    return Outcome(task.name, policy, {score: mean(score) for score in SCORES}, longest, *map(mean_of, zip(*beside, strict=True)))
