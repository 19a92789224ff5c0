"""`Snapshot`: a cluster and its jobs at one instant, in plain Python values, with JSON in and out.

It holds what may be known at that instant: the jobs that wait and run, the nodes, and what policies have learned. The
runtime of a job that has not ended is not in it, nor anything it could be computed from. A replay that starts from a
snapshot takes runtimes from its workload, where it finds jobs by their ids. docs/snapshots.md lists the fields.

All times are seconds on the log's clock, and None stands for "none" or "unlimited", so every number is finite.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError

from queuewise.config import in_plain_words
from queuewise.errors import InputError
from queuewise.policies.snapshot_checks import check_snapshot
from queuewise.regular_files import check_regular
from queuewise.runs import write_text
from queuewise.workload.jobs import Workload

VERSION = 1
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)

JobId = int | str
_JSON_NAMES = {list: "list", str: "text", int: "number", float: "number"}


class Place(NamedTuple):
    """Tasks of a job on one node. Tasks that share GPUs with others have a place each."""

    node: int
    tasks: int
    gpus: tuple[int, ...]  # numbers of the node's GPUs


def mask_of(gpus: Iterable[int]) -> np.int64:
    """Numbers of GPUs as bits, as the engine has them."""
    mask: np.int64 = np.uint64(sum(1 << gpu for gpu in gpus)).astype(np.int64)
    return mask


@dataclass(frozen=True)
class RunRecord:
    """An earlier run of a job that has not ended."""

    start: float
    end: float
    places: tuple[Place, ...]

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class JobRecord:
    """What is known about a job when it is submitted."""

    job_id: JobId
    submit: float
    estimate: float  # seconds
    num_tasks: int
    min_tasks: int
    max_tasks: int
    gpu_milli: int  # per task, 1000 is a whole GPU
    cpu_milli: int  # per task
    mem_mib: int  # per task
    priority: float
    requested: float | None = None  # seconds
    deadline: float | None = None
    kinds: tuple[str, ...] = ()  # GPU kinds that it may use, () any
    partition: str | None = None
    user: str | None = None
    account: str | None = None
    qos: str | None = None
    predicted: float | None = None  # seconds; for orders that go by predictions, where nobody but the sender can make them

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Progress:
    """What a job's earlier runs have left. Reference seconds are those of a run with runtime factor 1."""

    stops: int = 0
    done_s: tuple[float, float] = (0.0, 0.0)  # reference seconds of work done: the exact sum of two numbers
    remaining_estimate_s: float | None = None  # reference seconds; None: the whole estimate
    worked_s: float = 0.0  # time spent working, with what was lost
    attained: float = 0.0  # service, for levels
    level: int = 0
    saved: bool = False  # the last stop took a checkpoint

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class WaitingJob:
    job: JobRecord
    progress: Progress = Progress()
    first_start: float | None = None
    runs: tuple[RunRecord, ...] = ()  # earlier ones
    awaits_others: bool = False  # it depends on jobs that have not started or ended, and is in no queue
    released_at: float | None = None  # all jobs it depends on have started or ended, and it joins its queue then
    promoted_at: float | None = None  # it returns to the first level of service then
    held_until: float | None = None  # a function of the policy keeps it from starting before
    committed: bool = False  # under `commit`: the machine is held for it
    planned_start: float | None = None  # its reservation under conservative backfill
    planned_places: tuple[Place, ...] = ()

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class RunningJob:
    job: JobRecord
    start: float  # of this run
    begin: float  # when it began or will begin to work, after nodes have woken and a checkpoint has been loaded
    expected_end: float  # by the estimate
    places: tuple[Place, ...]
    progress: Progress = Progress()  # when this run started
    first_start: float = field(kw_only=True)  # with all nodes awake
    runs: tuple[RunRecord, ...] = ()  # earlier ones

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class NodeShape:
    """What a node has, whether it is in use or not."""

    name: str
    gpus: int = 0
    kind: str = ""  # of its GPUs
    cpu_milli: int | None = None  # None: unlimited
    mem_mib: int | None = None  # None: unlimited
    partitions: tuple[str, ...] = ("default",)
    rack: int = 0
    speed: float = 1.0  # of its GPUs, relative to the reference kind

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class NodeRecord:
    index: int
    state: str  # "up", "down" or "drained"
    free_gpus: tuple[int, ...] = ()  # numbers of GPUs that are wholly free
    shared_gpus: dict[int, int] = field(default_factory=dict)  # GPU in shared use -> its free part in milli
    free_cpu_milli: int | None = None  # None: unlimited
    free_mem_mib: int | None = None  # None: unlimited
    asleep: bool = False
    idle_since: float | None = None  # nodes that sleep: None while a job is placed there
    awake_at: float | None = None  # nodes that sleep: when it woke, or will wake, from its last sleep
    shape: NodeShape | None = None  # what it has; None: the reader knows the cluster

    __pydantic_config__ = STRICT


