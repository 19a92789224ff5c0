"""Virtual clusters: what is within, what borrows, what is over ("Quotas" of the normative page)."""

from __future__ import annotations

import math
from collections.abc import Iterable

from queuewise.cluster.spec import Cluster
from queuewise.workload.jobs import Workload
from reference.state import Job

NOBODYS = ""  # virtual cluster of jobs that belong to none


class Quotas:
    def __init__(self, workload: Workload, cluster: Cluster, running: dict[int, Job]) -> None:
        self.running = running
        self.guaranteed = {vc.name: round(vc.guaranteed_gpus * 1000) for vc in cluster.virtual_clusters} | {NOBODYS: 0}
        self.most = {vc.name: milli(vc.max_gpus) for vc in cluster.virtual_clusters} | {NOBODYS: math.inf}
        names = [workload.groups[g] if g >= 0 else NOBODYS for g in workload.group.tolist()]
        self.tenant = [name if name in self.guaranteed else NOBODYS for name in names]
        self.asked = (workload.num_tasks.astype(int) * workload.gpu_milli).tolist()

    def never(self, j: int) -> bool:
        return bool(self.asked[j] > self.most[self.tenant[j]])

    def in_order(self, jobs: Iterable[int]) -> list[int]:
        """Jobs within, then those that borrow, each in the order given; not those that are over."""
        within: list[int] = []
        borrowing: list[int] = []
        for j in jobs:
            name, asked = self.tenant[j], self.asked[j]
            held = sum(self.asked[r] for r in self.running if self.tenant[r] == name)
            if asked == 0 or held + asked <= self.guaranteed[name]:
                within.append(j)
            elif held + asked <= self.most[name]:
                borrowing.append(j)
        return within + borrowing


def milli(gpus: float) -> float:
    return gpus if gpus == math.inf else round(gpus * 1000)
