"""Orders: who goes first. One entry in ORDERS each; the least score goes first, ties to the lower job index.

A *fixed* order scores all jobs once; a *live* one (its score depends on the waiting time) is a branch of `score_live`. Formulas follow
docs/simulator.md to the operation, so that ties fall as in the reference. r estimate, n size, s submission, w waiting time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import unknown_name
from queuewise.policies.account_shares import account_tree, static_priority
from queuewise.policies.known import Jobs
from queuewise.sim import queue
from queuewise.sim.core.rules import Order, scoring_function
from queuewise.sim.placement.placement_rules import mix
from queuewise.workload.jobs import Floats

SEXP, LEXP, HRRN, WFP3, UNICEP, POWER, AGED, RLTUNE_MULTIFACTOR = range(8)  # first number of `params` of live orders
HALF_AREA_S = 3_600.0  # after this wait, `aged` counts half the area
LONGEST_AGE_S, FULL_SIZE = 43_200.0, 160.0  # of `rltune-multifactor`
PATIENCE_S = 86_400.0  # after this wait `power` serves by age
ALMOST_ONE = np.log2(1.0 + 1e-15)  # stands for log2 of one processor, so that dividing by it is defined


@dataclass(frozen=True)
class OrderRule:
    formula: str
    source: str
    fixed: Callable[[Jobs], Floats] | None = None
    live: int = -1  # branch of score_live
    fair: int = queue.FIXED  # branch of sim/queue/fair_orders.py
    uses_predictions: bool = False  # it looks at Jobs.predicted

    def make(self, jobs: Jobs) -> Order:
        if self.fair != queue.FIXED:
            base = static_priority(jobs) if self.fair == queue.MULTIFACTOR else np.zeros(len(jobs))
            return Order(fixed=base, fair=self.fair, accounts=account_tree(jobs))
        if self.fixed is not None:
            return Order(fixed=np.ascontiguousarray(self.fixed(jobs), np.float64))
        return Order(function=score_live, params=np.array([float(self.live)]))


def _random(jobs: Jobs) -> Floats:
    with np.errstate(over="ignore"):
        numbers = jobs.index.astype(np.uint64) + np.uint64(jobs.seed & 0xFFFFFFFFFFFFFFFF)
        mixed: NDArray[np.uint64] = getattr(mix, "py_func", mix)(numbers)
    return (mixed >> np.uint64(11)).astype(np.float64)


_FOLKLORE = "folklore"
_CARASTAN = "Carastan-Santos & de Camargo, SC 2017"
_TANG = "Tang et al., CLUSTER 2009"

ORDERS: dict[str, OrderRule] = {
    "fcfs": OrderRule("s", _FOLKLORE, lambda jobs: jobs.submit),
    "lcfs": OrderRule("−s", _FOLKLORE, lambda jobs: -jobs.submit),
    "sjf": OrderRule("r", _FOLKLORE, lambda jobs: jobs.estimate),
    "ljf": OrderRule("−r", _FOLKLORE, lambda jobs: -jobs.estimate),
    "smallest": OrderRule("n", _FOLKLORE, lambda jobs: jobs.size),
    "largest": OrderRule("−n", _FOLKLORE, lambda jobs: -jobs.size),
    "saf": OrderRule("r·n", "smallest area first", lambda jobs: jobs.estimate * jobs.size),
    "laf": OrderRule("−r·n", "largest area first", lambda jobs: -(jobs.estimate * jobs.size)),
    "sexp": OrderRule("(w + r) / n", "smallest expansion first", live=SEXP),
    "lexp": OrderRule("−(w + r) / n", "largest expansion first", live=LEXP),
    "srf": OrderRule("r / n", "smallest ratio first", lambda jobs: jobs.estimate / jobs.size),
    "lrf": OrderRule("−r / n", "largest ratio first", lambda jobs: -(jobs.estimate / jobs.size)),
    "hrrn": OrderRule("−(w + r) / r", "highest response ratio next; Brinch Hansen 1971", live=HRRN),
    "wfp3": OrderRule("−(w / r)³·n", _TANG, live=WFP3),
    "unicep": OrderRule("−w / (log2(n)·r)", _TANG, live=UNICEP),
    "f1": OrderRule(
        "log10(r)·n + 870·log10(s)", _CARASTAN, lambda jobs: np.log10(jobs.at_least_a_second) * jobs.size + 870 * jobs.log_submit
    ),
    "f2": OrderRule("√r·n + 25600·log10(s)", _CARASTAN, lambda jobs: np.sqrt(jobs.estimate) * jobs.size + 25600 * jobs.log_submit),
    "f3": OrderRule("r·n + 6.86e6·log10(s)", _CARASTAN, lambda jobs: jobs.estimate * jobs.size + 6.86e6 * jobs.log_submit),
    "f4": OrderRule("r·√n + 5.3e5·log10(s)", _CARASTAN, lambda jobs: jobs.estimate * np.sqrt(jobs.size) + 5.3e5 * jobs.log_submit),
    "priority": OrderRule("−priority", "the log's own priorities", lambda jobs: -jobs.priority),
    "edf": OrderRule("deadline", "earliest deadline first; Liu & Layland 1973", lambda jobs: np.nan_to_num(jobs.deadline, nan=np.inf)),
    "qssf": OrderRule("predicted·n", "Hu et al. (Helios), SC 2021", lambda jobs: jobs.predicted * jobs.size, uses_predictions=True),
    "power": OrderRule("r·n·watts; oldest first once w ≥ 1 day", "cheapest energy first: implies greedy backfill", live=POWER),
    "aged": OrderRule("r·n / (1 + w / 3600)", "smallest area first, less by age: the order of `wise`", live=AGED),
    "rltune-multifactor": OrderRule("−1000·(w / 12 h + 1 − n / 160)", "RLTune's order 12", live=RLTUNE_MULTIFACTOR),
    "fairshare": OrderRule("effective usage / share, by user and account", "Slurm's classic fair share", fair=queue.FAIRSHARE),
    "fairtree": OrderRule("−rank of the user in the tree of accounts", "Slurm's Fair Tree; Cox & Morrison 2014", fair=queue.FAIRTREE),
    "multifactor": OrderRule("−Σ weight·factor: age, fair share, size, …", "Slurm's priority/multifactor", fair=queue.MULTIFACTOR),
    "drf": OrderRule("greatest share of GPUs, CPU or memory that the user holds", "Ghodsi et al., NSDI 2011", fair=queue.DRF),
    "random": OrderRule("a hash of seed and job", "a random feasible job: implies greedy backfill", _random),
}


def order_rule(name: str) -> OrderRule:
    if name not in ORDERS:
        raise unknown_name("order", name, ORDERS)
    return ORDERS[name]


@scoring_function
def score_live(facts: Any, pending: Any, number: int, now: float, outlook: Any, users: Any, params: Any, out: Any) -> None:
    """Scores of the live orders; params[0] says which."""
    which = int(params[0])
    for i in range(number):
        job = facts[pending[i]]
        wait = now - job.submit
        r1 = max(job.estimate, 1.0)
        if which == SEXP:
            out[i] = (wait + job.estimate) / job.width
        elif which == LEXP:
            out[i] = -((wait + job.estimate) / job.width)
        elif which == HRRN:
            out[i] = -((wait + r1) / r1)
        elif which == WFP3:
            quotient = wait / r1
            out[i] = -(quotient * quotient * quotient * job.width)
        elif which == UNICEP:
            out[i] = -wait / (max(np.log2(job.width), ALMOST_ONE) * r1) if wait > 0.0 else 0.0
        elif which == AGED:
            out[i] = r1 * job.width / (1.0 + wait / HALF_AREA_S)
        elif which == RLTUNE_MULTIFACTOR:
            out[i] = -1000.0 * (wait / LONGEST_AGE_S + (1.0 - job.width / FULL_SIZE))
        elif which == POWER:
            out[i] = job.submit - 1e18 if wait >= PATIENCE_S else job.estimate * job.width * job.watts
