"""A log beside its replay, job by job: what was recorded, and what the same jobs do under a policy on a cluster.

Logs are cut out of a history. A log that was selected by the ends of jobs (as sacct and most archives do) holds jobs
that ran or waited when it begins. Those that ran start when they did, those that waited are submitted when the log
begins; neither are compared, because a part of their waits is given. Jobs that ran for 0 s were cancelled while they
waited; they are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.timeline import binned_mean
from queuewise.policies import simulate
from queuewise.sim.core.schedule import REJECTED, Schedule
from queuewise.workload.jobs import ANY_PARTITION, Floats, Workload, named_partitions
from queuewise.workload.loaded import Loaded, Recorded
from queuewise.workload.transform import log_begin

SLURM_POLICY = "multifactor+slurm"  # what Slurm itself does, as far as it can be replayed
OTHER_POLICY = "fcfs+easy"


@dataclass(frozen=True, eq=False)
class LogReplay:
    """Arrays [J] are indexed by the jobs of `workload`: those of the log that ran, with the submissions of the log."""

    workload: Workload
    recorded: Recorded
    schedule: Schedule  # of the same jobs, in another order and with other submissions where the log begins
    begin: float  # of the log, on its clock
    recorded_start: Floats  # [J] NaN unknown
    replayed_start: Floats  # [J] inf if it never started
    left_out: int  # jobs that ran for 0 s

    @property
    def at_begin(self) -> NDArray[np.bool_]:
        """[J] jobs that ran or waited when the log begins."""
        return self.workload.submit < self.begin

    @property
    def compared(self) -> NDArray[np.bool_]:
        """[J] jobs with a wait in both."""
        return ~np.isnan(self.recorded_start) & ~self.at_begin & np.isfinite(self.replayed_start)

    @property
    def recorded_wait(self) -> Floats:
        return self.recorded_start - self.workload.submit

    @property
    def replayed_wait(self) -> Floats:
        return self.replayed_start - self.workload.submit

    @property
    def rejected(self) -> int:
        return int((self.schedule.status == REJECTED).sum())

    @property
    def end(self) -> float:
        """The last submission, after which machines only drain; the last recorded end of a log without a span."""
        last = float(self.workload.submit[-1])
        return last if last > self.begin else float(np.nanmax(self.recorded_start + self.workload.runtime))

    def amounts(self) -> tuple[Floats, float, str]:
        """[J] the GPUs of jobs if most jobs have some, otherwise their cores; how many the cluster has (inf: no limit); the name."""
        workload, cluster = self.workload, self.schedule.cluster
        if cluster.num_gpus and (workload.gpu_milli > 0).mean() > 0.5:
            return workload.gpus, float(cluster.num_gpus), "GPUs"
        return workload.cores, cluster.num_cores, "cores"

    def in_use(self, start: Floats, edges: Floats) -> Floats:
        """[bins] mean amount in use, if jobs start at `start` [J]."""
        ran = np.isfinite(start)
        return binned_mean(start[ran], start[ran] + self.workload.runtime[ran], self.amounts()[0][ran], edges)


def default_policy(log_format: str) -> str:
    """The policy that is most like that of the log's scheduler, as far as the format tells."""
    return SLURM_POLICY if log_format == "slurm" else OTHER_POLICY


def require_waits(loaded: Loaded) -> Recorded:
    """What was recorded. Raises an error for a model, and for a log without a single job that started and ran."""
    workload = loaded.workload
    if loaded.recorded is None or not (~np.isnan(workload.recorded_wait) & (workload.runtime > 0)).any():
        raise InputError(
            f"{workload.name} does not record when its jobs started, so there is nothing to compare with",
            hint="use a log with waits, such as sacct with Submit and Start, or use simulate",
        )
    return loaded.recorded


def replay_log(
    loaded: Loaded,
    cluster: Cluster,
    policy: str,
    *,
    estimates: str | None = None,
    conditions: Conditions = PERFECT,
    seed: int = 0,
    keep_partitions: bool = False,
) -> LogReplay:
    """Replay a log that was read with `ReadOptions(recorded=True, partitions=True)`.

    Jobs keep their partitions if the cluster has all of them, or with `keep_partitions`. `estimates` default to what users
    requested, or to predictions for a log without requests.
    """
    recorded = require_waits(loaded)
    ran = loaded.workload.runtime > 0
    workload, recorded = loaded.workload.take(ran), recorded.take(ran)
    workload = workload if keep_partitions else _within(workload, cluster)
    start = workload.submit + workload.recorded_wait
    begin = log_begin(workload.submit, start + workload.runtime)
    submit = np.where(start < begin, start, np.maximum(workload.submit, begin))
    order = np.argsort(submit, kind="stable")
    jobs = Workload.sorted(**_columns(workload), submit=submit, recorded_wait=start - submit)
    how = estimates or ("requested" if not np.isnan(workload.requested).all() else "predicted")
    schedule = simulate(jobs, cluster, policy, estimates=how, conditions=conditions, seed=seed)
    replayed = np.empty(len(jobs))
    replayed[order] = schedule.start
    return LogReplay(workload, recorded, schedule, begin, start, replayed, int((~ran).sum()))


def _within(workload: Workload, cluster: Cluster) -> Workload:
    """The workload with its partitions if the cluster has all of them, otherwise without."""
    known = {partition.name for partition in cluster.partitions}
    if all(known & set(named_partitions(label)) for label in workload.partitions):  # of several, one is enough
        return workload
    return workload.replace(partition=np.full(len(workload), ANY_PARTITION, np.int32), partitions=())


def _columns(workload: Workload) -> dict[str, object]:
    """All fields of a workload but submissions and waits."""
    return {field.name: getattr(workload, field.name) for field in fields(workload) if field.name not in ("submit", "recorded_wait")}
