"""What a user should know before believing a table: nobody waits, estimates say nothing, a placement cannot matter, jobs were rejected."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.found_rules import read_rule
from queuewise.policies.names import found_rule, parse_policy
from queuewise.sim.core.schedule import CANCELLED, PENDING, QUEUED, REJECTED, RUNNING, Schedule
from queuewise.workload.estimates import estimate as named_estimates
from queuewise.workload.estimates import is_constant, learns_by_waits
from queuewise.workload.jobs import ANY_PARTITION, WHOLE_GPU, Floats, Workload, named_partitions
from queuewise.workload.transform import offered_load

HARDLY_S = 1.0  # hardly anybody waits if 95 % of the jobs wait less than this, under every policy
LISTED = 5  # ids of rejected jobs
TIE = 0.001  # relative difference below which all policies are said to tie
ASKED = ("partition", "kind_set", "gpu_milli", "cpu_milli", "mem_mib", "num_tasks")  # what a rejection depends on
MOST_REJECTED = 0.5  # share of jobs; with more, a command ends with exit code 3


def before(workload: Workload, cluster: Cluster, policies: Sequence[str], estimate: Floats, estimates: str) -> list[str]:
    """Remarks that need no replay."""
    remarks = equal_estimates(estimate, estimates)
    for policy, rule in [(policy, found_rule(policy)) for policy in policies]:
        if rule is not None and read_rule(rule).estimates not in ("", estimates):
            remarks.append(f"{policy} was found with {read_rule(rule).estimates} estimates, but here policies know {estimates} ones")
    placed = [policy for policy in policies if "@" in policy]
    if placed and cluster.num_nodes == 1:
        remarks.append(f"{cluster.name} is one node, so placements such as @{parse_policy(placed[0]).placement} change nothing")
    return remarks


def equal_estimates(estimate: Floats, estimates: str) -> list[str]:
    """A remark if estimates of this name are equal for all jobs."""
    if not is_constant(estimate):
        return []
    other = "" if learns_by_waits(estimates) else "; try --estimates predicted"
    return [f"all estimates ({estimates}) are {estimate[0]:g} s, so orders that sort by runtime equal fcfs{other}"]


def equal_requests(workload: Workload, estimates: str, seed: int = 0) -> list[str]:
    """The same, quick. Predictions are not made for it: they change with everything that they learn."""
    return [] if learns_by_waits(estimates) else equal_estimates(named_estimates(workload, estimates, seed).values, estimates)


def after(workload: Workload, cluster: Cluster, waits_p95_s: Sequence[float | None], scores: Sequence[float]) -> list[str]:
    """Remarks about the results of all policies: their 95th percentiles of waits, and their scores."""
    known = [wait for wait in waits_p95_s if wait is not None]
    if known and max(known) < HARDLY_S:
        return [
            f"hardly anybody waits, whatever the policy{_load(workload, cluster, below=1.0)}: "
            "use a smaller cluster, or --load-factor 2 to submit the same jobs in half the time"
        ]
    spread = max(scores) - min(scores) if len(scores) > 1 else np.inf
    if spread <= TIE * max(abs(score) for score in scores):
        return [f"all policies tie{_load(workload, cluster)}: their scores lie between {min(scores):,.4g} and {max(scores):,.4g}"]
    return []


def _load(workload: Workload, cluster: Cluster, below: float = np.inf) -> str:
    """The load of the resource of which the jobs ask for the larger share; empty if it reaches a limit, as in very short logs."""
    loads = {}
    for resource, amount in (("GPUs", {"gpus": cluster.num_gpus}), ("cores", {"cores": cluster.num_cores})):
        with suppress(InputError):  # there is none, or submissions have no span
            loads[resource] = offered_load(workload, **amount)
    if not loads:
        return ""
    busier = max(loads, key=lambda resource: loads[resource])
    if loads[busier] >= below:
        return ""
    return f" (the jobs ask for {loads[busier]:.0%} of the {busier})"


def rejections(workload: Workload, cluster: Cluster, rejected: NDArray[np.bool_]) -> list[str]:
    """One line per reason why jobs can never run on the cluster, with their number and the first of them."""
    by_reason: dict[str, list[str]] = {}
    known: dict[tuple[int, ...], str] = {}  # what jobs ask for -> the reason
    asked = np.column_stack([getattr(workload, name)[rejected] for name in ASKED]).tolist()
    for j, demand in zip(np.flatnonzero(rejected).tolist(), map(tuple, asked), strict=True):
        if demand not in known:
            known[demand] = _reason(workload, cluster, j)
        by_reason.setdefault(known[demand], []).append(str(workload.job_id[j]))
    lines = []
    for reason, ids in sorted(by_reason.items(), key=lambda item: -len(item[1])):
        listed = ", ".join(ids[:LISTED]) + (", …" if len(ids) > LISTED else "")
        lines.append(f"{len(ids):,} job{'s' if len(ids) > 1 else ''} rejected: {reason} (id {listed})")
    return lines


def never_ran(schedule: Schedule) -> list[str]:
    """Why jobs of a replay never ran or never ended, one line per reason."""
    lines = rejections(schedule.workload, schedule.cluster, schedule.status == REJECTED)
    cancelled = int((schedule.status == CANCELLED).sum())
    if cancelled:
        lines.append(f"{cancelled:,} jobs cancelled: they depend on jobs that cannot succeed")
    unfinished = int(np.isin(schedule.status, (PENDING, QUEUED, RUNNING)).sum())
    if unfinished:
        lines.append(f"{unfinished:,} jobs unfinished: the nodes that could run them are down or drained for good")
    return lines


def _reason(workload: Workload, cluster: Cluster, j: int) -> str:
    usable = np.full(cluster.num_nodes, True)
    if workload.partition[j] != ANY_PARTITION:
        name = workload.partitions[workload.partition[j]]
        usable = cluster.nodes_in(named_partitions(name))
        if not usable.any():
            return f"partition {name!r} is not in the cluster (has: {', '.join(one.name for one in cluster.partitions)})"
    kinds = workload.kind_sets[workload.kind_set[j]]
    if kinds:
        named = [number for number, kind in enumerate(cluster.kinds) if kind.name in kinds]
        usable = usable & np.isin(cluster.node_kind, named)
        if not usable.any():
            return f"they ask for {' or '.join(kinds)}, which the nodes they may use do not have"
    for what, asked, held in (
        ("GPUs", workload.gpu_milli[j], cluster.node_gpus * WHOLE_GPU),
        ("cores", workload.cpu_milli[j], cluster.node_cpu_milli),
        ("MiB of memory", workload.mem_mib[j], cluster.node_mem_mib),
    ):
        if (held[usable] < asked).all():
            return f"a task needs more {what} than any node has that it may use"
    if workload.num_tasks[j] == 1:
        return "no node has the GPUs, cores and memory of a task at once"
    return "all their tasks together need more than the cluster has"


def exit_code(rejected: int, jobs: int, *, allowed: bool) -> int:
    """0, or 3 if so many jobs were rejected that the results mean little."""
    return 3 if jobs and rejected > MOST_REJECTED * jobs and not allowed else 0
