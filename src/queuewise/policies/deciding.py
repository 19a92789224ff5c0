"""Replays under a policy that decides in Python: the engine advances step by step, and illegal decisions are errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.interface import Migrate, Preempt, Running, Start, Where
from queuewise.policies.records import Job, Node
from queuewise.policies.snapshot import JobId, Snapshot, mask_of
from queuewise.policies.snapshot_checks import problem_of_places
from queuewise.policies.snapshot_taking import SnapshotTaker
from queuewise.policies.user_code import UserCode
from queuewise.sim.core.engine import with_room_in_log
from queuewise.sim.core.facts import node_facts
from queuewise.sim.core.rules import Order
from queuewise.sim.core.schedule import QUEUED, RUNNING, STATUS_NAMES
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.stepwise import (
    ASK_FIT,
    ASK_SLOTS,
    MOVE,
    MOVE_THERE,
    MOVE_TO,
    NEXT_INSTANT,
    START,
    START_ON,
    START_OVERDUE,
    START_THERE,
    STOP,
    act,
)
from queuewise.sim.core.tables import addresses_of

NO_NODES = np.zeros(0, np.int64)
NO_MORE = object()  # the end of the decisions; None would be an illegal decision


def listed_order() -> Order:
    """An order that is never used: it only makes the engine keep the waiting jobs in a list."""
    return Order(function=lambda *arguments: None)


Drive = Callable[[World, Machine, State], State]


@dataclass(frozen=True)
class Deciding:
    """Who decides in a replay: a class of the user's own, which is created for it, or an object that somebody has made."""

    make: Callable[[], Any]
    name: str  # for errors
    where: str = ""

    @classmethod
    def of_class(cls, own: UserCode) -> Deciding:
        return cls(own.value, own.name, own.where)


def driver(deciding: Deciding, cluster: Cluster, seed: int, taker: Callable[..., SnapshotTaker]) -> Drive:
    """A function that advances the engine in place of its own loop. `taker` makes what takes snapshots of world and machine."""

    def drive(world: World, machine: Machine, state: State) -> State:
        replay = DeciderReplay(deciding, cluster, taker(world, machine), world, machine, state)
        with np.errstate(all="ignore"):
            replay.run(seed)
        return replay.state

    return drive


class ReplayView:
    """The View of a replay, and nothing else of it: the replay itself knows the runtimes."""

    def __init__(self, replay: DeciderReplay) -> None:
        self.__replay = replay

    @property
    def now(self) -> float:
        return self.__replay.now

    @property
    def queue(self) -> tuple[Job, ...]:
        return self.__replay.queue

    @property
    def running(self) -> tuple[Running, ...]:
        return self.__replay.running

    def nodes(self, job: Job | None = None) -> tuple[Node, ...]:
        return self.__replay.nodes(job)

    def fits(self, job: Job) -> bool:
        return self.__replay.fits(job)

    def remaining(self, job: Job) -> float:
        return self.__replay.remaining(job)

    def snapshot(self) -> Snapshot:
        return self.__replay.snapshot()

    def index(self, job_id: JobId) -> int:
        return self.__replay.row_of[job_id]


