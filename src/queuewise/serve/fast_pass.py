"""The fast way from a snapshot to a decision: one pass on tables that are kept, and of the result only what starts.

A layout is kept per cluster, for the demands that jobs have had there. What it cannot hold (`snapshot_columns`, `pass_tables`), and
policies that do more than start jobs by scores, are left to the way by snapshots, which can decide everything. Both decide the same
(tests/property/test_fast_pass.py).
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import QueuewiseError
from queuewise.policies import pass_tables
from queuewise.policies.known import Jobs
from queuewise.policies.names import Policy
from queuewise.policies.snapshot import JobId, Place
from queuewise.policies.snapshot_taking import bits_of
from queuewise.serve.live_jobs import LiveJobs
from queuewise.serve.snapshot_columns import Demand, SnapshotColumns
from queuewise.sim.core.blocks import PIECE_COLUMNS, SCRATCH, into_one_block
from queuewise.sim.core.compilation import JIT_DISABLED, address_of
from queuewise.sim.core.engine import compiled_replay, functions_of
from queuewise.sim.core.facts import job_facts
from queuewise.sim.core.resume import resume
from queuewise.sim.core.rules import Order
from queuewise.sim.core.schedule import QUEUED
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.state import PLAIN
from queuewise.sim.core.tables import F64, I32, I64, addresses_of, has_known
from queuewise.sim.queue import Records
from queuewise.workload.jobs import ANY_PARTITION, Workload

KEPT = 8  # layouts
MOST_DEMANDS = 1024  # of a layout
MOST_JOBS = 1000  # of a snapshot: every start scans the queue
LEAST_ROOM = 256  # jobs that a layout has room for


@dataclass(frozen=True, slots=True)
class FastDecision:
    """What starts, the most urgent first, and when the next job becomes overdue that goes on waiting."""

    starts: list[tuple[JobId, tuple[Place, ...]]]
    wake_at: float


class FastPass:
    """Decides from columns by one policy, where that is possible. Not for several threads at once."""

    def __init__(self, policy: Policy, *, conditions: Conditions = PERFECT) -> None:
        self._policy = policy
        apart = policy.planner or policy.model or policy.decides_in_python or policy.history
        self._possible = not (apart or JIT_DISABLED) and conditions == PERFECT  # without the compiler it would be no faster
        self._layouts: OrderedDict[tuple[Cluster, frozenset[str | None]], KeptLayout] = OrderedDict()

    def decide(self, columns: SnapshotColumns, cluster: Cluster) -> FastDecision | None:
        """One decision. None: the other way must decide."""
        if not self._possible or len(columns.ids) > MOST_JOBS or len(columns.nodes) != cluster.num_nodes:
            return None
        rows = columns.rows()
        jobs = LiveJobs(columns, rows).estimated_as(self._policy.own_estimates)
        layout = self._layout(columns, cluster) if jobs is not None else None
        if jobs is None or layout is None:
            return None
        rules = self._policy.rules(jobs, "reorder")
        if not layout.make_pass(columns, jobs, rows, rules.orders):
            return None
        return FastDecision(layout.starts(columns, rows), layout.next_overdue(jobs, self._policy.max_wait_s, columns.now))

    def _layout(self, columns: SnapshotColumns, cluster: Cluster) -> KeptLayout | None:
        """The layout that has room for these jobs. None: there can be none."""
        key = cluster, frozenset([demand[-1] for demand in columns.demands])  # which partitions have jobs decides about queues
        found = self._layouts.get(key)
        if found is None or not found.holds(columns):
            known = dict.fromkeys(columns.demands)
            if found is not None and len(known) + len(found.demands) <= MOST_DEMANDS:
                known |= dict.fromkeys(found.demands)
            room = max(LEAST_ROOM, 2 * len(columns.ids), 2 * len(known))
            try:
                found = KeptLayout(cluster, self._policy, tuple(known), room)
            except (QueuewiseError, OverflowError):  # the other way says what is wrong
                return None
            self._layouts[key] = found
            while len(self._layouts) > KEPT:
                self._layouts.popitem(last=False)
        self._layouts.move_to_end(key)
        return found if found.is_plain else None


class KeptLayout:
    """Tables with room for this many jobs of these demands on a cluster."""

    def __init__(self, cluster: Cluster, policy: Policy, demands: Sequence[Demand], room: int) -> None:
        self.demands, self._room = demands, room
        example = _example(demands, room)
        seconds = example.runtime
        index = np.arange(room, dtype=np.float64)
        own = dict.fromkeys(policy.own_estimates, seconds)
        jobs = Jobs.of(example, seconds, own_estimates=own, history={"index": index}, cluster=cluster)
        rules = dataclasses.replace(policy.rules(jobs, "reorder"), keeps_list=True)  # trees would be those of these very jobs
        self.world, machine, state = lay_out(example, cluster, rules, runtime=seconds, estimate=seconds, history=jobs.history).tables
        self.is_plain = has_known(self.world, PLAIN) and not cluster.virtual_clusters
        self._classes = dict(zip(demands, self.world.job_class.tolist(), strict=False))
        self._watts = _by_class(self.world.job_class, self.world.facts["watts"])
        self._memory, (self._machine, self._state) = into_one_block((machine, state), (*SCRATCH, *PIECE_COLUMNS))
        self._template = self._memory.copy()
        self._spare_memory, (self._spare,) = into_one_block((machine,), ())  # laid out as the beginning of the other
        self._compiled = [compiled_replay(self.world), *functions_of(rules)]  # they must outlive their addresses
        self._replay, *self._functions = [address_of(function) for function in self._compiled]
        self._used, self._queued = np.empty((cluster.num_nodes, 3), np.int64), np.empty(room, np.int64)
        self._note_addresses()

    def _note_addresses(self) -> None:
        self._addresses = [addresses_of(table) for table in (self.world, self._machine, self._spare, self._state)]

    def holds(self, columns: SnapshotColumns) -> bool:
        return len(columns.ids) <= self._room and self._classes.keys() >= set(columns.demands)

    def make_pass(self, columns: SnapshotColumns, jobs: LiveJobs, rows: I64, orders: Sequence[Order]) -> bool:
        """Decide once. False: the snapshot is not plain, or what is decided cannot be carried out."""
        self._make_room(columns)
        world, machine, spare, state = self._addresses
        self._memory[:] = self._template
        classes = np.array([self._classes[demand] for demand in columns.demands], np.int32)
        number = pass_tables.fill_tables(
            world, machine, state, columns.jobs, rows, classes, columns.runs, columns.pieces, columns.nodes, self._used, self._queued,
            columns.now,
        )  # fmt: skip
        if number < 0:
            return False
        self._write_scores(jobs, orders)
        nobody, never = rows[:0], columns.runs[:0, 0]
        begins = np.ascontiguousarray(columns.runs[:, pass_tables.BEGIN])
        resume(world, machine, state, rows[columns.waiting :], begins, self._queued[:number], nobody, never, nobody, never)
        self._spare_memory[:] = self._memory[: len(self._spare_memory)]
        pass_tables.make_pass(self._replay, world, machine, spare, state, *self._functions)
        return bool(pass_tables.pieces_fit(world, state, len(columns.pieces), columns.nodes, self._used))

    def _make_room(self, columns: SnapshotColumns) -> None:
        """Room in the log of pieces for all jobs at once."""
        needed = len(columns.pieces) + (columns.waiting + 1) * int(self.world.sizes.most_pieces)
        if needed > self.world.sizes.log_size:
            self.world.sizes.log_size = needed
            self._state = self._state.replace(**{name: np.empty(needed, getattr(self._state, name).dtype) for name in PIECE_COLUMNS})
            self._note_addresses()

    def _write_scores(self, jobs: LiveJobs, orders: Sequence[Order]) -> None:
        world, number = self.world, len(jobs)
        for at, order in enumerate(orders):
            if order.function is None:
                once = order.once
                score = order.fixed if once is None else once(iter((self._facts(jobs, order, None),)))
                world.fixed_score[at * number : (at + 1) * number] = score
            else:
                self._facts(jobs, order, world.second_facts if at and world.policy.second_facts else world.facts)

    def _facts(self, jobs: LiveJobs, order: Order, rows: Records | None) -> Records:
        estimate = jobs.estimate if order.estimate is None else order.estimate
        watts = self._watts[self.world.job_class[: len(jobs)]]
        known: Any = jobs  # it has the columns of a Workload that are asked for
        return job_facts(known, estimate, jobs.history, watts, rows=rows)

    def starts(self, columns: SnapshotColumns, rows: I64) -> list[tuple[JobId, tuple[Place, ...]]]:
        """What the last pass has started, in order."""
        state, first, last = self._state, len(columns.pieces), int(self._state.count.pieces)
        job_of = np.empty(len(rows), np.int64)
        job_of[rows] = np.arange(len(rows))
        jobs = job_of[state.piece_job[first:last]].tolist()
        others = [column[first:last].tolist() for column in (state.piece_node, state.piece_tasks, state.piece_gpus)]
        places = [Place(n, tasks, bits_of(gpus)) for n, tasks, gpus in zip(*others, strict=True)]
        if len(set(jobs)) == len(jobs):
            return [(columns.ids[k], (place,)) for k, place in zip(jobs, places, strict=True)]
        starts: dict[int, list[Place]] = {}
        for k, place in zip(jobs, places, strict=True):
            starts.setdefault(k, []).append(place)
        return [(columns.ids[k], tuple(found)) for k, found in starts.items()]

    def next_overdue(self, jobs: LiveJobs, max_wait_s: float, now: float) -> float:
        if max_wait_s == np.inf:
            return np.inf
        times = jobs.submit[self._state.status[: len(jobs)] == QUEUED] + max_wait_s
        return float(times[times > now].min(initial=np.inf))


def _example(demands: Sequence[Demand], room: int) -> Workload:
    """A job with each demand, and others like the first."""
    padded = [*demands, *[demands[0]] * (room - len(demands))]
    tasks, gpus, cores, memory, kinds, partitions = zip(*padded, strict=True)
    kind_sets = ((), *dict.fromkeys(one for one in kinds if one))
    names = tuple(sorted({one for one in partitions if one is not None}))
    numbers = {name: number for number, name in enumerate(names)} | {None: ANY_PARTITION}
    return Workload(
        submit=np.zeros(room),
        runtime=np.ones(room),
        num_tasks=np.array(tasks, np.int32), gpu_milli=np.array(gpus, np.int32), cpu_milli=np.array(cores, np.int32),
        mem_mib=np.array(memory, np.int32),
        kind_set=np.array([kind_sets.index(one) for one in kinds], np.int32), kind_sets=kind_sets,
        partition=np.array([numbers[one] for one in partitions], np.int32), partitions=names,
        name="example",
    )  # fmt: skip


def _by_class(job_class: I32, values: F64) -> F64:
    """[C] values of classes; those of jobs without a class are 1."""
    found = np.ones(int(job_class.max()) + 2)
    if len(values) == len(job_class):
        found[job_class] = values
        found[-1] = 1.0
    return found
