"""The simulation itself: SimPy keeps the time, this module handles events and decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload
from reference import backfill, defrag, outages, preemption, reservations, resizing, stopping
from reference.clock import ARRIVAL, BEFORE_COMPLETIONS, COMPLETION, DECISION, LIFT, OVERDUE, RELEASE, TIMER, WAKE, Clock
from reference.dependencies import Waiting
from reference.fairness import FAIR_ORDERS, Owners
from reference.holding import Holds
from reference.orders import Facts, in_order, known_estimates
from reference.own import Own
from reference.placement import Placer, task_types
from reference.policy_names import Policy
from reference.powercap import budget, greatest_draw
from reference.quotas import Quotas
from reference.result import Result, Stay
from reference.scripted import GIVEN, GivenOrders, Script
from reference.sleeping import Sleepers
from reference.slurm import Loops
from reference.state import Job, Machine, Piece, Run, make_jobs, nodes_of, partitions_of, queues_of_partitions

QUEUED, DONE, REJECTED, KILLED, CANCELLED = 1, 3, 4, 5, 6  # the numbers of queuewise.sim.schedule, which this must not import

Floats = NDArray[np.float64]


class Simulator:
    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        dispatch: str,
        estimate: Floats,
        guessed: bool,
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
        for job in self.jobs:
            job.guessed = guessed
        self.reserved = conditions.held_on(cluster)
        reservations.bar(self.jobs, workload, conditions, self.reserved)
        self.facts = {"": Facts(workload, self.jobs, predicted, seed)}
        for name, values in (known_estimates(workload) | dict(own_estimates)).items():
            self.facts[name] = Facts(workload, self.jobs, predicted, seed, values)
        self.own = own
        self.script = script
        self.holds = Holds(self, own)
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
            all_outages = self.conditions.outages_on(self.cluster, float(self.workload.submit[0]), float(self.workload.submit[-1]))
            for n in range(self.cluster.num_nodes):
                outages.expect(self, n, [outage for outage in all_outages if outage.node == n])
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
        if not job.sizes or self.placer.never_fits(job) or (self.quotas and self.quotas.never(job.index)):
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
        self.ask_scores()
        if self.preemptive:
            self.preemptive.before_decision()
        self.holds.ask()
        for q in range(len(self.queues)):
            waiting = None
            while waiting is None or (self.holds.after_every_start and len(self.queues[q]) < waiting):
                if waiting is not None:
                    self.ask_scores()
                    self.holds.ask()
                waiting = len(self.queues[q])
                self.serve(q)
        for q in range(len(self.queues)):
            while not self.running and (held := self.in_order(self.policy.order, self.holds.held(q))):
                del self.holds.until[held[0]]
                self.serve(q)
        self.holds.wake_later()
        self.loop_later()
        if self.conditions.resize in ("grow", "both") and not any(self.queues):
            resizing.grow(self)

    def ask_scores(self) -> None:
        if self.own is not None:
            self.scores = {j: self.own.ask(self, self.own.score, j) for queue in self.queues for j in sorted(queue)}

    def serve(self, q: int) -> None:
        if self.preemptive:
            self.preemptive.serve(q)
            return
        waiting = len(self.queues[q])
        while True:
            head = self.start_from_head(q) if self.loops is None else self.loops.run(self, q)
            if head is None:
                break
            if self.loops is None:
                self.backfill(q, head)
            if self.holds.after_every_start and len(self.queues[q]) < waiting:
                break
            if self.conditions.resize not in ("shrink", "both") or not resizing.shrink(self, q, head):
                break

    def free_to_start(self, q: int) -> set[int]:
        return self.queues[q] - self.holds.held(q)

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
            order = [] if self.holds.after_every_start else self.in_order_again(self.policy.order, order)
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
        if self.holds.after_every_start:
            return []  # another pass follows
        again = self.in_order_again(self.policy.second_order, [job.index for job in candidates])
        return [self.jobs[j] for j in again]


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str,
    *,
    dispatch: str = "reorder",
    estimate: Floats,
    guessed: bool = False,
    seed: int = 0,
    kill_at_limit: bool = False,
    predicted: Floats | None = None,
    conditions: Conditions | None = None,
    own_estimates: Mapping[str, Floats] | None = None,
    own: Own | None = None,
    script: Script | GivenOrders | None = None,
) -> Result:
    """Replay the workload on the cluster under the named policy.

    `guessed`: running jobs that outlive their estimates are expected to go on.
    `predicted` is what `qssf` goes by (the estimate by default), `own_estimates` those of orders that name them, `own` an order
    that is a user's function, `script` decisions or orders that were made elsewhere.
    """
    conditions = conditions if conditions is not None else Conditions()
    others = own_estimates or {}
    known = estimate, guessed, seed, kill_at_limit, predicted
    return Simulator(workload, cluster, policy, dispatch, *known, conditions, others, own, script).run()
