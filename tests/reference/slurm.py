"""What Slurm's two scheduling loops do (`slurm` under "Backfill" of the normative page)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from queuewise.workload.jobs import Workload
from reference.backfill import Hold, Moment, Plan, Simulation, end_of, view_of
from reference.state import Job, State, partitions_of

NAME = "slurm"
DEFAULTS = {
    "bf_interval": 30.0, "bf_max_job_test": 500.0, "bf_window": 1440.0, "bf_resolution": 60.0,
    "default_queue_depth": 100.0, "sched_interval": 60.0,
}  # fmt: skip


class Simulator(Simulation, Protocol):
    jobs: list[Job]
    queues: list[set[int]]
    committed: list[int | None]
    dispatch: str
    workload: Workload

    def queued_in_order(self, q: int) -> list[int]: ...
    def still_in_order(self, queued: list[int]) -> list[int]: ...
    def is_overdue(self, j: int) -> bool: ...
    def oldest_overdue(self, queued: Iterable[int]) -> int | None: ...


class Loops:
    """The parameters in a file, and when the loops ran last."""

    def __init__(self, path: str) -> None:
        given = dict(re.findall(r"\b([a-z_]+)=(-?[0-9.]+)", Path(path).read_text(encoding="utf-8"))) if path else {}
        self.values = {name: float(given.get(name, default)) for name, default in DEFAULTS.items()}
        self.last_backfill = self.last_full = -math.inf

    def interval(self, name: str) -> float:
        return math.inf if self.values[name] == -1 else self.values[name]

    def round_down(self, time: float, now: float) -> float:
        step = self.values["bf_resolution"]
        return now + math.floor((time - now) / step) * step

    def round_up(self, time: float, now: float) -> float:
        step = self.values["bf_resolution"]
        return now + math.ceil((time - now) / step) * step

    def run(self, sim: Simulator, q: int) -> Job | None:
        """The main loop, and the backfill loop if that is due; returns the job found blocked first, if it still waits."""
        if not sim.queues[q]:
            return None
        head = self.main_loop(sim, q)
        sim.committed[q] = None if head is None else head.index
        waiting = sim.queued_in_order(q)
        if waiting and self.backfill_is_due(sim.now):
            first = head.index if head is not None else first_of(sim, waiting, None)
            waiting.insert(0, waiting.pop(waiting.index(first)))
            self.backfill(sim, [sim.jobs[j] for j in waiting])
        return head if head is not None and head.index in sim.queues[q] else None

    # --- the main loop

    def main_loop(self, sim: Simulator, q: int) -> Job | None:
        """Returns the first job that it finds blocked."""
        order = sim.queued_in_order(q)
        committed = sim.committed[q] if sim.dispatch == "commit" and sim.committed[q] in order else None
        head: Job | None = None
        withdrawn: set[int] = set()
        left = self.begin_main_loop(sim.now)
        while order and left > 0:
            job = sim.jobs[order.pop(0 if head is not None else order.index(first_of(sim, order, committed)))]
            left -= 1
            pieces = sim.placer.place(job, without(sim.state, withdrawn))
            if pieces is None:
                head = head or job
                withdrawn |= nodes_of_partitions(sim.workload, job)
            else:
                sim.start(job, pieces)
                order = sim.still_in_order(order)
            committed = None
        return head

    def begin_main_loop(self, now: float) -> float:
        """How many jobs are tried."""
        if now >= self.last_full + self.interval("sched_interval"):
            self.last_full = now
            return math.inf
        return self.values["default_queue_depth"]

    # --- the backfill loop

    def backfill_is_due(self, now: float) -> bool:
        return now >= self.last_backfill + self.interval("bf_interval")

    def backfill(self, sim: Simulator, waiting: list[Job]) -> None:
        self.last_backfill = sim.now
        empty = waiting[0].machine.empty()
        empty.closed = sim.state.closed
        plan = Plan(empty)
        for job in sim.running.values():
            plan.add(Hold(job, job.pieces, (-math.inf, 0), (self.round_down(job.expected_end(sim.now), sim.now), 0)))
        for _ in range(int(self.values["bf_max_job_test"])):
            if not waiting:
                return
            job = waiting.pop(0)
            hold = self.earliest(sim, plan, job)
            if hold is None:
                continue
            plan.add(hold)
            if hold.starts:
                sim.start(job, hold.pieces)
                waiting = sim.candidates_again(waiting)

    def earliest(self, sim: Simulator, plan: Plan, job: Job) -> Hold | None:
        last = math.inf if sim.is_overdue(job.index) else sim.now + self.values["bf_window"] * 60
        now = (sim.now, 0)
        tried = {moment for moment in plan.moments() if moment > now} | {(self.round_up(time, sim.now), 0) for time in sim.lifts()} | {now}
        for moment, starts in [(now, True), *((moment, False) for moment in sorted(tried) if moment[0] <= last)]:
            for size in job.sizes:
                length = job.est * size.worst_factor
                pieces = sim.placer.place_size(size, view_of(sim, plan, moment, end_of(moment, length), starts=starts))
                if pieces is not None:
                    return Hold(job, pieces, moment, self.end_of_hold(moment, length, sim.now, starts=starts), starts)
        return None

    def end_of_hold(self, begin: Moment, length: float, now: float, *, starts: bool) -> Moment:
        time, instant = begin
        end = self.round_down(time + length, now) if starts else self.round_up(time + length, now)
        return (end, 0) if end > time else (time, instant + 1)

    # --- the next one

    def next_decision(self, now: float, queued: int) -> float:
        """When there is a decision although nothing happens."""
        due = [math.inf]
        if queued and self.last_backfill < now:
            due.append(self.last_backfill + self.interval("bf_interval"))
        if queued > self.values["default_queue_depth"] and self.last_full < now:
            due.append(self.last_full + self.interval("sched_interval"))
        return min(time for time in due if time > now)


def first_of(sim: Simulator, order: list[int], committed: int | None) -> int:
    """Who comes first: the committed job, the oldest that is overdue, or the first in order."""
    overdue = sim.oldest_overdue(order)
    return committed if committed is not None else overdue if overdue is not None else order[0]


def nodes_of_partitions(workload: Workload, job: Job) -> set[int]:
    """All nodes of the partitions that the job names."""
    names = partitions_of(workload, job.index)
    return {n for n, around in enumerate(job.machine.partitions) if names is None or around & names}


def without(state: State, nodes: Iterable[int]) -> State:
    """The same cluster without some of its nodes."""
    rest = state.copy()
    rest.closed = rest.closed | set(nodes)
    return rest
