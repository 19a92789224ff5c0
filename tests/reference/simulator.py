"""The simulation itself: SimPy keeps the time, this module handles events and decisions."""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import simpy
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions, Outage
from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload
from reference import backfill, defrag, preemption, reservations, resizing, stopping
from reference.dependencies import Waiting
from reference.fairness import FAIR_ORDERS, Owners
from reference.orders import Facts, in_order
from reference.own import Own
from reference.placement import Placer, task_types
from reference.powercap import budget, greatest_draw
from reference.quotas import Quotas
from reference.scripted import GIVEN, GivenOrders, Script
from reference.sleeping import Sleepers
from reference.slurm import Loops
from reference.state import Job, Machine, Piece, Run, make_jobs, nodes_of, partitions_of

QUEUED, DONE, REJECTED, KILLED, CANCELLED, FAILED = 1, 3, 4, 5, 6, 7  # the numbers of queuewise.sim.schedule, which this must not import
# Events of one time, in this order.
BEFORE_COMPLETIONS, COMPLETION, REPAIR, FAILURE, LIFT, TIMER, RELEASE, ARRIVAL, OVERDUE, WAKE, DECISION = range(11)
DEFAULT_REQUEST = 86400.0  # of jobs without a request that no job with one precedes
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Floats = NDArray[np.float64]
Stay = tuple[int, float, float, tuple[tuple[int, int, int], ...]]  # job, start, end, pieces as (node, tasks, bit mask of GPUs)


@dataclass(frozen=True)
class Result:
    start: Floats  # [J] first start, inf if it never started
    end: Floats  # [J] inf if it was never finished
    status: NDArray[np.int8]  # [J]
    preemptions: NDArray[np.int32]  # [J] times stopped
    runs: list[Stay]  # by job, then as they happened
    sleeps: list[tuple[int, float, float]]  # node, from, to; by node and time

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]:
        """(job, node, tasks, bit mask of GPUs) of all runs, sorted."""
        return sorted((job, *piece) for job, _, _, pieces in self.runs for piece in pieces)


@dataclass(frozen=True)
class Policy:
    order: str
    backfill: str
    depth: int | None
    second_order: str
    placement: str
    option: str | None
    preemptive: str | None = None  # one of preemption.NAMES
    threshold: float | None = None
    max_wait: float = math.inf
    config: str = ""  # file with the parameters of `slurm`

    @property
    def migrates(self) -> bool:
        return self.backfill == "defrag"

    @classmethod
    def parse(cls, name: str) -> Policy:
        """`order[+backfill[/D][:order2]][~bound][@placement[:option]]`, or a preemptive policy as the first part.

        An order may have estimates of its own, as in `saf:predicted`. The order `random` alone backfills greedily.
        """
        rule, _, where = name.partition("@")
        rule, _, bound = rule.partition("~")
        unbounded = cls.parse_rule(name, rule, where)
        return replace(unbounded, max_wait=float(bound[:-1]) * UNITS[bound[-1]]) if bound else unbounded

    @classmethod
    def parse_rule(cls, name: str, rule: str, where: str) -> Policy:
        placement, _, option = (where or "pack").partition(":")
        first, _, parameter = rule.partition(":")
        if first in preemption.NAMES:
            return cls("fcfs", "none", None, "fcfs", placement, option or None, first, float(parameter) if parameter else None)
        if first == "defrag":
            order = parameter or "fcfs"
            return cls(order, "defrag", None, order, placement, option or None)
        leading, _, fill = rule.partition("+")
        if fill.partition(":")[0] == "slurm":
            return cls(leading, "slurm", None, leading, placement, option or None, config=fill.partition(":")[2])
        match = re.fullmatch(r"([\w:.]+)(?:\+([a-z0-9-]+)(?:/(\d+))?(?::([\w:.]+))?)?", rule)
        assert match, f"the reference cannot read the name {name!r}"
        order, fill, depth, second = match.groups()
        default_rule = "greedy" if order.partition(":")[0] == "random" else "none"
        return cls(order, fill or default_rule, int(depth) if depth else None, second or order, placement, option or None)


