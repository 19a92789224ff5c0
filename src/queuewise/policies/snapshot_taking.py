"""Make a Snapshot from the tables of a simulation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import NO_GPU, UNLIMITED, Cluster
from queuewise.policies.following import first_pieces
from queuewise.policies.snapshot import (
    DependencyRecord,
    EndedJob,
    History,
    JobId,
    JobRecord,
    NodeRecord,
    NodeShape,
    Place,
    Progress,
    RunningJob,
    RunRecord,
    Snapshot,
    Usage,
    UserWork,
    WaitingJob,
)
from queuewise.sim import queue
from queuewise.sim.conditions import DRAINED, REPAIRED, RESERVATION_ENDED
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.schedule import DONE, PENDING, QUEUED, RUNNING, STATUS_NAMES
from queuewise.sim.core.state import Machine, State, World
from queuewise.workload.jobs import UNKNOWN, Workload


class SnapshotTaker:
    """Takes snapshots of one simulation."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        rules: Rules,
        accounts: Sequence[tuple[str | None, str | None]],
        world: World,
        machine: Machine,
    ) -> None:
        """`accounts` are the names of the account tree, none if the policy has no fair order."""
        self._workload, self._cluster, self._rules, self._accounts = workload, cluster, rules, accounts
        self._world, self._machine = world, machine

    def take(self, state: State, *, killed: NDArray[np.bool_], history: bool) -> Snapshot:
        """The state now. `killed` [J]: an end is one at the limit. Without `history`, jobs that have ended are left out."""
        self._state = state
        self._now = float(state.clock.now)
        self._runs = self._runs_by_job()
        arrived = np.arange(len(self._workload)) < state.count.arrived
        queued = np.flatnonzero(state.status == QUEUED)
        if self._world.policy.scans_queue:
            queued = queued[np.argsort(state.pending_slot[queued])]
        held = np.flatnonzero((state.status == PENDING) & arrived)
        running = state.running[: state.count.running_jobs]
        running = running[np.argsort(state.first_piece[running])]
        return Snapshot(
            now=self._now,
            queue=tuple(self._waiting(j) for j in (*queued.tolist(), *held.tolist())),
            running=tuple(self._running(j) for j in running.tolist()),
            nodes=tuple(self._node(n) for n in range(self._cluster.num_nodes)),
            history=self._history(killed, history),
            epoch=float(self._workload.epoch),
        )

    @property
    def job_ids(self) -> list[JobId]:
        return [_plain(job_id) for job_id in self._workload.job_id]

    def _id(self, j: int) -> JobId:
        return _plain(self._workload.job_id[j])

    def _job(self, j: int) -> JobRecord:
        return job_records(self._workload, np.array([j]), self._world.estimate[j : j + 1])[0]

    def _progress(self, j: int) -> Progress:
        state = self._state
        if not self._world.policy.can_restart:
            return Progress()
        return Progress(
            stops=int(state.stops[j]),
            done_s=_difference(float(self._world.runtime[j]), float(state.remaining[j])),
            remaining_estimate_s=float(state.remaining_estimate[j]),
            worked_s=float(state.worked[j]),
            attained=float(state.attained[j]),
            level=int(state.level[j]),
            saved=bool(state.saved[j]),
        )

    def _waiting(self, j: int) -> WaitingJob:
        state, policy = self._state, self._world.policy
        slot = state.event_slot[j]
        at = float(state.event_time[slot]) if slot >= 0 else None
        held = state.status[j] == PENDING
        until = float(state.hold_until[j]) if policy.holds else np.inf
        pinned = bool(policy.remembers_plans) and state.pin_start[j] < np.inf
        return WaitingJob(
            job=self._job(j),
            progress=self._progress(j),
            first_start=_or_none(state.start[j]),
            runs=tuple(self._runs.get(j, ())),
            awaits_others=bool(held and slot < 0),
            released_at=at if held else None,
            promoted_at=None if held else at,
            held_until=until if self._now < until < np.inf else None,
            committed=bool(policy.dispatch == queue.COMMIT and j in state.head),
            planned_start=float(state.pin_start[j]) if pinned else None,
            planned_places=self._pin(j) if pinned else (),
        )

    def _pin(self, j: int) -> tuple[Place, ...]:
        state, first = self._state, self._world.pin_first[j]
        return places_of(*(column[first : first + state.pin_pieces[j]] for column in (state.pin_node, state.pin_tasks, state.pin_gpus)))

    def _running(self, j: int) -> RunningJob:
        state = self._state
        current = self._runs[j][-1]
        return RunningJob(
            job=self._job(j),
            start=current.start,
            begin=float(state.begin[j] if self._world.policy.can_restart else state.start[j]),
            expected_end=float(state.expected[j]),
            places=current.places,
            progress=self._progress(j),
            first_start=float(state.start[j]),
            runs=tuple(self._runs[j][:-1]),
        )

    def _runs_by_job(self) -> dict[int, list[RunRecord]]:
        """All runs of the jobs that have not ended."""
        state = self._state
        number = int(state.count.pieces)
        job, start = state.piece_job[:number], state.piece_start[:number]
        bounds = first_pieces(job, start, state.piece_end[:number])
        unfinished = np.isin(state.status, (QUEUED, RUNNING))
        found: dict[int, list[RunRecord]] = {}
        for run in np.flatnonzero(unfinished[job[bounds[:-1]]]).tolist():
            pieces = slice(bounds[run], bounds[run + 1])
            places = places_of(state.piece_node[pieces], state.piece_tasks[pieces], state.piece_gpus[pieces])
            end = float(state.piece_end[pieces.start])
            record = RunRecord(float(start[pieces.start]), end, places)
            found.setdefault(int(job[pieces.start]), []).append(record)
        return found

    def _node(self, n: int) -> NodeRecord:
        machine, cluster, state = self._machine, self._cluster, self._state
        gpus = range(int(cluster.node_gpus[n]))
        base = n * int(self._world.sizes.gpu_stride)
        sleeps = bool(self._world.policy.nodes_sleep)
        idle_since = _or_none(state.idle_since[n]) if sleeps else None
        return NodeRecord(
            index=n,
            state=self._condition_of(n),
            free_gpus=bits_of(int(machine.free_mask[n])),
            shared_gpus={g: int(machine.share_free[base + g]) for g in gpus if machine.share_free[base + g] > 0},
            free_cpu_milli=None if cluster.node_cpu_milli[n] == UNLIMITED else int(machine.free_cpu[n]),
            free_mem_mib=None if cluster.node_mem_mib[n] == UNLIMITED else int(machine.free_mem[n]),
            asleep=bool(idle_since is not None and self._now > idle_since + self._world.costs.sleep_after),
            idle_since=idle_since,
            awake_at=_or_none(state.awake_at[n]) if sleeps else None,
            shape=node_shapes(cluster)[n],
        )

    def _condition_of(self, n: int) -> str:
        if not self._machine.closed[n]:
            return "up"
        world, seen = self._world, int(self._state.count.outages_seen)
        kinds = world.outage_kind[:seen][
            (world.outage_node[:seen] == n) & ~np.isin(world.outage_kind[:seen], (REPAIRED, RESERVATION_ENDED))
        ]
        if not len(kinds):  # closed in the snapshot that this replay started from
            return "drained" if self._is_used(n) else "down"
        return "drained" if kinds[-1] == DRAINED else "down"

    def _is_used(self, n: int) -> bool:
        state = self._state
        return bool((state.piece_node[: state.count.pieces] == n)[state.piece_end[: state.count.pieces] == np.inf].any())

    def _history(self, killed: NDArray[np.bool_], history: bool) -> History:
        state, world = self._state, self._world
        learns = bool(world.policy.learns_keys)
        row = int(world.sizes.outlook_row)
        memory = [state.outlook[o * row + queue.OUTLOOK_SIZE : (o + 1) * row].tolist() for o in range(len(self._rules.orders))]
        return History(
            starts=int(state.count.starts),
            decisions=int(state.count.decisions),
            ended=self._ended(killed) if history else (),
            dependencies=self._dependencies(),
            usage=self._usage(),
            users=self._users() if world.policy.reads_users else (),
            services=tuple(state.service[: state.count.services].tolist()) if learns else (),
            learn_at=int(state.count.learn_at) if learns else None,
            level_keys=tuple(state.level_key.tolist()) if learns else (),
            backfilled_at=_or_none(state.clock.backfilled_at),
            looped_at=_or_none(state.clock.looped_at),
            memory=tuple(tuple(numbers) for numbers in memory),
        )

    def _ended(self, killed: NDArray[np.bool_]) -> tuple[EndedJob, ...]:
        state = self._state
        stops = state.stops if self._world.policy.can_restart else np.zeros(len(state.status), np.int64)
        rows = np.flatnonzero(state.status >= DONE).tolist()
        names = [
            STATUS_NAMES[status] if not (status == DONE and limit) else "killed" for status, limit in zip(state.status, killed, strict=True)
        ]
        return tuple(EndedJob(self._id(j), names[j], _or_none(state.start[j]), _or_none(state.end[j]), int(stops[j])) for j in rows)

    def _dependencies(self) -> tuple[DependencyRecord, ...]:
        state, world = self._state, self._world
        if not world.policy.has_dependencies:
            return ()
        waits = np.zeros(len(state.status), bool)
        waits[world.next_job] = True
        rows = np.flatnonzero(waits & (state.status < DONE)).tolist()
        return tuple(DependencyRecord(self._id(j), int(state.unmet[j]), _or_none(state.ready[j]), bool(state.never_ready[j])) for j in rows)

    def _users(self) -> tuple[UserWork, ...]:
        rows = self._state.users.reshape(-1, queue.USER_SIZE).tolist()
        return tuple(UserWork(name, *row) for name, row in zip(self._workload.users, rows, strict=False))

    def _usage(self) -> tuple[Usage, ...]:
        state = self._state
        return tuple(Usage(*name, float(state.usage[a]), float(state.usage_time[a])) for a, name in enumerate(self._accounts))


