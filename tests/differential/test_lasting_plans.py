"""Conservative plans of which a pass takes over what still holds: the engine agrees with the reference, which plans everything again.

Most estimates are exact, so that plans last. Some jobs end early or late, and newcomers arrive behind all others or among them.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import seeds, tries
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies.simulation import Simulation
from queuewise.sim.backfill import SETTLED, STANDING, UNSETTLED
from queuewise.workload.jobs import Workload
from strategies import DISPATCHES, Case, column

CLUSTERS = {
    "cores": build("cores", [NodeGroup(1, cpus=6.0)]),
    "memory": build("memory", [NodeGroup(1, cpus=6.0, mem_gib=4.0)]),
    "nodes": build("nodes", [NodeGroup(1, gpus=3, kind="T4"), NodeGroup(2, gpus=2, kind="T4")]),
    "mixed": build("mixed", [NodeGroup(2, gpus=2, kind="T4", cpus=4.0, mem_gib=4.0), NodeGroup(1, cpus=4.0, mem_gib=4.0)]),
    "partitions": build("partitions", [NodeGroup(2, gpus=2, kind="T4", partition=name) for name in ("north", "south")]),
}
POLICIES = ("fcfs", "fcfs", "sjf", "ljf", "saf")  # static orders: others are planned again at every decision
PLACEMENTS = ("", "@spread", "@random", "@first", "@pack:0")


def jobs_for(name: str, submit: list[float], length: list[float], shape: list[int], where: list[int]) -> Workload:
    """`shape` is a number from 0 to 11 that decides what a job asks for."""
    number = np.array(shape, np.int32)
    gpus = np.zeros_like(number) if CLUSTERS[name].num_gpus == 0 else np.array([0, 500, 1000, 2000], np.int32)[number % 4]
    if name in ("nodes", "partitions"):
        gpus = np.maximum(gpus, 500)
    cpu = np.where(gpus == 0, 1000 + 1000 * (number % 3), 0)
    return Workload(
        np.cumsum(submit),
        np.array(length),
        1 + number // 4,
        gpus,
        cpu.astype(np.int32),
        np.where((number % 5 > 2) & (gpus == 0) & (name != "nodes"), 700, 0).astype(np.int32),
        partition=np.array(where, np.int32) if name == "partitions" else np.full(len(number), -1, np.int32),
        partitions=("north", "south"),
    )


@st.composite
def lasting_cases(draw: st.DrawFn) -> Case:
    name = draw(st.sampled_from(sorted(CLUSTERS)))
    num = draw(st.integers(2, 24))

    def numbers(*values: float) -> list[float]:
        return draw(st.lists(st.sampled_from(values), min_size=num, max_size=num))

    shape = draw(st.lists(st.integers(0, 11), min_size=num, max_size=num))
    where = draw(st.lists(st.integers(0, 1), min_size=num, max_size=num))
    workload = jobs_for(name, numbers(0.0, 0.0, 1.0, 2.0), numbers(1.0, 2.0, 3.0, 3.0, 7.0, 0.1, 0.0), shape, where)
    wrong = draw(st.sampled_from(((1.0,), (1.0,) * 9 + (2.0,), (1.0,) * 9 + (0.5,), (1.0, 2.0), (0.5, 1.0, 3.0))))
    estimate = workload.runtime * column(draw, num, wrong, np.float64)
    drawn = draw(st.integers(0, 9)), draw(st.booleans()), draw(st.booleans())
    return Case(workload, CLUSTERS[name], estimate, *drawn)


@tries(800)
@given(lasting_cases(), st.sampled_from(POLICIES), st.sampled_from(PLACEMENTS), st.sampled_from(DISPATCHES))
def test_plans_that_last(case: Case, order: str, placement: str, dispatch: str) -> None:
    assert_same_schedule(case, f"{order}+conservative{placement}", dispatch)


@pytest.mark.parametrize("name", CLUSTERS)
@pytest.mark.parametrize("seed", seeds(6))
def test_longer_queues(name: str, seed: int) -> None:
    """Seed 0: all estimates are exact; 1: one job in twenty ends early; 2: or late; 3: most are wrong; 4 and 5: the same, as guesses."""
    rng = np.random.default_rng(seed)
    num = 70
    gaps, lengths = rng.choice([0.0, 0.0, 1.0, 2.0], num), rng.choice([1.0, 2.0, 3.0, 3.3, 7.0, 20.0], num)
    workload = jobs_for(name, list(gaps), list(lengths), list(rng.integers(0, 12, num)), list(rng.integers(0, 2, num)))
    factors = ((1.0,), (1.0,) * 19 + (2.0,), (1.0,) * 19 + (0.5,), (0.5, 1.0, 2.0, 4.0))[seed - 2 * (seed > 3)]
    case = Case(workload, CLUSTERS[name], workload.runtime * rng.choice(factors, num), seed, kill_at_limit=False, guessed=seed > 3)
    for order in ("fcfs", "sjf"):
        assert_same_schedule(case, f"{order}+conservative", DISPATCHES[seed % 2])


def knowledge(cluster: Cluster, submit: list[float], runtime: list[float], cores: list[int], estimate: list[float]) -> list[int]:
    """What is known of the plan after each submission."""
    tasks = np.array(cores, np.int32)
    workload = Workload(np.array(submit), np.array(runtime), tasks, np.zeros_like(tasks), np.full(len(tasks), 1000, np.int32))
    simulation = Simulation(workload, cluster, "fcfs+conservative", estimates=np.array(estimate))
    states = []
    for time in submit:
        simulation.run(until=time)
        states.append(int(simulation._state.plan_state[0]))
    return states


def test_when_a_plan_stands() -> None:
    """Six cores, which job 0 takes until 10. From job 2 on there is a plan; job 1 alone needs none."""
    submit = [0.0, 1.0, 2.0, 3.0, 11.0]
    cores = [6, 6, 2, 2, 1]
    exact = [10.0, 5.0, 5.0, 5.0, 5.0]
    one = CLUSTERS["cores"]
    assert knowledge(one, submit, exact, cores, exact) == [UNSETTLED, UNSETTLED, STANDING, STANDING, STANDING]
    late = [10.5, *exact[1:]]  # job 0 is overdue until 10.5, so job 1 starts later than planned
    assert knowledge(one, [*submit[:4], 10.2], late, cores, exact)[3:] == [STANDING, SETTLED]
    early = [9.0, *exact[1:]]
    assert knowledge(one, [*submit[:4], 9.5], early, cores, exact)[3:] == [STANDING, UNSETTLED]
    assert knowledge(one, submit, exact, cores, [10.0, 5.0, 0.0, 5.0, 5.0])[2:4] == [SETTLED, SETTLED]  # no length: several instants