class Clock(simpy.Environment):
    """SimPy's environment, with events at exact times: `now + (time - now)` would round."""

    def call_at(self, time: float, kind: int, rank: int, action: Callable[[], None]) -> None:
        """At one time: by kind, then by rank."""
        event = simpy.Event(self)
        event._ok, event._value = True, None
        assert event.callbacks is not None
        event.callbacks.append(lambda _: action())
        heapq.heappush(self._queue, (time, (kind, rank), next(self._eid), event))  # type: ignore[misc]


class Simulator:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        dispatch: str,
        estimate: Floats,
        seed: int,
        kill: bool,
        predicted: Floats | None,
        conditions: Conditions,
        own_estimates: Mapping[str, Floats],
        own: Own | None,
        script: Script | GivenOrders | None,
    ) -> None:
        self.clock = Clock()
        self.policy = Policy.parse(policy)
        self.dispatch = dispatch
        self.kill = kill
        self.workload = workload
        self.cluster = cluster
        self.conditions = conditions
        self.costs = conditions.preemption
        machine = Machine.of(cluster)
        self.jobs = make_jobs(workload, machine, estimate, kill_at_limit=kill)
        self.reserved = conditions.held_on(cluster)
        reservations.bar(self.jobs, workload, conditions, self.reserved)
        self.facts = {"": Facts(workload, self.jobs, predicted, seed)}
        for name, values in (known_estimates(workload) | dict(own_estimates)).items():
            self.facts[name] = Facts(workload, self.jobs, predicted, seed, values)
        self.own = own
        self.script = script
        self.held_until: dict[int, float] = {}
        types = task_types(workload, machine) if self.policy.placement == "fgd" else []
        self.sleepers = Sleepers(conditions.power, cluster.num_nodes, float(workload.submit[0]) if len(workload) else 0.0)
        self.budget = budget(cluster, conditions.power)
        for job in self.jobs:
            job.sizes = [size for size in job.sizes if greatest_draw(size) <= self.budget]
        asleep = lambda n: self.sleepers.asleep(n, self.now)  # noqa: E731
        self.placer = Placer(machine, self.policy.placement, self.policy.option, seed, types, asleep, self.budget)
        self.running: dict[int, Job] = {}
        self.owners = Owners(workload, cluster, conditions.fairness)
        self.quotas = Quotas(workload, cluster, self.running) if conditions.quotas else None
        self.waiting = Waiting(workload, conditions.dependencies, self.release_at, self.cancel)
        self.state = machine.empty()
        self.queues: list[set[int]] = [set() for _ in cluster.partitions]
        self.committed: list[int | None] = [None for _ in cluster.partitions]
        self.queue_of_partition = queues_of_partitions(workload, machine)
        self.loops = Loops(self.policy.config) if self.policy.backfill == "slurm" else None
        self.first_start = np.full(len(workload), math.inf)
        self.end = np.full(len(workload), math.inf)
        self.status = np.zeros(len(workload), dtype=np.int8)
        self.runs: list[Stay] = []
        self.decision_due = False
        self.one_by_one = self.policy.backfill == "easy-strict"
        self.preemptive: preemption.Preemptive | None = None
        if self.policy.preemptive is not None:
            self.preemptive = preemption.Preemptive(self, self.policy.preemptive, self.policy.threshold, workload)

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self) -> Result:
        for job in self.jobs:
            kind = BEFORE_COMPLETIONS if self.one_by_one else ARRIVAL
            self.clock.call_at(float(self.workload.submit[job.index]), kind, job.index, lambda job=job: self.arrive(job))  # type: ignore[misc]
        if len(self.jobs):
            outages = self.conditions.outages_on(self.cluster, float(self.workload.submit[0]), float(self.workload.submit[-1]))
            for n in range(self.cluster.num_nodes):
                self.expect(n, [outage for outage in outages if outage.node == n])
            for time in {one.end for one in self.reserved if one.end < math.inf}:
                self.clock.call_at(time, LIFT, 0, self.decide_after_events)
        for job in self.jobs if self.policy.max_wait < math.inf else ():
            self.clock.call_at(self.overdue_from(job.index), OVERDUE, job.index, lambda job=job: self.now_overdue(job))  # type: ignore[misc]
        while self.clock.peek() < math.inf and (self.status < DONE).any():
            self.clock.step()
        assert not self.running
        stops = np.array([job.stops for job in self.jobs], dtype=np.int32)
        runs = sorted(self.runs, key=lambda run: run[0])
        return Result(self.first_start, self.end, self.status, stops, runs, self.sleepers.all_sleeps())

    # --- arrivals and completions

    def arrive(self, job: Job) -> None:
        if not job.sizes or (self.quotas and self.quotas.never(job.index)):
            self.status[job.index] = REJECTED
            self.waiting.ended(job.index, self.now, well=False)
        elif self.waiting.may_queue(job.index, self.now):
            self.enqueue(job)
        self.decide_after_events()

    def release_at(self, j: int, time: float) -> None:
        """The job, which has arrived, is queued then."""

        def release() -> None:
            self.enqueue(self.jobs[j])
            self.decide_after_events()

        self.clock.call_at(time, RELEASE, j, release)

    def cancel(self, j: int) -> None:
        self.status[j] = CANCELLED
        self.waiting.ended(j, self.now, well=False)

    def enqueue(self, job: Job) -> None:
        self.status[job.index] = QUEUED
        self.queues[self.queue_of(job)].add(job.index)

    def queue_of(self, job: Job) -> int:
        if self.loops is not None:
            return 0
        names = partitions_of(self.workload, job.index)
        return min(q for name, q in self.queue_of_partition.items() if names is None or name in names)

    def complete(self, job: Job, run: Run) -> None:
        if job.run is not run:  # it was stopped before
            return
        if self.preemptive:
            self.preemptive.ended(job)
        self.leave(job)
        self.end[job.index] = self.now
        status = KILLED if self.kill and job.runtime > job.requested else DONE
        self.status[job.index] = status
        self.waiting.ended(job.index, self.now, well=status == DONE)
        self.decide_after_events()

    # --- starting and stopping

    def start(self, job: Job, pieces: list[Piece]) -> None:
        self.queues[self.queue_of(job)].remove(job.index)
        self.state.take(pieces, job.demand)
        nodes = nodes_of(pieces)
        awake = self.sleepers.placed([piece.node for piece in pieces], self.now)
        begin = awake + stopping.overhead(job, nodes, self.costs)
        job.run = run = Run(self.now, begin, job.sized(pieces).factor_on(nodes), pieces)
        job.changes += 1
        job.pin = None
        self.running[job.index] = job
        self.placer.starts += 1
        self.owners.started(job, self.now)
        self.waiting.started(job.index, self.now)
        self.first_start[job.index] = min(self.first_start[job.index], awake)
        self.clock.call_at(begin + job.rem * run.factor, COMPLETION, self.placer.starts, lambda: self.complete(job, run))
        if (self.preemptive or self.policy.migrates) and self.costs.quantum_s > 0:
            self.set_timer(self.now + self.costs.quantum_s, job, lambda: None)
        if self.preemptive:
            self.preemptive.started(job)

    def leave(self, job: Job) -> None:
        """The present run is over, one way or the other."""
        run = job.stay
        del self.running[job.index]
        self.owners.stopped(job, self.now)
        self.state.give_back(run.pieces, job.demand)
        self.sleepers.left([piece.node for piece in run.pieces], self.now)
        pieces = sorted((p.node, p.tasks, sum(1 << g for g in p.gpus)) for p in run.pieces)
        self.runs.append((job.index, run.start, self.now, tuple(pieces)))
        job.last_nodes = job.nodes
        job.run = None
        job.changes += 1

    def stop(self, job: Job, *, saved: bool) -> None:
        worked = stopping.stop(job, self.now, self.costs, saved=saved)
        if self.first_start[job.index] > self.now:
            self.first_start[job.index] = math.inf
        self.leave(job)
        self.enqueue(job)
        if self.preemptive:
            self.preemptive.stopped(job, worked)

    def preempt(self, job: Job) -> None:
        self.stop(job, saved=self.costs.mode == "suspend")

    def migrate(self, moves: list[tuple[Job, list[Piece]]]) -> None:
        for job, _ in moves:
            self.stop(job, saved=True)
        for job, pieces in moves:
            self.start(job, pieces)

    def old_enough(self, job: Job) -> bool:
        """Whether a policy may stop the present run."""
        young = self.now <= job.stay.start or self.now < job.stay.start + self.costs.quantum_s
        return not young and not self.is_overdue(job.index)

    def set_timer(self, time: float, job: Job, action: Callable[[], None]) -> None:
        """Do this then, unless the job has started, stopped or ended in between."""
        changes = job.changes

        def due() -> None:
            if job.changes == changes:
                action()
                self.decide_after_events()

        self.clock.call_at(time, TIMER, job.index, due)

    # --- outages

    def expect(self, n: int, outages: list[Outage]) -> None:
        """The outages of node n, which may overlap."""
        to_come, around = sorted(outages, key=lambda outage: outage.start, reverse=True), []
        for time in sorted({t for outage in outages for t in (outage.start, outage.end)} - {math.inf}):
            while to_come and to_come[-1].start <= time:
                around.append(to_come.pop())
            around = [outage for outage in around if outage.end >= time]
            before = worst(outage for outage in around if outage.start < time)
            after = worst(outage for outage in around if outage.end > time)
            if after == before or (before, after) == ("fail", "drain"):
                continue
            if after is None:
                self.clock.call_at(time, REPAIR, n, lambda: self.reopen(n))
            else:
                self.clock.call_at(time, FAILURE, n, lambda kind=after: self.close(n, kind))  # type: ignore[misc]

    def close(self, n: int, kind: str) -> None:
        self.state.closed |= {n}
        if kind == "fail":
            for j in sorted(self.running):
                if n in self.jobs[j].nodes:
                    self.fail(self.jobs[j])
        self.decide_after_events()

    def fail(self, job: Job) -> None:
        self.stop(job, saved=False)
        if not self.conditions.requeue:
            self.queues[self.queue_of(job)].remove(job.index)
            self.status[job.index] = FAILED
            job.changes += 1
            self.waiting.ended(job.index, self.now, well=False)

    def reopen(self, n: int) -> None:
        self.state.closed -= {n}
        self.decide_after_events()

    # --- the bound on waiting

    def overdue_from(self, j: int) -> float:
        return float(self.workload.submit[j]) + self.policy.max_wait

    def is_overdue(self, j: int) -> bool:
        return self.overdue_from(j) <= self.now

    def now_overdue(self, job: Job) -> None:
        if any(job.index in queue for queue in self.queues):
            self.decide_after_events()

    def oldest_overdue(self, queued: Iterable[int]) -> int | None:
        """The first by submission of those that have waited too long and whose quotas let them start."""
        rows = self.quotas.in_order(sorted(queued)) if self.quotas else queued
        return min((j for j in rows if self.is_overdue(j)), default=None)

    # --- decisions

    def decide_after_events(self) -> None:
        """One decision per instant, after everything else that happens at it; or one after each event."""
        if self.one_by_one:
            self.decide()
        elif not self.decision_due:
            self.decision_due = True
            self.clock.call_at(self.now, DECISION, 0, self.decide)

    def decide(self) -> None:
        self.decision_due = False
        self.state.time = self.now
        if self.script is not None and self.script.decide(self):
            return
        if self.own is not None:
            self.scores = {j: self.own.ask(self, self.own.score, j) for queue in self.queues for j in sorted(queue)}
        if self.preemptive:
            self.preemptive.before_decision()
        if self.own is not None and self.own.hold is not None:
            self.hold_back(self.own.hold)
        for q in range(len(self.queues)):
            self.serve(q)
        for q in range(len(self.queues)):
            while not self.running and (held := self.in_order(self.policy.order, self.held(q))):
                del self.held_until[held[0]]
                self.serve(q)
        self.wake_later()
        self.loop_later()
        if self.conditions.resize in ("grow", "both") and not any(self.queues):
            resizing.grow(self)

    def serve(self, q: int) -> None:
        if self.preemptive:
            self.preemptive.serve(q)
            return
        while True:
            head = self.start_from_head(q) if self.loops is None else self.loops.run(self, q)
            if head is None:
                break
            if self.loops is None:
                self.backfill(q, head)
            if self.conditions.resize not in ("shrink", "both") or not resizing.shrink(self, q, head):
                break

    def held(self, q: int) -> set[int]:
        return {j for j in self.queues[q] if self.held_until.get(j, -math.inf) > self.now}

    def free_to_start(self, q: int) -> set[int]:
        return self.queues[q] - self.held(q)

    def hold_back(self, hold: Callable[..., float]) -> None:
        """Ask of every waiting job how long it must not start."""
        assert self.own is not None
        for q, queue in enumerate(self.queues):
            for j in sorted(queue):
                answer = self.own.ask(self, hold, j)
                committed = self.dispatch == "commit" and self.committed[q] == j
                if committed or self.is_overdue(j):
                    self.held_until.pop(j, None)
                elif not self.now < self.held_until.get(j, -math.inf) < math.inf:
                    self.held_until[j] = self.now + answer if answer > 0 else -math.inf
                if self.held_until.get(j, -math.inf) > self.now:
                    self.jobs[j].pin = None

    def wake_later(self) -> None:
        """Decide again when the first of the jobs that are held for a time may start."""
        times = [self.held_until[j] for q in range(len(self.queues)) for j in self.held(q)]
        first = min(times, default=math.inf)
        if first < math.inf:
            self.clock.call_at(first, WAKE, 0, lambda: self.decide_after_events() if self.waits_for(first) else None)

    def waits_for(self, time: float) -> bool:
        return any(self.held_until.get(j) == time for queue in self.queues for j in queue)

    def start_from_head(self, q: int) -> Job | None:
        """Start jobs in order while they fit; the first that does not is the blocked head."""
        order = self.in_order(self.policy.order, self.free_to_start(q))
        committed = self.committed[q] if self.dispatch == "commit" and self.committed[q] in order else None
        while order:
            first = committed if committed is not None else self.oldest_overdue(order)
            j = order.pop(order.index(first) if first is not None else 0)
            committed = None
            pieces = backfill.place_head(self, self.jobs[j])
            if pieces is None and self.policy.migrates and defrag.make_room(self, self.jobs[j]):
                pieces = self.placer.place(self.jobs[j], self.state)
            if pieces is None:
                self.committed[q] = j
                return self.jobs[j]
            self.start(self.jobs[j], pieces)
            order = self.in_order_again(self.policy.order, order)
        self.committed[q] = None
        return None

    def loop_later(self) -> None:
        """Decide again when the next loop of Slurm is due."""
        if self.loops is None:
            return
        self.next_loop = self.loops.next_decision(self.now, sum(len(queue) for queue in self.queues))
        if (time := self.next_loop) < math.inf:
            self.clock.call_at(time, WAKE, 0, lambda: self.decide_after_events() if self.next_loop == time else None)

    def backfill(self, q: int, head: Job) -> None:
        others = self.free_to_start(q) - {head.index}
        if self.is_overdue(head.index) and self.policy.backfill == "none":
            in_order = [self.jobs[j] for j in self.in_order(self.policy.order, others)]
            backfill.none_beside_a_reservation(self, head, in_order)
            return
        reserves = self.is_overdue(head.index) and self.policy.backfill in ("greedy", "defrag")
        rule = backfill.easy if reserves else backfill.RULES[self.policy.backfill]
        order = self.in_order(self.policy.second_order, others)
        rule(self, head, [self.jobs[j] for j in order[: self.policy.depth]])

    def lifts(self) -> list[float]:
        """When reservations are over, from now on."""
        return [one.end for one in self.reserved if self.now < one.end < math.inf]

    def in_order(self, order: str, queued: Iterable[int]) -> list[int]:
        """The queued jobs by ascending score, ties by job index."""
        rows = sorted(queued)
        name, _, estimates = order.partition(":")
        if name in FAIR_ORDERS:
            found = [rows[i] for i in np.argsort(self.owners.scores(name, rows, self.now), kind="stable")]
        elif isinstance(self.script, GivenOrders) and name == GIVEN:
            found = self.script.in_order(rows)
        elif self.own is not None and name == self.own.name:
            found = sorted(rows, key=lambda j: (self.scores[j], j))
        else:
            found = in_order(name, self.facts[estimates], set(rows), self.now)
        return self.quotas.in_order(found) if self.quotas else found

    def in_order_again(self, order: str, queued: list[int]) -> list[int]:
        """Those still queued after a start, which changes nothing in orders but in that of `drf`, and where there are quotas."""
        return self.in_order(order, queued) if order == "drf" or self.quotas else queued

    def queued_in_order(self, q: int) -> list[int]:
        return self.in_order(self.policy.order, self.free_to_start(q))

    def still_in_order(self, queued: list[int]) -> list[int]:
        return self.in_order_again(self.policy.order, queued)

    def candidates_again(self, candidates: list[Job]) -> list[Job]:
        again = self.in_order_again(self.policy.second_order, [job.index for job in candidates])
        return [self.jobs[j] for j in again]


