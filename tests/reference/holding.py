"""Jobs that a policy's own function keeps from starting ("Holds" of the normative page)."""

from __future__ import annotations

import math
from typing import Protocol

from reference.clock import WAKE, Clock
from reference.own import Own
from reference.state import Job

SHORTEST_HOLD = 0.001  # seconds


class Simulation(Protocol):
    clock: Clock
    dispatch: str
    jobs: list[Job]
    queues: list[set[int]]
    committed: list[int | None]
    loops: object

    @property
    def now(self) -> float: ...
    def is_overdue(self, j: int) -> bool: ...
    def decide_after_events(self) -> None: ...


class Holds:
    def __init__(self, sim: Simulation, own: Own | None) -> None:
        self.sim, self.own = sim, own
        self.until: dict[int, float] = {}

    @property
    def after_every_start(self) -> bool:
        """Whether jobs that wait are asked about again once a job has started. Slurm's loops run to their ends."""
        return self.own is not None and self.own.hold is not None and self.sim.loops is None

    def held(self, q: int) -> set[int]:
        """The held jobs of a queue."""
        return {j for j in self.sim.queues[q] if self.until.get(j, -math.inf) > self.sim.now}

    def ask(self) -> None:
        """Ask of every waiting job how long it must not start."""
        sim, own = self.sim, self.own
        if own is None or own.hold is None:
            return
        for q, queue in enumerate(sim.queues):
            for j in sorted(queue):
                answer = own.ask(sim, own.hold, j)
                committed = sim.dispatch == "commit" and sim.committed[q] == j
                if committed or sim.is_overdue(j):
                    self.until.pop(j, None)
                elif not sim.now < self.until.get(j, -math.inf) < math.inf:
                    self.until[j] = sim.now + answer if answer >= SHORTEST_HOLD else -math.inf
                if self.until.get(j, -math.inf) > sim.now:
                    sim.jobs[j].pin = None

    def wake_later(self) -> None:
        """Decide again when the first of the jobs that are held for a time may start."""
        sim = self.sim
        first = min((self.until[j] for q in range(len(sim.queues)) for j in self.held(q)), default=math.inf)
        if first < math.inf:
            sim.clock.call_at(first, WAKE, 0, lambda: sim.decide_after_events() if self.waits_for(first) else None)

    def waits_for(self, time: float) -> bool:
        return any(self.until.get(j) == time for queue in self.sim.queues for j in queue)
