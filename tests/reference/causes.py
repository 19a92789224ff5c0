"""Why jobs wait ("Causes of waits" of docs/metrics.md): asked of every waiting job after every decision."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from typing import Any

from reference.simulator import Simulator
from reference.state import Job

RESERVING = ("easy", "easy-strict", "conservative", "slurm")
FITS = "fits"


class CauseWatcher(Simulator):
    """Notes how long each job waited for what, but for the time in which its nodes wake."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seconds: dict[int, dict[str, float]] = defaultdict(lambda: defaultdict(float))
        self.causes: dict[int, str] = {}
        self.since = -math.inf

    def decide(self) -> None:
        for j, cause in self.causes.items():
            self.seconds[j][cause] += self.now - self.since
        super().decide()
        self.since = self.now
        self.causes = self.all_causes()

    def all_causes(self) -> dict[int, str]:
        self.state.time = self.now
        found = {j: self.hardware_cause(self.jobs[j]) for queue in self.queues for j in queue}
        for queue in self.queues:
            blocked = any(found[j] not in (FITS, "quota") for j in queue)
            overdue = self.oldest_overdue(queue) is not None
            for j in queue:
                if found[j] == FITS:
                    found[j] = "bound" if overdue else self.policy_cause(blocked)
        pending = (j for j in range(len(self.jobs)) if self.status[j] == 0 and self.workload.submit[j] <= self.now)
        return found | dict.fromkeys(pending, "dependency")

    def policy_cause(self, blocked: bool) -> str:
        reserves = self.policy.backfill in RESERVING or self.policy.depth is not None
        return "reservation" if reserves and (blocked or self.policy.backfill == "slurm") else "priority"

    def hardware_cause(self, job: Job) -> str:
        if self.quotas and not self.quotas.in_order([job.index]):
            return "quota"
        if self.placer.fits(job, self.state):
            return FITS
        least = job.sizes[-1]
        if sum(least.demand.all_slots(self.state)) >= least.num_tasks:
            return "power" if self.budget < math.inf and self.placer._has_room(least, self.state) else "fragmentation"
        open_state = replace(self.state, closed=frozenset(), time=-math.inf)
        if sum(least.demand.all_slots(open_state)) >= least.num_tasks:
            return "closed"
        return self.shortage(least)

    def shortage(self, job: Job) -> str:
        demand, state = job.demand, self.state
        nodes = [n for n, cap in enumerate(job.caps) if cap and n not in state.closed and not demand.is_barred(n, self.now)]
        free = {
            "gpus": (sum(sum(state.gpus[n]) for n in nodes), demand.gpu),
            "cores": (sum(state.cpu[n] for n in nodes), demand.cpu),
            "memory": (sum(state.mem[n] for n in nodes), demand.mem),
        }
        shares = {name: have / (asked * job.num_tasks) for name, (have, asked) in free.items() if asked}
        least = min(shares, key=lambda name: shares[name])
        return least if shares[least] < 1 else "fragmentation"
