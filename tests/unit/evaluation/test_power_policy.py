"""`power@cheapest` uses the least energy of all orders and backfills, at a makespan of at most 1.1 times the best."""

from __future__ import annotations

import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.evaluation.energy import energy_kwh
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import makespan
from queuewise.policies import parse_policy, simulate
from queuewise.policies.ordering import ORDERS
from queuewise.workload.models import generate

OTHERS = ("fcfs", "sjf+greedy@fastest", *(f"{order}{filling}" for order in ORDERS for filling in ("+none", "+greedy", "+easy")))
SLEEPING = Conditions.model_validate({"power": {"sleep_after_s": 600.0, "wake_s": 60.0, "sleep_watts": 10.0}})


@pytest.mark.parametrize(("load", "conditions"), [(0.8, PERFECT), (0.2, SLEEPING)], ids=["busy", "sleeping"])
def test_power_uses_the_least_energy(load: float, conditions: Conditions) -> None:
    jobs, cluster = generate("hetero", 2000, 0, load=load), load_cluster("hetero56")

    def figures(policy: str) -> tuple[float, float]:
        m = measure(simulate(jobs, cluster, policy, estimates="oracle", conditions=conditions))
        return energy_kwh(m) or 0.0, makespan(m) or 0.0

    own = figures("power@cheapest")
    others = {policy: figures(policy) for policy in OTHERS}
    assert own[0] < min(energy for energy, _ in others.values())
    assert own[1] <= 1.1 * min(seconds for _, seconds in others.values())


def test_power_fills_gaps() -> None:
    assert parse_policy("power").backfill == "greedy"
    assert parse_policy("power+easy").backfill == "easy"
    assert parse_policy("power@cheapest").placement == "cheapest"
