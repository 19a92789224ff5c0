"""The heuristics that a found rule has to beat: all orders, with backfills, bounds on waiting and the estimates that orders may go by.

Where a job's place matters, the best of them with every placement; where jobs may be stopped, preemptive policies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product

from queuewise.cluster.spec import Cluster
from queuewise.policies.names import WISE, parse_policy
from queuewise.policies.ordering import ORDERS
from queuewise.policies.placing import PLACEMENTS
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.workload.estimates import learns_by_waits

FIRST = (WISE, "fcfs+easy", "fcfs+easy:sjf", "sjf+easy", "saf+easy~3d", "wfp3+easy", "saf+easy", "sjf+easy~3d")  # if time is short
FIRST_BY_PREDICTION = ("saf:predicted+easy:sjf:predicted~3d", "sjf:predicted+easy:sjf:predicted~3d", "saf:predicted+easy:sjf:predicted")
BACKFILLS = ("easy", "greedy", "conservative")  # from the cheapest to replay to the dearest
BOUNDS = ("", "~3d")
PREDICTED = "predicted"
# no rule of size or time; or of settings that a log does not have
LEFT_OUT = (
    "random",
    "multifactor",
    "fairshare",
    "fairtree",
    "rltune-multifactor",
)
BY_KIND = ("fastest", "cheapest")  # placements that differ from pack only where there are several kinds of GPUs
SAME_PLACEMENTS = ("best", "random")  # another name of pack, and no rule


def heuristics(estimates: str) -> list[str]:
    """All of them, the most promising first. Orders go by the estimates of the replay, and also by predictions if those are others."""
    if learns_by_waits(estimates) or estimates == "oracle":
        return list(dict.fromkeys((*FIRST, *_all(("",)))))
    return list(dict.fromkeys((*FIRST, *FIRST_BY_PREDICTION, *_all(("", f":{PREDICTED}")))))


def _all(by: Iterable[str]) -> Iterator[str]:
    for backfill, estimates, bound, order in product(BACKFILLS, by, BOUNDS, (name for name in ORDERS if name not in LEFT_OUT)):
        if not estimates or order not in ("fcfs", "lcfs"):  # these do not look at runtimes
            yield f"{order}{estimates}+{backfill}{bound}"


def preemptive_policies(estimates: str) -> list[str]:
    """Policies that stop jobs."""
    return [name for name, rule in PREEMPTIVE.items() if not rule.oracle or estimates == "oracle"]


def placed(names: Sequence[str], cluster: Cluster) -> list[str]:
    """These policies with every other placement."""
    others = [name for name in PLACEMENTS if name not in SAME_PLACEMENTS and (len(cluster.kinds) > 1 or name not in BY_KIND)]
    return [f"{name}@{other}" for name in names for other in others if other != parse_policy(name).placement]
