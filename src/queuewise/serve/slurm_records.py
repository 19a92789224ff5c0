"""Jobs and nodes of Slurm as `squeue --json` and `sinfo --json` list them, from 22.05 on.

Newer releases wrap numbers as `{"set", "infinite", "number"}`, list states instead of naming one, and move what jobs hold elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from queuewise.errors import InputError
from queuewise.policies.snapshot_checks import LARGEST
from queuewise.workload.jobs import WHOLE_GPU
from queuewise.workload.node_lists import expand_nodes
from queuewise.workload.readers.slurm_json import unwrap
from queuewise.workload.readers.source import one_line

Record = TypeVar("Record")

_ITEM = re.compile(r"(?:gres[:/])?([a-z_]+)(?:[:=]([^:=(]*))?(?:[:=]([^:=(]*))?(?:\((.*)\))?")
_COMMA = re.compile(r",(?![^(]*\))")  # not inside of brackets
_NO_LIMIT_S = 365 * 86_400.0  # for jobs without a time limit
MARK = "queuewise"  # how the admin_comment of jobs begins whose begin time is ours
UNUSABLE = (  # how words of states begin; nodes that are POWERED_DOWN are woken by Slurm
    "DOWN", "DRAIN", "FAIL", "INVAL", "MAINT", "RESERVED", "UNKNOWN", "ERROR", "REBOOT", "POWERING_DOWN", "POWER_DOWN", "POWER_DRAIN",
    "BLOCKED", "FUTURE", "NOT_RESPOND", "NO_RESPOND",
)  # fmt: skip
HOLDING = ("CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "RESIZING", "STAGE_OUT")  # states of jobs that have nodes
LATEST = 1e11  # Unix time, far in the future
MOST_GPUS = 1024  # of a node
OFFSET = 2**31  # some releases add it to what may be negative


@dataclass(frozen=True)
class GpuRequest:
    """GPUs by type; no type means any. `strange` is what is asked for besides, and not understood."""

    by_kind: tuple[tuple[str, int], ...] = ()
    strange: str = ""

    @property
    def count(self) -> int:
        return sum(number for _, number in self.by_kind)

    @property
    def kind(self) -> str:
        """The type, if all GPUs have the same."""
        kinds = {kind for kind, _ in self.by_kind}
        return kinds.pop() if len(kinds) == 1 else ""

    @property
    def mixed(self) -> bool:
        return len({kind for kind, _ in self.by_kind}) > 1


@dataclass(frozen=True)
class Allocation:
    """What a running job holds of a node."""

    node: str
    cores: int
    mem_mib: int
    gpus: tuple[int, ...]


@dataclass(frozen=True)
class SlurmJob:
    job_id: str  # 12, or 12_3 for a task of an array
    number: int  # that Slurm has for it, also if it is a task of an array
    state: str
    reason: str
    partition: str
    user: str
    account: str
    qos: str
    name: str
    priority: int
    submit: float  # Unix time, as all times
    eligible: float
    start: float
    end: float
    limit_s: float
    nodes: int
    most_nodes: int  # 0: no limit
    tasks: int
    cores: int
    cores_per_task: int
    mem_per_node: int  # MiB, 0: not given
    mem_per_core: int
    gpus_per_node: GpuRequest
    gpus_per_job: GpuRequest
    gpus_per_task: GpuRequest
    features: str
    required: tuple[str, ...]
    excluded: tuple[str, ...]
    dependency: str
    reservation: str
    exclusive: bool
    is_het: bool
    array_text: str  # of the tasks of an array that have not started, "" if it is no such array
    comment: str  # admin_comment
    site_factor: int | None  # None: this release does not list it
    allocations: tuple[Allocation, ...]

    @property
    def limit_known(self) -> bool:
        return self.limit_s < _NO_LIMIT_S

    @property
    def gpus(self) -> tuple[GpuRequest, ...]:
        return self.gpus_per_node, self.gpus_per_job, self.gpus_per_task

    @property
    def address(self) -> str:
        """What scontrol calls it: all tasks of an array that wait."""
        return f"{self.job_id}_[{self.array_text.partition('%')[0]}]" if self.array_text else self.job_id


@dataclass(frozen=True)
class SlurmReservation:
    name: str
    nodes: tuple[str, ...]
    start: float  # Unix time
    end: float


@dataclass(frozen=True)
class SlurmNodeState:
    name: str
    usable: bool
    state: str
    cores: int
    mem_mib: int
    gpu_kind: str  # "" if there are several
    gpus: int
    used_cores: int
    used_mem_mib: int
    used_gpus: tuple[int, ...]
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    weight: int
    threads: int = 1  # per core; `cores` and `used_cores` count threads, as Slurm does


def read_jobs(text: str | bytes) -> list[SlurmJob]:
    """The jobs in the output of `squeue --json`."""
    return [_understood(_job, row, "job", row.get("job_id"), "squeue --json") for row in _rows(text, "jobs", "squeue --json")]


def read_nodes(text: str | bytes) -> list[SlurmNodeState]:
    """The nodes in the output of `sinfo --json` (22.05) or `scontrol show nodes --json` (newer)."""
    source = "sinfo --json or scontrol show nodes --json"
    return [_understood(_node, row, "node", row.get("name"), source) for row in _rows(text, "nodes", source)]


def _understood(read: Callable[[Mapping[str, Any]], Record], row: Mapping[str, Any], what: str, name: Any, source: str) -> Record:
    """The record of a row. Rows may hold anything anywhere: the error says in which one."""
    try:
        return read(row)
    except (AttributeError, LookupError, TypeError, ValueError, OverflowError) as error:
        where, hint = f"{source}, {what} {name!r:.40}", f"report the output of {source}"
        raise InputError(f"is not understood: {one_line(error)}", where=where, hint=hint) from None


def _rows(text: str | bytes, key: str, source: str) -> list[Mapping[str, Any]]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not valid JSON: {str(error)[:100]}", where=source, hint="a Slurm of 22.05 or newer writes it") from None
    rows = document.get(key) if isinstance(document, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f'the JSON has no list "{key}"', where=source, hint="a Slurm of 22.05 or newer writes it")
    return rows


# --- jobs


def _job(row: Mapping[str, Any]) -> SlurmJob:
    number, task = _int(row, "job_id"), unwrap(row.get("array_task_id"))
    if number <= 0:
        raise InputError(f"a job has the id {row.get('job_id')!r}", where="squeue --json", hint="report the output of squeue --json")
    array = _int(row, "array_job_id")
    minutes = unwrap(row.get("time_limit"))
    nodes = max(_int(row, "node_count"), 1)
    tasks = max(_int(row, "tasks"), 1)
    return SlurmJob(
        job_id=f"{array}_{int(task)}" if array and task is not None else str(number),
        number=number,
        state=_state(_words(row.get("job_state")).upper().split("+")),
        reason=_text(row, "state_reason"),
        partition=_text(row, "partition"),
        user=_text(row, "user_name"),
        account=_text(row, "account"),
        qos=_text(row, "qos"),
        name=_text(row, "name"),
        priority=_int(row, "priority"),
        submit=_moment(row, "submit_time"),
        eligible=min(float(_int(row, "eligible_time")), LATEST),  # users choose it
        start=_moment(row, "start_time"),
        end=min(float(_int(row, "end_time")), LATEST),
        limit_s=_NO_LIMIT_S if minutes is None or _is_infinite(row.get("time_limit")) else max(float(minutes), 1.0) * 60,
        nodes=nodes,
        most_nodes=_int(row, "max_nodes"),
        tasks=tasks,
        cores=max(_int(row, "cpus"), 1),
        cores_per_task=max(_int(row, "cpus_per_task"), 1),
        mem_per_node=_int(row, "memory_per_node"),
        mem_per_core=_int(row, "memory_per_cpu"),
        gpus_per_node=_gpus(_text(row, "tres_per_node"), _text(row, "tres_per_socket")),
        gpus_per_job=_gpus(_text(row, "tres_per_job")),
        gpus_per_task=_gpus(_text(row, "tres_per_task")),
        features=_text(row, "features"),
        required=_names(_text(row, "required_nodes")),
        excluded=_names(_text(row, "excluded_nodes")),
        dependency=_text(row, "dependency"),
        reservation=_text(row, "resv_name"),
        exclusive=_words(row.get("shared")).lower() in ("none", "exclusive", "0") or _words(row.get("exclusive")).lower() in ("true",),
        is_het=_int(row, "het_job_id") > 0,
        array_text=_text(row, "array_task_string") if array and task is None else "",
        comment=_text(row, "admin_comment").strip('"'),  # scontrol keeps the quotes of what it reads from its input
        site_factor=_site_factor(row),
        allocations=_allocations(row),
    )


def _state(words: list[str]) -> str:
    """One of the words that a state may have: those that say whether the job holds nodes come first."""
    if "COMPLETING" in words:
        return "COMPLETING"
    return "RUNNING" if words[0] in ("RUNNING", *HOLDING) else words[0]


def _site_factor(row: Mapping[str, Any]) -> int | None:
    value = unwrap(row.get("site_factor"))
    return None if value is None else int(value) - (OFFSET if value > OFFSET // 2 else 0)


def _allocations(row: Mapping[str, Any]) -> tuple[Allocation, ...]:
    """What the job holds of each node; what cannot be told apart is divided equally."""
    resources = row.get("job_resources")
    listed = _text(row, "nodes")
    if not listed or not isinstance(resources, dict):
        return ()
    names = list(_names(listed))
    gpus = [_indices(str(text)) for text in row.get("gres_detail") or []]
    gpus += [()] * (len(names) - len(gpus))
    cores, memory = _held(resources)
    total, listed_cores = max(_int(row, "cpus"), 1), sum(cores.values())
    even = -(-total // max(len(names), 1))
    threads = total // listed_cores if listed_cores and total % listed_cores == 0 else 1  # where cores are listed, not their threads
    held = tuple(Allocation(name, cores.get(name, 0) * threads or even, memory.get(name, 0), gpus[at]) for at, name in enumerate(names))
    for one in held:
        if not (0 <= one.cores <= LARGEST // WHOLE_GPU and 0 <= one.mem_mib <= LARGEST):
            raise ValueError(f"it holds {one.cores} cores and {one.mem_mib} MiB of {one.node}")
    return held


def _held(resources: Mapping[str, Any]) -> tuple[dict[str, int], dict[str, int]]:
    """Cores and memory by node."""
    newer = resources.get("nodes")
    listed = newer.get("allocation") if isinstance(newer, dict) else resources.get("allocated_nodes")
    cores: dict[str, int] = {}
    memory: dict[str, int] = {}
    for one in listed if isinstance(listed, list) else []:
        name = str(one.get("nodename") or one.get("name") or "")
        counted = one.get("cpus")
        cores[name] = int(unwrap(counted.get("count")) or 0) if isinstance(counted, dict) else _cores(one.get("sockets"))
        held = one.get("memory")
        memory[name] = int(unwrap(held.get("allocated") if isinstance(held, dict) else one.get("memory_allocated")) or 0)
    return cores, memory


def _cores(sockets: Any) -> int:
    """Allocated cores of a node: {"0": {"cores": {"3": "allocated"}}} in 22.05."""
    each = sockets.values() if isinstance(sockets, dict) else sockets if isinstance(sockets, list) else []
    return sum(
        sum("allocated" in str(state).lower() for state in (cores.values() if isinstance(cores, dict) else cores))
        for socket in each
        if isinstance(socket, dict) and isinstance(cores := socket.get("cores"), dict | list)
    )


# --- nodes


def _node(row: Mapping[str, Any]) -> SlurmNodeState:
    name, cores = _text(row, "name"), _int(row, "cpus")
    if not name or cores < 1:
        raise InputError(f"node {name!r} has {cores} CPUs", where="sinfo --json", hint="report the output of sinfo --json")
    state = "+".join(filter(None, (_words(row.get("state")), _words(row.get("state_flags"))))).upper()
    gpus = _gpus(_text(row, "gres"))
    if gpus.count > MOST_GPUS:
        raise ValueError(f"it has {gpus.count} GPUs")
    memory, used = _int(row, "real_memory"), _text(row, "gres_used")
    return SlurmNodeState(
        name=name,
        usable="*" not in state and not any(word.startswith(UNUSABLE) for word in state.split("+")),
        state=state,
        cores=cores,
        mem_mib=memory if memory > 1 else 0,
        gpu_kind=gpus.kind,
        gpus=gpus.count,
        used_cores=_int(row, "alloc_cpus"),
        used_mem_mib=_int(row, "alloc_memory"),
        used_gpus=tuple(sorted({*_indices(used), *_shared(used)})),
        features=_listed(row.get("active_features")) or _listed(row.get("features")),
        partitions=_listed(row.get("partitions")),
        weight=_int(row, "weight"),
        threads=max(_int(row, "threads"), 1),
    )


# --- values


def _items(text: str) -> list[tuple[str, str, str, str]]:
    """`gres:gpu:a100:2(IDX:0-1),shard:4` as name, type, number and what stands in brackets of each. What is no such item has no name."""
    found = []
    for part in filter(None, (one.strip() for one in _COMMA.split(text.replace("(null)", "")))):
        match = _ITEM.fullmatch(part)
        name, first, second, inside = match.groups(default="") if match is not None else ("", part, "", "")
        kind, number = ("", first) if not second and first.isdecimal() else (first, second)
        found.append((name, kind, number, inside))
    return found


def _gpus(text: str, not_understood: str = "") -> GpuRequest:
    found: dict[str, int] = {}
    strange = [not_understood] if not_understood else []
    for name, kind, number, _ in _items(text):
        if name == "gpu" and (number.isdecimal() or not number):
            found[kind] = found.get(kind, 0) + int(number or 1)
        elif name not in ("cpu", "mem", "node", "billing"):
            strange.append(name or kind)
    return GpuRequest(tuple((kind, number) for kind, number in found.items() if number), ",".join(strange))


def _indices(text: str) -> tuple[int, ...]:
    """`gpu:a100:3(IDX:0-1,5)` as 0, 1 and 5."""
    numbers: list[int] = []
    for name, _, _, inside in _items(text):
        for part in inside.partition("IDX:")[2].split(",") if name == "gpu" else ():
            first, dash, last = part.strip().partition("-")
            if first.isdecimal():
                numbers += _span(int(first), int(last if dash else first))
    return tuple(numbers)


def _span(first: int, last: int) -> range:
    if last >= MOST_GPUS:
        raise ValueError(f"no node has a GPU {last}")
    return range(first, last + 1)


def _shared(text: str) -> tuple[int, ...]:
    """GPUs of which shards are in use: 0 in `shard:a100:2(2/4,0/4)`."""
    inside = next((inside for name, _, _, inside in _items(text) if name == "shard"), "")
    return tuple(at for at, part in enumerate(inside.split(",")) if re.fullmatch(r"[1-9]\d*/\d+", part.strip()))


def _names(text: str) -> tuple[str, ...]:
    return expand_nodes(text) if text and text != "(null)" else ()


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    text = "" if value is None else str(value)
    return "" if text in ("(null)", "N/A", "None") and key != "state_reason" else text


def _int(row: Mapping[str, Any], key: str) -> int:
    value = unwrap(row.get(key))
    try:
        return int(value or 0)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{key} is {value!r}, not a number", where="the JSON of Slurm", hint="report the output") from None


def _moment(row: Mapping[str, Any], key: str) -> float:
    """Unix time."""
    value = _int(row, key)
    if not 0 <= value <= LATEST:
        raise ValueError(f"{key} is {value!r:.40}")
    return float(value)


def _is_infinite(value: Any) -> bool:
    return isinstance(value, dict) and bool(value.get("infinite"))


def _listed(value: Any) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value or "").split(",")
    return tuple(sorted(str(part) for part in parts if part))


def _words(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value or "")
