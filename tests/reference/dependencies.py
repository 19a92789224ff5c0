"""Who waits for whom ("Dependencies" of the normative page)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from queuewise.workload.dependencies import AFTER, AFTERANY, AFTEROK
from queuewise.workload.jobs import Workload


@dataclass
class Requirement:
    on: int
    kind: int
    delay: float
    met: float = math.nan  # when it counts as met, NaN until then


class Waiting:
    """What every job waits for. `release(job, time)` and `cancel(job)` are what it has done to jobs."""

    def __init__(self, workload: Workload, heeded: bool, release: Callable[[int, float], None], cancel: Callable[[int], None]) -> None:
        self.release, self.cancel = release, cancel
        self.needs: list[list[Requirement]] = [[] for _ in range(len(workload))]
        self.standing_by: set[int] = set()
        self.in_vain: set[int] = set()
        self.begun: set[int] = set()
        d = workload.dependencies
        for job, on, kind, delay in zip(d.job.tolist(), d.on.tolist(), d.kind.tolist(), d.delay.tolist(), strict=True):
            if heeded:
                self.needs[job].append(Requirement(on, kind, delay))

    def may_queue(self, job: int, now: float) -> bool:
        """The job arrives: whether it is queued at once."""
        if job in self.in_vain:
            self.cancel(job)
            return False
        times = [need.met for need in self.needs[job]]
        if any(math.isnan(time) for time in times):
            self.standing_by.add(job)
            return False
        ready = max(times, default=-math.inf)
        if ready > now:
            self.release(job, ready)
        return ready <= now

    def started(self, job: int, now: float) -> None:
        if job not in self.begun:
            self.begun.add(job)
            self.meet(job, now, {AFTER})

    def ended(self, job: int, now: float, *, well: bool) -> None:
        kinds = {AFTERANY} | ({AFTEROK} if well else set()) | (set() if job in self.begun else {AFTER})
        lost = [] if well else [k for k, needs in enumerate(self.needs) if any(n.on == job and n.kind == AFTEROK for n in needs)]
        self.in_vain |= set(lost)
        falling = [k for k in lost if k in self.standing_by]
        self.standing_by -= set(lost)
        self.meet(job, now, kinds)
        for k in falling:
            self.cancel(k)

    def meet(self, job: int, now: float, kinds: set[int]) -> None:
        for k, needs in enumerate(self.needs):
            for need in needs:
                if need.on == job and need.kind in kinds:
                    need.met = now + need.delay
            if k in self.standing_by and not any(math.isnan(need.met) for need in needs):
                self.standing_by.remove(k)
                self.release(k, max(need.met for need in needs))