@lru_cache(maxsize=8)
def node_shapes(cluster: Cluster) -> tuple[NodeShape, ...]:
    """What the nodes of a cluster have."""
    return tuple(_shape(cluster, n) for n in range(cluster.num_nodes))


def _shape(cluster: Cluster, n: int) -> NodeShape:
    kind = int(cluster.node_kind[n])
    cpu, mem = int(cluster.node_cpu_milli[n]), int(cluster.node_mem_mib[n])
    return NodeShape(
        name=cluster.node_names[n],
        gpus=int(cluster.node_gpus[n]),
        kind=cluster.kinds[kind].name if kind != NO_GPU else "",
        cpu_milli=None if cpu == UNLIMITED else cpu,
        mem_mib=None if mem == UNLIMITED else mem,
        partitions=tuple(one.name for one, inside in zip(cluster.partitions, cluster.node_partitions[n], strict=True) if inside),
        rack=int(cluster.node_rack[n]),
        speed=float(cluster.speed[kind]) if kind != NO_GPU else 1.0,
    )


def job_fields(jobs: Workload, rows: NDArray[np.int64]) -> dict[str, list[Any]]:
    """The fields of records of the jobs at `rows`, in their order, without the estimate."""

    def of(column: str) -> list[Any]:
        values: list[Any] = getattr(jobs, column)[rows].tolist()
        return values

    def named(column: str, names: tuple[str, ...]) -> list[str | None]:
        return [_name(names, code) for code in of(column)]

    numbers = ("job_id", "submit", "num_tasks", "min_tasks", "max_tasks", "gpu_milli", "cpu_milli", "mem_mib", "priority")
    return {
        **{name: of(name) for name in numbers},
        **{name: [value if isfinite(value) else None for value in of(name)] for name in ("requested", "deadline")},
        "kinds": [jobs.kind_sets[code] for code in of("kind_set")],
        "partition": named("partition", jobs.partitions),
        "user": named("user", jobs.users),
        "account": named("group", jobs.groups),
        "qos": named("qos", jobs.qos_names),
    }


def job_records(jobs: Workload, rows: NDArray[np.int64], estimate: NDArray[np.float64]) -> list[JobRecord]:
    """The records of the jobs at `rows`, whose estimates are given."""
    job_id, submit, *others = job_fields(jobs, rows).values()
    return [JobRecord(*values) for values in zip(job_id, submit, estimate.tolist(), *others, strict=True)]


def _plain(value: Any) -> JobId:
    return value.item() if isinstance(value, np.generic) else value


def _or_none(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _name(names: tuple[str, ...], code: int) -> str | None:
    return None if code == UNKNOWN else names[code]


def _difference(whole: float, rest: float) -> tuple[float, float]:
    """whole − rest as an exact sum of two numbers (Knuth's two-sum)."""
    high = whole - rest
    virtual = high - whole
    return high, (whole - (high - virtual)) + (-rest - virtual)


@lru_cache(4096)
def bits_of(mask: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(64) if (mask >> bit) & 1)


def places_of(node: NDArray[Any], tasks: NDArray[Any], gpus: NDArray[Any]) -> tuple[Place, ...]:
    return tuple(Place(n, t, bits_of(g)) for n, t, g in zip(node.tolist(), tasks.tolist(), gpus.tolist(), strict=True))
