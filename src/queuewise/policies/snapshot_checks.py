"""Whether a snapshot can be the state of a cluster: what contradicts itself is refused, with the job or node that does.

`check_snapshot` needs nothing but the snapshot, and is called when one is read. `check_fit` compares it with the jobs and nodes of a
replay that starts from it. Snapshots that the engine takes pass both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import UNLIMITED
from queuewise.errors import InputError
from queuewise.sim.core.schedule import DONE, KILLED, STATUS_NAMES
from queuewise.workload.jobs import WHOLE_GPU, Workload

if TYPE_CHECKING:  # snapshot.py imports this module
    from queuewise.policies.snapshot import EndedJob, JobId, JobRecord, NodeRecord, Place, RunningJob, Snapshot, WaitingJob

LARGEST = 2**31 - 1  # of whole numbers
MOST_GPUS = 64  # of a node
STATES = ("up", "down", "drained")
ENDED = STATUS_NAMES[DONE:]
RAN_TO_AN_END = (STATUS_NAMES[DONE], STATUS_NAMES[KILLED])
ROUNDING_S = 1e-3  # work and times are sums of numbers up to 1e9 s
REPAIR = "repair it, or take the snapshot again; docs/snapshots.md lists the fields"


def check_snapshot(snapshot: Snapshot, *, where: str = "snapshot") -> None:
    """Raise an InputError if the snapshot contradicts itself."""

    def refuse(thing: str, problem: str) -> None:
        if problem:
            raise InputError(f"{thing} {problem}", where=where, hint=REPAIR)

    now = snapshot.now
    refuse("the snapshot", _problem_of_times(snapshot))
    users = {place.node: one.job.job_id for one in snapshot.running for place in one.places}
    for position, node in enumerate(snapshot.nodes):
        refuse(f"node {node.index}", _problem_of_node(node, position) or _problem_of_use(node, users.get(position), now))
    _check_ids(snapshot, refuse)
    for ended in snapshot.history.ended:
        refuse(f"job {ended.job_id}", _problem_of_ended(ended, now))
    gpus = [MOST_GPUS] * len(snapshot.nodes)
    for one in snapshot.jobs:
        problem = problem_of_record(one.job, now) or _problem_of_runs(one, now, gpus) or _problem_of_progress(one)
        refuse(f"job {one.job.job_id}", problem)
    for waiting in snapshot.queue:
        refuse(f"waiting job {waiting.job.job_id}", _problem_of_waiting(waiting, now, gpus))
    for running in snapshot.running:
        refuse(f"running job {running.job.job_id}", _problem_of_running(running, now, gpus))
    _check_committed(snapshot, refuse)
    _check_gpus(snapshot, refuse)


@dataclass(frozen=True)
class EmptyNodes:
    """What the nodes of a replay have. All columns are [N]."""

    gpus: NDArray[np.int64]
    cpu_milli: NDArray[np.int64]
    mem_mib: NDArray[np.int64]
    speed: NDArray[np.float64]


def check_fit(
    snapshot: Snapshot, workload: Workload, rows: Mapping[JobId, int], facts: Mapping[str, Sequence[Any]], has: EmptyNodes
) -> None:
    """Raise an InputError if the snapshot is not one of these jobs, found by `rows`, and of these nodes.

    `facts` are the fields of its unfinished jobs as the workload has them, each in the order of `snapshot.jobs`.
    """
    hint = "use the workload that the snapshot was taken of"
    jobs = [one.job for one in snapshot.jobs]
    for name, values in facts.items():
        for job, its in zip(jobs, values, strict=True):
            if getattr(job, name) != its:
                raise InputError(f"job {job.job_id} has {name} {getattr(job, name)} in the snapshot, but {its} in the workload", hint=hint)
    for ended in snapshot.history.ended:
        submit = workload.submit[rows[ended.job_id]] if ended.job_id in rows else -np.inf
        if submit > snapshot.now or (ended.start is not None and submit > ended.start):
            what = f"is submitted at {submit:g} s, but has started at {ended.start} and ended by {snapshot.now:g} s"
            raise InputError(f"job {ended.job_id} {what} in the snapshot", hint=hint)
    _check_work(snapshot, float(has.speed.max()))
    _check_free(snapshot, has)


def _check_work(snapshot: Snapshot, speed: float) -> None:
    """No job has done more work than it can have in the time it has worked, by the fastest node and the most tasks."""
    for one in snapshot.jobs:
        done, worked = sum(one.progress.done_s), one.progress.worked_s
        if done > worked * max(speed, 1.0) * (one.job.max_tasks / one.job.num_tasks) * (1 + 1e-6) + ROUNDING_S:
            raise InputError(
                f"job {one.job.job_id} has done {done:g} s of work in the {worked:g} s it has worked, more than any node does", hint=REPAIR
            )


def _check_free(snapshot: Snapshot, has: EmptyNodes) -> None:
    """What is free on each node is what the running jobs leave of it: nothing where no job may start."""
    used = {name: [0] * len(snapshot.nodes) for name in ("gpu_milli", "cpu_milli", "mem_mib")}
    for running in snapshot.running:
        for place in running.places:
            if place.gpus and max(place.gpus) >= has.gpus[place.node]:
                raise InputError(
                    f"running job {running.job.job_id} has GPU {max(place.gpus)} of node {place.node}, which the cluster does not have",
                    hint="use the same cluster",
                )
            for name, amounts in used.items():
                amounts[place.node] += place.tasks * getattr(running.job, name)
    capacity = {"gpu_milli": (has.gpus * WHOLE_GPU).tolist(), "cpu_milli": has.cpu_milli.tolist(), "mem_mib": has.mem_mib.tolist()}
    for node, gpus in zip(snapshot.nodes, has.gpus.tolist(), strict=True):
        if max((*node.free_gpus, *node.shared_gpus), default=-1) >= gpus:
            raise InputError(f"node {node.index} has free GPUs beyond the {gpus} of the cluster's node", hint="use the same cluster")
        gpu_milli = len(node.free_gpus) * WHOLE_GPU + sum(node.shared_gpus.values())
        for name, amount in (("gpu_milli", gpu_milli), ("cpu_milli", node.free_cpu_milli), ("mem_mib", node.free_mem_mib)):
            whole, held = capacity[name][node.index], used[name][node.index]
            if held > whole:
                raise InputError(
                    f"the running jobs have {held:,} {name} of node {node.index}, which has {whole:,}", hint="use the same cluster"
                )
            left = None if whole == UNLIMITED else whole - held if node.state == "up" else 0
            if amount != left:
                raise InputError(
                    f"node {node.index}, which is {node.state}, has {amount} {name} free, not {left}: running jobs hold {held} of {whole}",
                    hint="use the same cluster, or take the snapshot again",
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


def _problem_of_use(node: NodeRecord, job_id: JobId | None, now: float) -> str:
    """`job_id`: a job that runs on the node, if one does."""
    since, awake = node.idle_since, node.awake_at
    if since is not None and since > (now if awake is None else max(now, awake)):
        return f"is idle since {since:g} s, after the snapshot of {now:g} s"
    if job_id is not None and (node.state == "down" or node.asleep or since is not None):
        state = "down" if node.state == "down" else "asleep" if node.asleep else f"idle since {since:g} s"
        return f"is {state}, but job {job_id} runs there"
    return ""


def _check_ids(snapshot: Snapshot, refuse: Callable[[str, str], None]) -> None:
    ended = snapshot.history.ended
    ids = (*snapshot.unfinished, *(one.job_id for one in ended))
    if len({isinstance(job_id, str) for job_id in ids}) > 1:
        refuse("the snapshot", "has jobs whose ids are numbers and jobs whose ids are texts: all must be alike")
    for job_id, number in Counter(ids).items():
        if number > 1:
            refuse(f"job {job_id}", f"is in the snapshot {number} times: each job waits, runs or has ended")
        if isinstance(job_id, int) and not -(2**63) <= job_id < 2**63:
            refuse(f"job {job_id}", "has an id of more than 64 bits")
        if isinstance(job_id, str) and "\0" in job_id:
            refuse(f"job {job_id!r}", "has an id with a character of code 0")


def _problem_of_ended(one: EndedJob, now: float) -> str:
    if one.status not in ENDED:
        return f"has ended as {one.status!r}, not as one of {', '.join(ENDED)}"
    if one.end is not None and not one.end <= now:
        return f"has ended at {one.end:g} s, after the snapshot"
    if one.start is not None and not one.start <= now:
        return f"has ended, and started at {one.start:g} s, after the snapshot"
    if one.end is not None and one.start is None:
        return f"has ended at {one.end:g} s, but never started"
    if one.end is not None and one.start is not None and one.start > one.end:
        return f"has ended at {one.end:g} s, before its start at {one.start:g} s"
    if one.end is None and one.status in RAN_TO_AN_END:
        return f"is {one.status}, but has no end"
    return "" if 0 <= one.stops <= LARGEST else f"was stopped {one.stops} times"


def problem_of_record(job: JobRecord, now: float) -> str:
    """What is wrong with what a job asks for; empty if nothing is."""
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
    if job.predicted is not None and job.predicted < 0:
        return f"has predicted {job.predicted}"
    return "" if job.submit <= now else f"is submitted at {job.submit:g} s, after the snapshot of {now:g} s"


def _problem_of_runs(one: WaitingJob | RunningJob, now: float, gpus: Sequence[int]) -> str:
    before = one.job.submit
    for run in one.runs:
        if not before <= run.start <= run.end <= now:
            rule = f"runs follow each other, from the submission at {one.job.submit:g} s to {now:g} s"
            return f"has an earlier run from {run.start:g} to {run.end:g} s: {rule}"
        if run.end > run.start:
            problem = _problem_of_tasks(one.job, run.places, gpus)
        else:  # it may stand for several runs of no length (following.first_pieces)
            problem = next(filter(None, (problem_of_places((place,), one.job.gpu_milli, gpus) for place in run.places)), "")
        if problem:
            return f"{problem} (in the run from {run.start:g} s)"
        before = run.end
    return ""


def _problem_of_progress(one: WaitingJob | RunningJob) -> str:
    """Every stop ends a run; several runs of no length may be one record."""
    progress, runs = one.progress, one.runs
    if not (0 <= progress.stops <= LARGEST and 0 <= progress.level <= LARGEST):
        return f"has stops {progress.stops} and level {progress.level}"
    if progress.stops < len(runs) or (progress.stops > len(runs) and all(run.end > run.start for run in runs)):
        return f"has stops {progress.stops}, but {len(runs)} earlier runs"
    left = progress.remaining_estimate_s
    if not (progress.worked_s >= 0 and progress.attained >= 0 and (left is None or left >= 0)):
        return f"has worked_s {progress.worked_s}, attained {progress.attained} and remaining_estimate_s {left}"
    length = sum(run.end - run.start for run in runs)
    if progress.worked_s > length * (1 + 1e-9) + ROUNDING_S:
        return f"has worked for {progress.worked_s:g} s, but its earlier runs have {length:g} s"
    done = progress.done_s[0] + progress.done_s[1]
    if not 0 <= done < np.inf or (done > ROUNDING_S and not progress.worked_s):
        return f"has done_s {list(progress.done_s)} after {progress.worked_s:g} s of work"
    return ""


def _problem_of_waiting(one: WaitingJob, now: float, gpus: Sequence[int]) -> str:
    for name in ("released_at", "promoted_at", "held_until"):
        time = getattr(one, name)
        if time is not None and not time >= now:
            return f"has {name} {time:g} s, before the snapshot of {now:g} s"
    if one.released_at is not None and one.awaits_others:
        return "awaits others, and is released at a time"
    if one.committed and (one.awaits_others or one.released_at is not None):
        return "is committed, but in no queue"
    if one.first_start is not None and not (one.runs and one.runs[0].start <= one.first_start <= now):
        return f"has first_start {one.first_start:g} s, which is in or after none of its {len(one.runs)} earlier runs"
    if one.planned_start is None:
        return "has planned places, but no planned start" if one.planned_places else ""
    problem = _problem_of_tasks(one.job, one.planned_places, gpus)
    return problem and f"{problem} (in its plan)"


def _problem_of_running(one: RunningJob, now: float, gpus: Sequence[int]) -> str:
    if not one.start <= now:
        return f"starts at {one.start:g} s, after the snapshot of {now:g} s"
    if one.start < one.job.submit:
        return f"started at {one.start:g} s, before its submission at {one.job.submit:g} s"
    if one.runs and one.runs[-1].end > one.start:
        return f"started at {one.start:g} s, before an earlier run ended at {one.runs[-1].end:g} s"
    if not (one.start <= one.begin < np.inf and one.start <= one.expected_end < np.inf):
        return f"started at {one.start:g} s, but begins at {one.begin:g} s and is expected to end at {one.expected_end:g} s"
    first = one.runs[0].start if one.runs else one.start
    if not first <= one.first_start <= one.begin:  # after now, if its nodes are waking
        return f"has first_start {one.first_start:g} s, not a time from {first:g} s to its begin at {one.begin:g} s"
    return _problem_of_tasks(one.job, one.places, gpus)


def _problem_of_tasks(job: JobRecord, places: Sequence[Place], gpus: Sequence[int]) -> str:
    total = sum(place.tasks for place in places)
    if not job.min_tasks <= total <= job.max_tasks:
        wanted = f"{job.num_tasks}" if job.min_tasks == job.max_tasks else f"{job.min_tasks} to {job.max_tasks}"
        return f"has places for {total} tasks, not {wanted}"
    problem = problem_of_places(places, job.gpu_milli, gpus)
    return problem and f"has impossible places: {problem}"


def _check_committed(snapshot: Snapshot, refuse: Callable[[str, str], None]) -> None:
    """The machine is held for one job of a queue, and the jobs of a partition have one queue."""
    held: dict[str | None, JobId] = {}
    for one in snapshot.queue:
        if one.committed:
            other = held.setdefault(one.job.partition, one.job.job_id)
            if other != one.job.job_id:
                refuse(f"waiting job {one.job.job_id}", f"is committed, and so is job {other}: the machine is held for one job of a queue")


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
