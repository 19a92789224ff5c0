"""What Slurm's two scheduling loops do (`slurm` under "Backfill" of the normative page)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from reference.backfill import Hold, Moment, Plan, Simulation, end_of, view_of
from reference.state import Job, State

NAME = "slurm"
DEFAULTS = {
    "bf_interval": 30.0, "bf_max_job_test": 500.0, "bf_window": 1440.0, "bf_resolution": 60.0,
    "default_queue_depth": 100.0, "sched_interval": 60.0,
}  # fmt: skip


class Cluster(Simulation, Protocol):
    def is_overdue(self, j: int) -> bool: ...


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

    # --- the main loop

    def begin_main_loop(self, now: float) -> float:
        """How many jobs are tried."""
        if now >= self.last_full + self.interval("sched_interval"):
            self.last_full = now
            return math.inf
        return self.values["default_queue_depth"]

    # --- the backfill loop

    def backfill_is_due(self, now: float) -> bool:
        return now >= self.last_backfill + self.interval("bf_interval")

    def backfill(self, sim: Cluster, waiting: list[Job]) -> None:
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

    def earliest(self, sim: Cluster, plan: Plan, job: Job) -> Hold | None:
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


def without(state: State, nodes: Iterable[int]) -> State:
    """The same cluster without some of its nodes."""
    rest = state.copy()
    rest.closed = rest.closed | set(nodes)
    return rest
