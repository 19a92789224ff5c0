"""Policies that are a user's function: what it is shown, computed from the runs of the reference ("Own policies" of docs/policies.md)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

DAY = 86400.0


@dataclass
class Own:
    """A score, and a function that holds jobs back if there is one. Both are called with the arguments that they name."""

    name: str
    score: Callable[..., float]
    hold: Callable[..., float] | None = None
    params: Sequence[float] = ()
    state: list[float] = field(default_factory=list)

    def ask(self, sim: Any, function: Callable[..., float], j: int) -> float:
        shown: dict[str, Callable[[], Any]] = {
            "job": lambda: job_record(sim, j),
            "now": lambda: sim.now,
            "queue": lambda: queue_record(sim),
            "cluster": lambda: cluster_record(sim),
            "user": lambda: user_record(sim, int(sim.workload.user[j])),
            "params": lambda: self.params,
            "state": lambda: self.state,
        }
        code = function.__code__
        return function(*(shown[name]() for name in code.co_varnames[: code.co_argcount]))


def job_record(sim: Any, j: int) -> SimpleNamespace:
    w = sim.workload
    return SimpleNamespace(
        index=j, submit=float(w.submit[j]), estimate=float(sim.facts[""].r[j]), width=float(w.size[j]), user=int(w.user[j]),
        num_tasks=float(w.num_tasks[j]),
    )  # fmt: skip


def queue_record(sim: Any) -> SimpleNamespace:
    waiting = [job_record(sim, j) for queue in sim.queues for j in queue]
    return SimpleNamespace(length=len(waiting), oldest_submit=min((job.submit for job in waiting), default=sim.now))


def cluster_record(sim: Any) -> SimpleNamespace:
    return SimpleNamespace(running_jobs=float(len(sim.running)), free_gpus=sum(free_milli(sim)) / 1000)


def free_milli(sim: Any) -> list[int]:
    """Free GPU milli of each node. Nothing is free on closed ones."""
    return [0 if n in sim.state.closed else sum(gpus) for n, gpus in enumerate(sim.state.gpus)]


def user_record(sim: Any, user: int) -> SimpleNamespace:
    if user < 0:
        return SimpleNamespace(running_jobs=0.0, running_width=0.0, recent_work=0.0)
    running = [job for job in sim.running.values() if sim.workload.user[job.index] == user]
    runs = [(job, job.stay.start, sim.now, width(job, job.stay.pieces)) for job in running]
    runs += [(sim.jobs[j], start, end, per_task(sim.jobs[j]) * sum(tasks for _, tasks, _ in pieces))
             for j, start, end, pieces in sim.runs if sim.workload.user[j] == user]  # fmt: skip
    rate = math.log(2.0) / DAY
    work = sum(held / rate * (math.exp(-(sim.now - end) * rate) - math.exp(-(sim.now - start) * rate)) for _, start, end, held in runs)
    held_now = sum(width(job, job.stay.pieces) for job in running)
    return SimpleNamespace(running_jobs=float(len(running)), running_width=held_now, recent_work=work)


def per_task(job: Any) -> float:
    return float(job.demand.gpu or job.demand.cpu or 1000) / 1000


def width(job: Any, pieces: Any) -> float:
    return per_task(job) * float(sum(piece.tasks for piece in pieces))