class DeciderReplay:
    """One replay under a policy that decides in Python."""

    def __init__(self, deciding: Deciding, cluster: Cluster, taker: SnapshotTaker, world: World, machine: Machine, state: State) -> None:
        self.deciding, self.cluster, self.world, self.machine, self.state = deciding, cluster, world, machine, state
        self._taker = taker
        self._spare = machine.clone()
        self._tables = self._addresses()
        self._jobs: dict[int, Job] = {}
        self._nodes = node_facts(cluster)

    def run(self, seed: int) -> None:
        with self._thinking():
            policy = self.deciding.make()
        if hasattr(policy, "reset"):
            with self._thinking():
                policy.reset(self.cluster, seed)
        while self._act(NEXT_INSTANT):
            self._start_overdue()
            for decision in self._decisions(policy):
                self._make_room_in_log()
                self._carry_out(decision)
            wake_at = float(getattr(policy, "wake_at", np.inf))
            self.state.clock.wake_at = wake_at if wake_at > self.now else np.inf
        left = [job.index for job in self.queue if self.fits(job)]  # others wait for nodes that are gone or reserved for good
        if left:
            raise self._illegal(f"left {len(left):,} jobs waiting for ever, the first is job {left[0]}", "start every job eventually")

    # --- what the policy sees

    @property
    def now(self) -> float:
        return float(self.state.clock.now)

    @property
    def queue(self) -> tuple[Job, ...]:
        return tuple(self._job(j) for j in np.sort(self.state.pending[: self.state.count.pending_jobs]).tolist())

    @property
    def running(self) -> tuple[Running, ...]:
        return tuple(self._running(j) for j in np.sort(self.state.running[: self.state.count.running_jobs]).tolist())

    def nodes(self, job: Job | None = None) -> tuple[Node, ...]:
        facts, machine = self._nodes, self.machine
        facts["free_gpus"] = machine.free_milli / 1000
        facts["whole_gpus"] = machine.free_gpus
        facts["free_cores"] = np.where(np.isinf(facts["cores"]), np.inf, machine.free_cpu / 1000)
        facts["free_mem_mib"] = np.where(np.isinf(facts["mem_mib"]), np.inf, machine.free_mem)
        if self.world.policy.nodes_sleep:
            facts["asleep"] = self.now > self.state.idle_since + self.world.costs.sleep_after
        slots = np.zeros(len(facts), np.int64)
        if job is not None:
            self._act(ASK_SLOTS, self._index(job), tasks=slots)
        facts["slots"] = slots
        return tuple(Node(*row) for row in facts.tolist())

    def fits(self, job: Job) -> bool:
        return self._act(ASK_FIT, self._index(job))

    def remaining(self, job: Job) -> float:
        return float(self.state.remaining_estimate[self._index(job)])

    def snapshot(self) -> Snapshot:
        return self._taker.take(self.state, killed=np.zeros(len(self.world.submit), bool), history=False)

    @cached_property
    def row_of(self) -> dict[JobId, int]:
        return {job_id: j for j, job_id in enumerate(self._taker.job_ids)}

    # --- how the engine advances

    def _act(self, action: int, j: int = 0, nodes: Any = NO_NODES, tasks: Any = NO_NODES, gpus: Any = NO_NODES) -> bool:
        return bool(act(*self._tables, action, j, nodes, tasks, gpus))

    def _addresses(self) -> tuple[Any, Any, Any, Any]:
        return addresses_of(self.world), addresses_of(self.machine), addresses_of(self._spare), addresses_of(self.state)

    def _make_room_in_log(self) -> None:
        longer = with_room_in_log(self.world, self.state)
        if longer is not self.state:
            self.state = longer
            self._tables = self._addresses()

    def _start_overdue(self) -> None:
        """Overdue jobs come before what the policy decides."""
        if self.world.wait_bound[0] < np.inf:
            self._make_room_in_log()
            self._act(START_OVERDUE)

    def _job(self, j: int) -> Job:
        if j not in self._jobs:
            self._jobs[j] = Job(*self.world.facts[j].tolist())
        return self._jobs[j]

    def _running(self, j: int) -> Running:
        state = self.state
        pieces = range(state.first_piece[j], state.first_piece[j] + state.num_pieces[j])
        tasks: dict[int, int] = {}
        for k in pieces:
            tasks[int(state.piece_node[k])] = tasks.get(int(state.piece_node[k]), 0) + int(state.piece_tasks[k])
        return Running(self._job(j), self._run_start(j), max(float(state.expected[j]), self.now), tasks)

    def _decisions(self, policy: Any) -> Iterator[Any]:
        """The decisions of the policy, one by one; its computing time is watched."""
        with self._thinking():
            decided = policy.decide(ReplayView(self))
        if not isinstance(decided, Iterable):
            raise self._illegal(f"decide returned {decided!r}, which is not a list of decisions", "return a list of Start, or yield them")
        decisions = iter(decided)
        while True:
            with self._thinking():
                decision = next(decisions, NO_MORE)
            if decision is NO_MORE:
                return
            yield decision

    def _carry_out(self, decision: Any) -> None:
        if isinstance(decision, Start):
            self._start(decision)
        elif isinstance(decision, Preempt):
            self._act(STOP, self._stoppable(decision.job, "preempts"))
            self._start_overdue()
        elif isinstance(decision, Migrate):
            self._move(decision)
        else:
            raise self._illegal(f"decided {decision!r}, which is not a decision", "use Start(job), Preempt(job) or Migrate(job)")

    def _start(self, decision: Start) -> None:
        j = self._index(decision.job)
        if self.state.status[j] != QUEUED:
            raise self._illegal(
                f"starts job {j}, which is {STATUS_NAMES[self.state.status[j]]}", "start jobs of view.queue, each only once"
            )
        if decision.nodes is None:
            if not self._act(START, j):
                raise self._illegal(f"starts job {j}, which does not fit{self._beside_overdue(j)}", "check view.fits(job) first")
            return
        if not self._place(j, decision.nodes, START_ON, START_THERE):
            where = f"on nodes {decision.nodes}, where it does not fit{self._beside_overdue(j)}"
            raise self._illegal(f"starts job {j} {where}", "view.nodes(job) lists the slots")

    def _beside_overdue(self, j: int) -> str:
        """A remark if an overdue job has a reservation."""
        head = int(self.state.head[self.world.class_queue[self.world.job_class[j]]])
        return f" or would delay the overdue job {head}" if self.world.wait_bound[0] < np.inf and head >= 0 else ""

    def _move(self, decision: Migrate) -> None:
        j = self._stoppable(decision.job, "moves")
        if decision.nodes is None:
            if not self._act(MOVE, j):
                raise self._illegal(f"moves job {j}, for which the placement rule finds no place", "leave it where it is")
            self._start_overdue()
            return
        if not self._place(j, decision.nodes, MOVE_TO, MOVE_THERE):
            raise self._illegal(f"moves job {j} to nodes {decision.nodes}, where it does not fit", "view.nodes(job) lists the slots")
        self._start_overdue()

    def _stoppable(self, job: Any, verb: str) -> int:
        """The index of a running job that may be stopped now.

        A job that started at this instant may not: otherwise a replay might never end.
        """
        j = self._index(job)
        if self.state.status[j] != RUNNING:
            raise self._illegal(f"{verb} job {j}, which is {STATUS_NAMES[self.state.status[j]]}", f"{verb[:-1]} jobs of view.running")
        quantum = float(self.world.costs.quantum)
        if self.now <= self._run_start(j) or self.now < self._run_start(j) + quantum:
            raise self._illegal(
                f"{verb} job {j}, which started at {self._run_start(j):g} s", f"let it run for at least {quantum:g} s, and longer than 0 s"
            )
        if self.now >= self.world.submit[j] + self.world.wait_bound[0]:
            raise self._illegal(f"{verb} job {j}, which is overdue", "let jobs that have waited longer than the bound run to their end")
        return j

    def _run_start(self, j: int) -> float:
        return float(self.state.piece_start[self.state.first_piece[j]])

    def _place(self, j: int, chosen: Where, on_nodes: int, on_gpus: int) -> bool:
        """Carry out one of two actions: on the chosen nodes, or on the chosen GPUs of nodes."""
        known = range(self.cluster.num_nodes)
        pairs = list(chosen.items()) if isinstance(chosen, Mapping) else _pairs(chosen)
        if pairs is None or not all(_is_whole(n, tasks) and n in known and tasks >= 1 for n, tasks in pairs):
            raise self._illegal(
                f"places job {j} on nodes {chosen!r}",
                f"give a dict from node (0 to {known[-1]}) to number of tasks (1 or more), or places with GPUs",
            )
        total = sum(tasks for _, tasks in pairs)
        c = self.world.job_class[j]
        fewest = int(self.world.class_tasks[c])
        most = fewest + int(self.world.class_span[c])
        if not fewest <= total <= most:
            wanted = f"{fewest}" if fewest == most else f"{fewest} to {most}"
            raise self._illegal(f"places {total} tasks of job {j}, which has {wanted}", "place all tasks of the job")
        if isinstance(chosen, Mapping):
            nodes, tasks = np.array(sorted(pairs), np.int64).T.copy()
            return self._act(on_nodes, j, nodes, tasks)
        problem = problem_of_places(chosen, int(self.world.class_milli[c]), self.cluster.node_gpus.tolist())
        if problem:
            raise self._illegal(f"places job {j} on {[tuple(place) for place in chosen]}: {problem}", "give places as a snapshot has them")
        nodes, tasks = np.array(pairs, np.int64).T.copy()
        return self._act(on_gpus, j, nodes, tasks, np.array([mask_of(gpus) for _, _, gpus in chosen], np.int64))

    def _index(self, job: Any) -> int:
        j = job.index if isinstance(job, Job) else job
        if not isinstance(j, int | np.integer) or not 0 <= j < len(self.world.submit):
            raise self._illegal(f"names {job!r}, which is not a job", "use jobs of view.queue")
        return int(j)

    def _illegal(self, problem: str, hint: str) -> InputError:
        return InputError(f"{self.deciding.name} {problem} (at {self.now:g} s)", where=self.deciding.where, hint=hint)

    @contextmanager
    def _thinking(self) -> Iterator[None]:
        self.state.count.user_calls += 1
        yield
        self.state.count.user_calls += 1


def _pairs(chosen: Any) -> list[tuple[Any, Any]] | None:
    """Nodes and tasks of places; None if that is not what they are."""
    try:
        return [(node, tasks) for node, tasks, gpus in chosen] if all(_is_whole(*gpus) for _, _, gpus in chosen) else None
    except (TypeError, ValueError):
        return None


def _is_whole(*numbers: Any) -> bool:
    return all(isinstance(number, int | np.integer) for number in numbers)