def queues_of_partitions(workload: Workload, machine: Machine) -> dict[str, int]:
    """The queue of each partition: its place in the cluster, or that of the first of those that share nodes or jobs with it."""
    queue = {partition.name: q for q, partition in enumerate(machine.cluster.partitions)}
    of_jobs = [partitions_of(workload, j) for j in range(len(workload))]
    groups = [*machine.partitions, *(set(queue) if names is None else names & set(queue) for names in of_jobs)]
    for _ in queue:
        for group in groups:
            for name in group:
                queue[name] = min(queue[other] for other in group)
    return queue


def known_estimates(workload: Workload) -> dict[str, Floats]:
    """Estimates that an order may name and that need nobody to learn."""
    requested, seen = [], -math.inf
    for value in workload.requested.tolist():
        seen = seen if math.isnan(value) else max(seen, value)
        largest = seen if seen > -math.inf else DEFAULT_REQUEST
        requested.append(largest if math.isnan(value) else value)
    return {"oracle": workload.runtime, "requested": np.array(requested, dtype=np.float64)}


def worst(outages: Iterable[Outage]) -> str | None:
    """What a node suffers while all of these last."""
    kinds = {outage.kind for outage in outages}
    return "fail" if "fail" in kinds else "drain" if kinds else None


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str,
    *,
    dispatch: str = "reorder",
    estimate: Floats,
    seed: int = 0,
    kill_at_limit: bool = False,
    predicted: Floats | None = None,
    conditions: Conditions | None = None,
    own_estimates: Mapping[str, Floats] | None = None,
    own: Own | None = None,
    script: Script | GivenOrders | None = None,
) -> Result:
    """Replay the workload on the cluster under the named policy.

    `predicted` is what `qssf` goes by (the estimate by default), `own_estimates` those of orders that name them, `own` an order
    that is a user's function, `script` decisions or orders that were made elsewhere.
    """
    conditions = conditions if conditions is not None else Conditions()
    others = own_estimates or {}
    return Simulator(workload, cluster, policy, dispatch, estimate, seed, kill_at_limit, predicted, conditions, others, own, script).run()
