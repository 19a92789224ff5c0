"""Nodes that fail, are drained and come back ("Outages" of the normative page)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, Protocol

from queuewise.cluster.conditions import Conditions, Outage
from reference.clock import FAILURE, REPAIR, Clock
from reference.dependencies import Waiting
from reference.state import Job, State

FAILED = 7  # the number of queuewise.sim.schedule, which this must not import


class Simulation(Protocol):
    clock: Clock
    state: State
    conditions: Conditions
    jobs: list[Job]
    running: dict[int, Job]
    queues: list[set[int]]
    status: Any
    waiting: Waiting

    @property
    def now(self) -> float: ...
    def queue_of(self, job: Job) -> int: ...
    def stop(self, job: Job, *, saved: bool) -> None: ...
    def decide_after_events(self) -> None: ...


def expect(sim: Simulation, n: int, outages: list[Outage]) -> None:
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
            sim.clock.call_at(time, REPAIR, n, lambda: reopen(sim, n))
        else:
            sim.clock.call_at(time, FAILURE, n, lambda kind=after: close(sim, n, kind))  # type: ignore[misc]


def close(sim: Simulation, n: int, kind: str) -> None:
    sim.state.closed |= {n}
    if kind == "fail":
        for j in sorted(sim.running):
            if n in sim.jobs[j].nodes:
                fail(sim, sim.jobs[j])
    sim.decide_after_events()


def fail(sim: Simulation, job: Job) -> None:
    sim.stop(job, saved=False)
    if not sim.conditions.requeue:
        sim.queues[sim.queue_of(job)].remove(job.index)
        sim.status[job.index] = FAILED
        job.changes += 1
        sim.waiting.ended(job.index, sim.now, well=False)


def reopen(sim: Simulation, n: int) -> None:
    sim.state.closed -= {n}
    sim.decide_after_events()


def worst(outages: Iterable[Outage]) -> str | None:
    """What a node suffers while all of these last."""
    kinds = {outage.kind for outage in outages}
    return "fail" if "fail" in kinds else "drain" if kinds else None