class Usage(NamedTuple):
    """What an account, or a user of it, has used. The root has neither name."""

    account: str | None
    user: str | None
    amount: float  # decayed, GPU milli × s
    time: float  # as of this time


class UserWork(NamedTuple):
    """What a user has had, for score functions."""

    user: str
    running_jobs: float
    rate: float  # GPU milli (or cores, tasks) that running jobs hold
    work: float  # decayed, as of `time`
    time: float


class EndedJob(NamedTuple):
    job_id: JobId
    status: str  # as in Schedule
    start: float | None
    end: float | None
    stops: int


class DependencyRecord(NamedTuple):
    """How far the dependencies of a job that has not ended are met."""

    job_id: JobId
    unmet: int
    ready: float | None  # when all that are met take effect
    never: bool  # they can no longer be met


@dataclass(frozen=True)
class History:
    """What has happened and matters for what follows."""

    starts: int = 0  # of runs
    decisions: int = 0
    ended: tuple[EndedJob, ...] = ()
    dependencies: tuple[DependencyRecord, ...] = ()
    usage: tuple[Usage, ...] = ()  # for fair orders
    users: tuple[UserWork, ...] = ()  # for score functions that look at users
    services: tuple[float, ...] = ()  # attained by jobs that have ended, for policies that learn from them
    learn_at: int | None = None  # number of services at which level_keys are computed again
    level_keys: tuple[float, ...] = ()
    backfilled_at: float | None = None  # under `slurm`: when the backfill loop ran last
    looped_at: float | None = None  # under `slurm`: when the main loop went through all jobs last
    memory: tuple[tuple[float, ...], ...] = ()  # `state` of the score functions of both orders

    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Snapshot:
    """A cluster and its jobs at one instant, after everything that happened at `now`."""

    now: float
    queue: tuple[WaitingJob, ...]  # in the order in which live score functions see it, otherwise by submission
    running: tuple[RunningJob, ...]  # in the order of starts
    nodes: tuple[NodeRecord, ...]
    history: History = History()
    epoch: float = 0.0  # the log's clock is at 0 at this Unix time; policies may look at the time of day
    version: int = VERSION

    __pydantic_config__ = STRICT

    @property
    def jobs(self) -> tuple[WaitingJob | RunningJob, ...]:
        """The jobs that wait or run."""
        return (*self.queue, *self.running)

    @property
    def unfinished(self) -> tuple[JobId, ...]:
        """The ids of the jobs that wait or run."""
        return tuple(one.job.job_id for one in self.jobs)

    def select(self, workload: Workload, first: int, number: int) -> NDArray[np.int64]:
        """Rows of a workload: the jobs that wait or run, as far as they come before row `first`, then `number` jobs from it on.

        A replay of these rows can start from the snapshot, if it was taken before the job at `first` was submitted.
        """
        unfinished = np.flatnonzero(np.isin(workload.job_id[:first], np.array(self.unfinished, workload.job_id.dtype)))
        return np.concatenate([unfinished, np.arange(first, first + number)])

    def to_json(self) -> str:
        return json.dumps(asdict(self), allow_nan=False)

    @classmethod
    def from_json(cls, text: str | bytes, *, where: str = "snapshot") -> Snapshot:
        """Read what `to_json` wrote, and check that it does not contradict itself. `where` names the source in errors."""
        return cls.from_plain(_parsed(text, where), where=where)

    @classmethod
    def from_plain(cls, content: dict[str, Any], *, where: str = "snapshot") -> Snapshot:
        """The same from what a JSON object holds."""
        if content.get("version") != VERSION:
            raise InputError(
                f"has version {content.get('version')!r}, not {VERSION}", where=where, hint="take the snapshot again with this version"
            )
        try:
            snapshot = _adapter().validate_python(content)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(str(part) for part in first["loc"])
            raise InputError(f"{place}: {in_plain_words(first['msg'])}", where=where, hint="docs/snapshots.md lists the fields") from None
        check_snapshot(snapshot, where=where)
        return snapshot

    def save(self, path: Path) -> None:
        write_text(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: Path) -> Snapshot:
        check_regular(path)
        try:
            text = path.read_bytes()
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", where=str(path), hint="check the path") from None
        return cls.from_json(text, where=str(path))


def _parsed(text: Any, where: str) -> dict[str, Any]:
    """The content of a JSON object."""
    hint = "give what Snapshot.to_json wrote"
    if not isinstance(text, str | bytes):
        raise InputError(f"is {text!r:.60}, not text", where=where, hint=hint)
    try:
        content = json.loads(text)
    except ValueError as error:
        raise InputError(f"is not JSON: {error}", where=where, hint=hint) from None
    except RecursionError:
        raise InputError("is not a snapshot: it is nested too deeply", where=where, hint=hint) from None
    if not isinstance(content, dict):
        raise InputError(f"is a JSON {_JSON_NAMES.get(type(content), 'value')}, not an object", where=where, hint=hint)
    return content


@cache
def _adapter() -> TypeAdapter[Snapshot]:
    return TypeAdapter(Snapshot)
