"""When a job will start: the queue is rolled forward many times, with runtimes drawn from what like jobs took."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from queuewise.cluster.described import known_kind
from queuewise.errors import InputError
from queuewise.policies.snapshot import JobId, JobRecord, NodeRecord, Snapshot, WaitingJob
from queuewise.serve.forecast import roll_forward
from queuewise.serve.runtime_history import RuntimeHistory
from queuewise.serve.snapshot_cluster import NODE_SET, cluster_of, is_broken_part, with_broken_parts
from queuewise.workload.jobs import WHOLE_GPU, Floats, Workload, named_partitions

DRAWS = 100
AS_SLURM = "priority+slurm"  # Slurm's loops over the priorities that jobs have now
LEVELS = (10, 50, 90)
SHORTER = (0.5, 0.25)  # of the limit
_TIME = re.compile(r"(?:(?P<d>\d+)-)?(?P<a>\d+)(?::(?P<b>\d+))?(?::(?P<c>\d+))?")
_SIZE = re.compile(r"(\d+)([KMGT]?)")
_MIB = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1024 * 1024}


@dataclass(frozen=True)
class StartTimes:
    """Unix times; None: it would never start."""

    job_id: JobId
    p10: float | None
    p50: float | None
    p90: float | None

    def as_json(self) -> dict[str, Any]:
        return {"job": self.job_id, "p10": self.p10, "p50": self.p50, "p90": self.p90}


def start_times(
    snapshot: Snapshot, jobs: Sequence[JobId], history: RuntimeHistory, *, policy: str = AS_SLURM, draws: int = DRAWS, seed: int = 0
) -> list[StartTimes]:
    """The quantiles of the starts of waiting jobs."""
    if missing := [job for job in jobs if all(one.job.job_id != job for one in snapshot.queue)]:
        raise InputError(f"job {missing[0]} does not wait", where="snapshot", hint="when and why are for waiting jobs")
    cluster = cluster_of(snapshot)
    shown = with_broken_parts(snapshot, cluster)
    records = {one.job.job_id: (one.job, 0.0) for one in shown.queue}
    records |= {one.job.job_id: (one.job, max(shown.now - one.start, 0.0)) for one in shown.running}
    found: dict[JobId, list[float]] = {job: [] for job in jobs}
    for draw in range(draws):
        generator = np.random.default_rng((seed, draw))

        def runtimes(workload: Workload, generator: np.random.Generator = generator) -> Floats:
            ids: list[JobId] = workload.job_id.tolist()
            return np.array([_drawn(records[job_id], history, generator) for job_id in ids])

        forecast = roll_forward(shown, cluster, policy, runtimes=runtimes)
        for job in jobs:
            at = forecast.starts[job]
            found[job].append(np.inf if at is None else at)
    return [StartTimes(job, *(_quantile(found[job], level, snapshot.epoch) for level in LEVELS)) for job in jobs]


def _drawn(known: tuple[JobRecord, float], history: RuntimeHistory, generator: np.random.Generator) -> float:
    job, elapsed = known
    return job.estimate if is_broken_part(job.job_id) else history.draw(job, elapsed, generator)


def _quantile(values: Sequence[float], level: float, epoch: float) -> float | None:
    value = float(np.quantile(values, level / 100, method="inverted_cdf"))
    return value + epoch if np.isfinite(value) else None


def with_other_limit(snapshot: Snapshot, job: JobId, part: float) -> Snapshot:
    """The snapshot, had the job asked for a part of its time."""
    return _changed(snapshot, job, lambda one: replace(one, estimate=one.estimate * part, requested=(one.requested or one.estimate) * part))


def with_other_partition(snapshot: Snapshot, job: JobId, partition: str) -> Snapshot:
    return _changed(snapshot, job, lambda one: replace(one, partition=partition))


def other_partitions(snapshot: Snapshot, job: JobId) -> list[str]:
    """Partitions that the job is not in and whose nodes are large enough for it."""
    record = next(one.job for one in snapshot.queue if one.job.job_id == job)
    own = set(named_partitions(record.partition)) if record.partition else set()
    names = {name for node in snapshot.nodes if node.shape is not None and _large_enough(record, node) for name in node.shape.partitions}
    return sorted(name for name in names - own if not name.startswith(NODE_SET))


def _large_enough(job: JobRecord, node: NodeRecord) -> bool:
    shape = node.shape
    if shape is None or node.state != "up":
        return False
    cores, memory = shape.cpu_milli is None or job.cpu_milli <= shape.cpu_milli, shape.mem_mib is None or job.mem_mib <= shape.mem_mib
    return job.gpu_milli <= shape.gpus * WHOLE_GPU and cores and memory


def _changed(snapshot: Snapshot, job: JobId, change: Any) -> Snapshot:
    return replace(snapshot, queue=tuple(replace(one, job=change(one.job)) if one.job.job_id == job else one for one in snapshot.queue))


# --- scripts


def with_script(snapshot: Snapshot, script: str, user: str, history: RuntimeHistory, *, where: str) -> tuple[Snapshot, JobId]:
    """The snapshot with a job that asks for what the #SBATCH lines of a script ask for, submitted now, and its id."""
    options = _options(script, where)
    if refused := next((name for name in NOT_IN_SNAPSHOTS if name in options), None):
        raise InputError(f"--{refused} names nodes, which snapshots do not tell apart", where=where, hint="submit it, and ask for the job")
    nodes, tasks = _whole(options, "nodes", 1, where), _whole(options, "ntasks", 1, where)
    cores, limit = _whole(options, "cpus-per-task", 1, where), _seconds(options.get("time"), where)
    gpus, kind = _gpus(options)
    per_node = "nodes" in options or gpus > 0 or "exclusive" in options
    memory = _mebibytes(options.get("mem"), where) or _mebibytes(options.get("mem-per-cpu"), where) * cores
    number = nodes if per_node else tasks
    default = next((shape.partitions[0] for node in snapshot.nodes if (shape := node.shape) is not None and shape.partitions), None)
    name = options.get("job-name", "")
    least = min((one.job.priority for one in snapshot.queue), default=0.0)
    partition, milli = options.get("partition", default), WHOLE_GPU * (cores * -(-tasks // nodes) if per_node else cores)
    if "exclusive" in options:
        milli, gpus = _whole_node(snapshot, partition, milli, gpus)
    ids: list[JobId] = [*(one.job.job_id for one in snapshot.queue), *(one.job.job_id for one in snapshot.running)]
    numbers = [known for known in ids if isinstance(known, int)]
    job_id: JobId = max(numbers) + 1 if numbers else "script"  # ids of a snapshot are alike
    job = JobRecord(
        job_id, snapshot.now, limit, number, number, number, WHOLE_GPU * gpus, milli, memory, priority=least, requested=limit,
        kinds=(known_kind(kind)[0],) if kind else (), partition=partition, user=user,
        predicted=history.predict(user, name, tasks, limit) if len(history) else None,
    )  # fmt: skip
    return replace(snapshot, queue=(*snapshot.queue, WaitingJob(job))), job_id


NOT_IN_SNAPSHOTS = ("constraint", "nodelist", "exclude", "nodefile", "reservation")
SHORT = {
    "N": "nodes", "n": "ntasks", "c": "cpus-per-task", "t": "time", "p": "partition", "J": "job-name", "G": "gpus", "C": "constraint",
    "w": "nodelist", "x": "exclude",
}  # fmt: skip


def _options(script: str, where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for number, line in enumerate(script.splitlines(), 1):
        if not line.startswith("#SBATCH"):
            continue
        try:
            words = shlex.split(line[len("#SBATCH") :], comments=True)
        except ValueError as error:
            raise InputError(f"cannot be read: {error}", where=f"{where}:{number}", hint="close the quote") from None
        while words:
            word = words.pop(0)
            if not word.startswith("-"):
                raise InputError(f"{word!r} is no option", where=f"{where}:{number}", hint="for example #SBATCH --time=1:00:00")
            name, equals, value = word.lstrip("-").partition("=")
            if not word.startswith("--") and len(name) > 1:
                name, value = name[0], name[1:]
            if not equals and not value and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[SHORT.get(name, name)] = value
    return found


def _whole(options: dict[str, str], name: str, default: int, where: str) -> int:
    text = options.get(name, str(default)).split("-")[0]
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"--{name}={options[name]} is no number", where=where, hint=f"for example --{name}=2")
    return int(text)


def _gpus(options: dict[str, str]) -> tuple[int, str]:
    """GPUs per node, and of which type."""
    for name in ("gres", "gpus-per-node", "gpus"):
        if name in options and ("gpu" in options[name] or name != "gres"):
            parts = [part for part in re.split("[:=]", options[name].split("(")[0]) if part not in ("gres", "gpu", "")]
            number = int(parts.pop()) if parts and parts[-1].isdecimal() else 1
            return number, parts[0] if parts else ""
    return 0, ""


def _whole_node(snapshot: Snapshot, partition: str | None, milli: int, gpus: int) -> tuple[int, int]:
    """Cores (milli) and GPUs of the smallest node that is large enough, which the job would have alone."""
    wanted = set() if partition is None else set(named_partitions(partition))
    shapes = [node.shape for node in snapshot.nodes if node.shape is not None]
    sizes = [(one.gpus, one.cpu_milli or milli) for one in shapes if not wanted or wanted & set(one.partitions)]
    has_gpus, has_cores = min((one for one in sizes if one[0] >= gpus and one[1] >= milli), default=(gpus, milli))
    return has_cores, has_gpus


def _seconds(text: str | None, where: str) -> float:
    if not text:
        raise InputError("names no time limit", where=where, hint="add #SBATCH --time=HH:MM:SS")
    match = _TIME.fullmatch(text)
    if match is None:
        raise InputError(f"--time={text} is no time", where=where, hint="for example 1-12:00:00, 90 (minutes) or 1:30:00")
    days, parts = int(match["d"] or 0), [int(part) for part in (match["a"], match["b"], match["c"]) if part is not None]
    if match["d"] is not None:
        hours, minutes, seconds = [*parts, 0, 0][:3]
    else:
        hours, minutes, seconds = {1: (0, parts[0], 0), 2: (0, *parts), 3: tuple(parts)}[len(parts)]
    return float(max(days * 86_400 + hours * 3600 + minutes * 60 + seconds, 60))


def _mebibytes(text: str | None, where: str) -> int:
    if not text:
        return 0
    match = _SIZE.fullmatch(text.upper().removesuffix("B"))
    if match is None:
        raise InputError(f"memory {text!r}", where=where, hint="for example 4G")
    return max(int(int(match[1]) * _MIB[match[2]]), 1)
