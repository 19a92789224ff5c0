"""Whether a policy sees the future: runtimes of jobs that have not ended by some time are changed, and what was done by then compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies import simulate
from queuewise.policies.estimating import with_waits
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.estimates import Estimates, estimate
from queuewise.workload.jobs import Workload
from queuewise.workload.predictor import known_at

ESTIMATES = ("requested", "predicted", "noisy:0.8")
SHARES_OF_INSTANTS = (0.3, 0.6, 0.95)  # up to the last submission, after which runtimes are changed

MIXED = build(
    "mixed",
    [NodeGroup(2, gpus=4, kind="V100-16", cpus=16, mem_gib=64, nodes_per_rack=1, core_watts=5.0), NodeGroup(1, gpus=4, kind="T4", cpus=16)],
    speeds={"T4": 0.5},
    node_penalty=0.2,
)


@dataclass(frozen=True, eq=False)
class Trial:
    """A workload whose waits are all known, a cluster, and estimates drawn before anything is changed."""

    workload: Workload
    cluster: Cluster
    estimates: str
    given: str | Estimates  # what `simulate` is given as estimates
    seed: int


def crowded(seed: int, num: int = 90) -> Workload:
    """Jobs of every shape, more than the cluster can serve at once, of users who repeat themselves. Odd seeds record no waits."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 5, num).astype(np.int32)
    runtime = np.exp(rng.normal(3.0 + user, 1.0)).round(1)
    return Workload(
        submit=np.cumsum(rng.exponential(30.0, num)).round(),
        runtime=runtime,
        num_tasks=rng.choice([1, 1, 2, 4], num).astype(np.int32),
        gpu_milli=rng.choice([500, 1000, 1000, 2000], num).astype(np.int32),
        cpu_milli=rng.choice([0, 500, 1000], num).astype(np.int32),
        requested=np.where(rng.random(num) < 0.7, (runtime * rng.uniform(1, 20, num)).round(), np.nan),
        user=user,
        users=tuple("abcde"),
        group=(user // 2).astype(np.int32),
        groups=("x", "y", "z"),
        job_name=(user * 3 + rng.integers(0, 3, num)).astype(np.int32),
        priority=rng.integers(0, 4, num).astype(np.float64),
        deadline=np.where(rng.random(num) < 0.5, rng.uniform(0, 9000, num), np.nan),
        recorded_wait=rng.exponential(200.0, num).round() if seed % 2 == 0 else np.full(num, np.nan),
    )


def trial(seed: int, estimates: str, cluster: Cluster = MIXED) -> Trial:
    workload = with_waits(crowded(seed), cluster)
    noisy = estimates.startswith("noisy")
    return Trial(workload, cluster, estimates, estimate(workload, estimates, seed) if noisy else estimates, seed)


def leak(policy: str, of: Trial, *, uses_predictions: bool = False) -> str:
    """How decisions depend on runtimes of jobs that have not ended; empty if they do not.

    Where predictions are used, runtimes of jobs that have ended on the log's clock stay too.
    """
    by_log = uses_predictions or of.estimates == "predicted"
    options: dict[str, Any] = {"estimates": of.given, "seed": of.seed}
    before = simulate(of.workload, of.cluster, policy, **options)
    instants = np.unique(np.concatenate([before.piece_start, before.piece_end]))
    instants = instants[instants <= of.workload.submit[-1]]
    effects = 0
    for share in SHARES_OF_INSTANTS:
        t = float(instants[int(share * (len(instants) - 1))])
        changed = other_future(of.workload, before, t, by_log, np.random.default_rng(of.seed))
        after = simulate(changed, of.cluster, policy, **options)
        effects += not np.array_equal(after.end, before.end)
        found = _first_difference(_decisions(before, t), _decisions(after, t))
        if found:
            return f"{policy}, {of.estimates}, seed {of.seed}: up to {t:g} s {found}"
    assert effects >= 2, "the changes change nothing: the test is empty"
    return ""


def other_future(workload: Workload, schedule: Schedule, t: float, by_log: bool, rng: np.random.Generator) -> Workload:
    """The workload with other runtimes of jobs that have not ended by t, such that they still have not."""
    num = len(workload)
    open_ = (schedule.end > t) & ((known_at(workload) > t) if by_log else True)
    any_length = np.exp(rng.normal(4.0, 2.0, num)) + 0.1
    if by_log:
        any_length = np.maximum(any_length, t - workload.submit - workload.recorded_wait + 1.0)
    other = np.where(schedule.start <= t, workload.runtime * rng.uniform(1.0, 10.0, num), any_length)
    return workload.replace(runtime=np.where(open_, other, workload.runtime))


def _decisions(schedule: Schedule, t: float) -> list[tuple[float, ...]]:
    """Pieces that started by t, as (job, node, tasks, GPUs, start, end or inf if that is later), in the order of the log."""
    rows = np.flatnonzero(schedule.piece_start <= t)
    end = np.where(schedule.piece_end <= t, schedule.piece_end, np.inf)
    columns = (schedule.piece_job, schedule.piece_node, schedule.piece_tasks, schedule.piece_gpus, schedule.piece_start, end)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


def _first_difference(before: list[tuple[float, ...]], after: list[tuple[float, ...]]) -> str:
    if before == after:
        return ""
    for one, other in zip(before, after, strict=False):
        if one != other:
            return f"{other} takes the place of {one}"
    return f"{len(after)} pieces start instead of {len(before)}"
