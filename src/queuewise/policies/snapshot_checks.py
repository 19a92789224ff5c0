"""Whether a snapshot can be the state of a cluster: what contradicts itself is refused, with the job or node that does.

`check_snapshot` needs nothing but the snapshot, and is called when one is read. `check_fit` compares it with the jobs and nodes of a
replay that starts from it. Snapshots that the engine takes pass both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.errors import InputError
from queuewise.sim.core.schedule import DONE, STATUS_NAMES
from queuewise.workload.jobs import WHOLE_GPU, Workload

if TYPE_CHECKING:  # snapshot.py imports this module
    from queuewise.policies.snapshot import JobId, JobRecord, NodeRecord, Place, Progress, RunningJob, Snapshot, WaitingJob

LARGEST = 2**31 - 1  # of whole numbers
MOST_GPUS = 64  # of a node
STATES = ("up", "down", "drained")
ENDED = STATUS_NAMES[DONE:]
DEMAND = ("num_tasks", "min_tasks", "max_tasks", "gpu_milli", "cpu_milli", "mem_mib")
REPAIR = "repair it, or take the snapshot again; docs/snapshots.md lists the fields"


def check_snapshot(snapshot: Snapshot, *, where: str = "snapshot") -> None:
    """Raise an InputError if the snapshot contradicts itself."""

    def refuse(thing: str, problem: str) -> None:
        if problem:
            raise InputError(f"{thing} {problem}", where=where, hint=REPAIR)

    refuse("the snapshot", _problem_of_times(snapshot))
    for position, node in enumerate(snapshot.nodes):
        refuse(f"node {node.index}", _problem_of_node(node, position))
    _check_ids(snapshot, refuse)
    gpus = [MOST_GPUS] * len(snapshot.nodes)
    for one in snapshot.jobs:
        problem = (
            _problem_of_record(one.job, snapshot.now) or _problem_of_progress(one.progress) or _problem_of_runs(one, snapshot.now, gpus)
        )
        refuse(f"job {one.job.job_id}", problem)
    for waiting in snapshot.queue:
        refuse(f"waiting job {waiting.job.job_id}", _problem_of_waiting(waiting, snapshot.now, gpus))
    for running in snapshot.running:
        refuse(f"running job {running.job.job_id}", _problem_of_running(running, snapshot.now, gpus))
    _check_gpus(snapshot, refuse)


def check_fit(snapshot: Snapshot, workload: Workload, rows: Mapping[JobId, int], nodes: Mapping[str, Any]) -> None:
    """Raise an InputError if the snapshot is not one of these jobs, found by `rows`, and of these empty nodes.

    `nodes` are columns [N]: `gpus`, `cpu_milli` and `mem_mib` of each.
    """
    for one in snapshot.jobs:
        row = rows[one.job.job_id]
        for name in DEMAND:
            mine, its = getattr(one.job, name), getattr(workload, name)[row]
            if mine != its:
                raise InputError(
                    f"job {one.job.job_id} has {name} {mine} in the snapshot, but {its} in the workload",
                    hint="use the workload that the snapshot was taken of",
                )
        if workload.submit[row] > snapshot.now:
            raise InputError(
                f"job {one.job.job_id} is in the snapshot of {snapshot.now:g} s, but submitted at {workload.submit[row]:g} s",
                hint="use the workload that the snapshot was taken of",
            )
    used = {name: np.zeros(len(snapshot.nodes)) for name in ("cpu_milli", "mem_mib")}
    for running in snapshot.running:
        for place in running.places:
            if place.gpus and max(place.gpus) >= nodes["gpus"][place.node]:
                raise InputError(
                    f"running job {running.job.job_id} has GPU {max(place.gpus)} of node {place.node}, which the cluster does not have",
                    hint="use the same cluster",
                )
            for name, amounts in used.items():
                amounts[place.node] += place.tasks * getattr(running.job, name)
    for name, amounts in used.items():
        over = np.flatnonzero(amounts > nodes[name])
        if len(over):
            raise InputError(
                f"the running jobs have {amounts[over[0]]:,.0f} {name} of node {over[0]}, which has {nodes[name][over[0]]:,}",
                hint="use the same cluster",
            )


def problem_of_places(places: Sequence[Place], gpu_milli: int, node_gpus: Sequence[int]) -> str:
    """What is wrong with places of tasks with this GPU demand on nodes with so many GPUs; empty if nothing is."""
    shares = 0 < gpu_milli < WHOLE_GPU
    last, seen = -1, set()
    for node, tasks, gpus in places:
        if not 0 <= node < len(node_gpus):
            return f"there is no node {node}"
        if tasks < 1 or (shares and tasks > 1):
            return f"a place on node {node} has {tasks} tasks" + (", but tasks that share GPUs have one each" if shares else "")
        wanted = 1 if shares else tasks * (gpu_milli // WHOLE_GPU)
        if len(gpus) != wanted or len(set(gpus)) != wanted:
            return f"a place on node {node} needs {wanted} different GPUs, not {list(gpus)}"
        if gpus and not (min(gpus) >= 0 and max(gpus) < node_gpus[node]):
            return f"node {node} has no GPU {max(gpus) if min(gpus) >= 0 else min(gpus)}"
        if node in seen and not (shares and node == last):
            return f"node {node} is named twice"
        seen.add(node)
        last = node
    return ""


def _problem_of_times(snapshot: Snapshot) -> str:
    history = snapshot.history
    if not abs(snapshot.now) < np.inf:
        return f"was taken at {snapshot.now}, which is not a finite time"
    if not (0 <= history.starts < 2**62 and 0 <= history.decisions < 2**62 and (history.learn_at is None or 0 <= history.learn_at < 2**62)):
        return f"counts {history.starts} starts, {history.decisions} decisions and learns at {history.learn_at}"
    late = [time for time in (history.backfilled_at, history.looped_at) if time is not None and time > snapshot.now]
    if late:
        return f"was taken at {snapshot.now:g} s, before a loop of Slurm at {late[0]:g} s"
    wrong = [one for one in history.dependencies if not 0 <= one.unmet <= LARGEST]
    return f"has job {wrong[0].job_id} wait for {wrong[0].unmet} others" if wrong else ""


def _problem_of_node(node: NodeRecord, position: int) -> str:
    if node.index != position:
        return f"is at position {position} of the nodes, which are in the order of their indices"
    if node.state not in STATES:
        return f"is {node.state!r}, not {', '.join(STATES[:-1])} or {STATES[-1]}"
    gpus = [*node.free_gpus, *node.shared_gpus]
    if len(set(gpus)) < len(gpus) or not all(0 <= gpu < MOST_GPUS for gpu in gpus):
        return f"has free GPUs {list(node.free_gpus)} and shared ones {list(node.shared_gpus)}: numbers from 0 to 63, each once"
    if not all(0 < free < WHOLE_GPU for free in node.shared_gpus.values()):
        return f"has shared GPUs {node.shared_gpus}, of which something from 1 to 999 milli is free"
    for name in ("free_cpu_milli", "free_mem_mib"):
        if getattr(node, name) is not None and not 0 <= getattr(node, name) < 2**62:
            return f"has {name} {getattr(node, name)}"
    return ""


def _check_ids(snapshot: Snapshot, refuse: Callable[[str, str], None]) -> None:
    ended = snapshot.history.ended
    for job_id, number in Counter((*snapshot.unfinished, *(one.job_id for one in ended))).items():
        if number > 1:
            refuse(f"job {job_id}", f"is in the snapshot {number} times: each job waits, runs or has ended")
        if isinstance(job_id, int) and not -(2**63) <= job_id < 2**63:
            refuse(f"job {job_id}", "has an id of more than 64 bits")
    for one in ended:
        if one.status not in ENDED:
            refuse(f"job {one.job_id}", f"has ended as {one.status!r}, not as one of {', '.join(ENDED)}")
        if one.end is not None and not one.end <= snapshot.now:
            refuse(f"job {one.job_id}", f"has ended at {one.end:g} s, after the snapshot")
        if not 0 <= one.stops <= LARGEST:
            refuse(f"job {one.job_id}", f"was stopped {one.stops} times")


def _problem_of_record(job: JobRecord, now: float) -> str:
    if not 1 <= job.min_tasks <= job.num_tasks <= job.max_tasks <= LARGEST:
        return f"has num_tasks {job.num_tasks}, min_tasks {job.min_tasks}, max_tasks {job.max_tasks}: 1 ≤ min ≤ num ≤ max is expected"
    if not 0 <= job.gpu_milli <= LARGEST or (job.gpu_milli > WHOLE_GPU and job.gpu_milli % WHOLE_GPU):
        return f"has gpu_milli {job.gpu_milli}, neither a share of one GPU (< 1000) nor a multiple of 1000"
    if not (0 <= job.cpu_milli <= LARGEST and 0 <= job.mem_mib <= LARGEST):
        return f"has cpu_milli {job.cpu_milli} and mem_mib {job.mem_mib}"
    if not job.gpu_milli + job.cpu_milli + job.mem_mib:
        return "asks for no GPU, CPU or memory"
    if not (0 <= job.estimate < np.inf and (job.requested is None or job.requested >= 0)):
        return f"has estimate {job.estimate} and requested {job.requested}"
    return "" if job.submit <= now else f"is submitted at {job.submit:g} s, after the snapshot of {now:g} s"


def _problem_of_progress(progress: Progress) -> str:
    if not (0 <= progress.stops <= LARGEST and 0 <= progress.level <= LARGEST):
        return f"has stops {progress.stops} and level {progress.level}"
    left = progress.remaining_estimate_s
    if not (progress.worked_s >= 0 and progress.attained >= 0 and (left is None or left >= 0)):
        return f"has worked_s {progress.worked_s}, attained {progress.attained} and remaining_estimate_s {left}"
    return ""


def _problem_of_runs(one: WaitingJob | RunningJob, now: float, gpus: Sequence[int]) -> str:
    before = -np.inf
    for run in one.runs:
        if not before <= run.start <= run.end <= now:
            return f"has an earlier run from {run.start:g} to {run.end:g} s: runs follow each other and end by {now:g} s"
        if run.end > run.start:
            problem = _problem_of_tasks(one.job, run.places, gpus)
        else:  # it may stand for several runs of no length (following.first_pieces)
            problem = next(filter(None, (problem_of_places((place,), one.job.gpu_milli, gpus) for place in run.places)), "")
        if problem:
            return f"{problem} (in the run from {run.start:g} s)"
        before = run.end
    return ""


def _problem_of_waiting(one: WaitingJob, now: float, gpus: Sequence[int]) -> str:
    for name in ("released_at", "promoted_at", "held_until"):
        time = getattr(one, name)
        if time is not None and not time >= now:
            return f"has {name} {time:g} s, before the snapshot of {now:g} s"
    if one.released_at is not None and one.awaits_others:
        return "awaits others, and is released at a time"
    if one.planned_start is None:
        return "has planned places, but no planned start" if one.planned_places else ""
    problem = _problem_of_tasks(one.job, one.planned_places, gpus)
    return problem and f"{problem} (in its plan)"


def _problem_of_running(one: RunningJob, now: float, gpus: Sequence[int]) -> str:
    if not one.start <= now:
        return f"starts at {one.start:g} s, after the snapshot of {now:g} s"
    if one.runs and one.runs[-1].end > one.start:
        return f"started at {one.start:g} s, before an earlier run ended at {one.runs[-1].end:g} s"
    if not (one.start <= one.begin < np.inf and one.start <= one.expected_end < np.inf):
        return f"started at {one.start:g} s, but begins at {one.begin:g} s and is expected to end at {one.expected_end:g} s"
    return _problem_of_tasks(one.job, one.places, gpus)


def _problem_of_tasks(job: JobRecord, places: Sequence[Place], gpus: Sequence[int]) -> str:
    total = sum(place.tasks for place in places)
    if not job.min_tasks <= total <= job.max_tasks:
        wanted = f"{job.num_tasks}" if job.min_tasks == job.max_tasks else f"{job.min_tasks} to {job.max_tasks}"
        return f"has places for {total} tasks, not {wanted}"
    problem = problem_of_places(places, job.gpu_milli, gpus)
    return problem and f"has impossible places: {problem}"


def _check_gpus(snapshot: Snapshot, refuse: Callable[[str, str], None]) -> None:
    """No GPU has more than 1000 milli, by what running jobs hold and by what their node says is free."""
    used: Counter[tuple[int, int]] = Counter()
    for one in snapshot.running:
        share = min(one.job.gpu_milli, WHOLE_GPU)
        used.update(_times(((place.node, gpu) for place in one.places for gpu in place.gpus), share))
    for node in snapshot.nodes:
        used.update({(node.index, gpu): free for gpu, free in node.shared_gpus.items()})
        used.update({(node.index, gpu): WHOLE_GPU for gpu in node.free_gpus})
    for (n, gpu), milli in used.items():
        if milli > WHOLE_GPU:
            refuse(f"node {n}", f"has {milli} milli of GPU {gpu} in use or free, more than the {WHOLE_GPU} that a GPU has")


def _times(keys: Iterable[tuple[int, int]], share: int) -> Counter[tuple[int, int]]:
    return Counter({key: share * number for key, number in Counter(keys).items()})
