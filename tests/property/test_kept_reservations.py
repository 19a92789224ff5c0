"""Conservative backfill keeps its word: with exact estimates and `fcfs` nobody starts later than at the first reservation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from effort import tries
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import QUEUED
from queuewise.workload import load_workload
from queuewise.workload.jobs import Floats, Workload

PLACEMENTS = ("pack", "first", "spread", "random", "fgd", "pack:0")  # of these a freer machine never turns a job away
times = st.sampled_from((0.0, 0.0, 1.0, 2.0, 3.0, 5.0, 7.0, 11.0))


@st.composite
def gangs(draw: st.DrawFn) -> Workload:
    """Shares, whole GPUs and gangs, many of them of no length."""
    gaps = st.sampled_from((0.0, 0.0, 1.0, 2.0))
    kinds = st.sampled_from((500, 1000, 1000, 2000, 3000))
    rows = draw(st.lists(st.tuples(gaps, times, st.sampled_from((1, 1, 2, 3)), kinds), min_size=1, max_size=24))
    gap, runtime, tasks, milli = (np.array(column) for column in zip(*rows, strict=True))
    return Workload(np.cumsum(gap), runtime, tasks.astype(np.int32), milli.astype(np.int32))


clusters = st.lists(st.integers(1, 4), min_size=2, max_size=4).map(
    lambda sizes: build("sizes", [NodeGroup(1, gpus=gpus, kind="T4") for gpus in sizes])
)


def first_reservations(workload: Workload, cluster: Cluster, policy: str) -> Floats:
    """[J] the start that each job was promised when it was first planned, inf if it never had to wait."""
    simulation = Simulation(workload, cluster, policy, estimates="oracle")
    promised = np.full(len(workload), np.inf)
    for time in np.unique(workload.submit):
        simulation.run(until=time)
        state = simulation._state
        new = (state.status == QUEUED) & (promised == np.inf)
        promised[new] = state.pin_start[new]
    return promised


@tries(200)
@given(gangs(), clusters, st.sampled_from(PLACEMENTS))
def test_first_reservations_are_kept(workload: Workload, cluster: Cluster, placement: str) -> None:
    policy = f"fcfs+conservative@{placement}"
    promised = first_reservations(workload, cluster, policy)
    schedule = simulate(workload, cluster, policy, estimates="oracle")
    some_length = workload.runtime > 0  # a job of none may lose the instant that it was promised to one that comes before it
    assert (schedule.start <= promised)[schedule.finished & some_length].all()


@pytest.mark.parametrize("seed", range(12))
def test_later_submissions_delay_nobody(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num = 60
    workload = Workload(
        submit=np.sort(rng.integers(0, 60, num)).astype(np.float64),
        runtime=rng.integers(0, 20, num).astype(np.float64),
        num_tasks=rng.choice([1, 1, 2, 3], num).astype(np.int32),
        gpu_milli=rng.choice([1000, 1000, 2000, 3000], num).astype(np.int32),
    )
    cluster = build("sizes", [NodeGroup(1, gpus=gpus, kind="T4") for gpus in (4, 3, 2, 4)])
    policy = f"fcfs+conservative@{PLACEMENTS[seed % 3]}"
    schedule = simulate(workload, cluster, policy, estimates="oracle")
    for number in range(1, num):
        alone = simulate(workload.take(slice(0, number)), cluster, policy, estimates="oracle")
        np.testing.assert_array_equal(schedule.start[:number], alone.start)


def test_first_reservations_are_kept_on_a_piece_of_a_log(traces: Path) -> None:
    workload = load_workload(traces / "helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz").workload.take(slice(0, 2000))
    cluster = build("sizes", [NodeGroup(count, gpus=gpus, kind="V100-16") for count, gpus in ((6, 8), (8, 4), (6, 6))])
    promised = first_reservations(workload, cluster, "fcfs+conservative")
    schedule = simulate(workload, cluster, "fcfs+conservative", estimates="oracle")
    waited = promised < np.inf
    assert waited.sum() > 500
    assert (schedule.start <= promised)[waited & schedule.finished].all()
