"""The heuristics that a found rule has to beat: all orders, with backfills, bounds on waiting and the estimates that orders may go by."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from queuewise.policies.names import WISE
from queuewise.policies.ordering import ORDERS
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


def heuristics(estimates: str) -> list[str]:
    """All of them, the most promising first. Orders go by the estimates of the replay, and also by predictions if those are others."""
    if learns_by_waits(estimates) or estimates == "oracle":
        return list(dict.fromkeys((*FIRST, *_all(("",)))))
    return list(dict.fromkeys((*FIRST, *FIRST_BY_PREDICTION, *_all(("", f":{PREDICTED}")))))


def _all(by: Iterable[str]) -> Iterator[str]:
    for backfill, estimates, bound, order in product(BACKFILLS, by, BOUNDS, (name for name in ORDERS if name not in LEFT_OUT)):
        if not estimates or order not in ("fcfs", "lcfs"):  # these do not look at runtimes
            yield f"{order}{estimates}+{backfill}{bound}"
