"""Lower bounds: by hand where the relaxation is exact, and below every schedule otherwise."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from queuewise.cluster.spec import NodeGroup, build
from queuewise.evaluation.bounds import lower_bounds
from queuewise.evaluation.fluid import serve
from queuewise.evaluation.measure import measure
from queuewise.evaluation.scores import score_values
from queuewise.workload.jobs import Workload
from queuewise.workload.transform import make_elastic
from stand_in import busy_days, line_up, small_cluster


def one_core_jobs(submit: list[float], runtime: list[float], cores: list[int]) -> Workload:
    num = len(submit)
    return Workload(
        submit=np.array(submit, dtype=np.float64),
        runtime=np.array(runtime, dtype=np.float64),
        num_tasks=np.array(cores, dtype=np.int32),
        cpu_milli=np.full(num, 1000, dtype=np.int32),
    )


def test_shortest_remaining_work_by_hand() -> None:
    """A of 10 s at 0, B of 2 s at 3, C of 6 s at 4: A 0–3, B 3–5, C 5–11, A 11–18 (at 4 C has 6 left against A's 7)."""
    submit, work = np.array([0.0, 3.0, 4.0]), np.array([10.0, 2.0, 6.0])
    end, mean_busy = serve(submit, work, work, True)
    assert end.tolist() == [18.0, 5.0, 11.0]
    assert mean_busy[0] == pytest.approx((3 * 1.5 + 7 * 14.5) / 10)


def test_service_by_a_fixed_key_by_hand() -> None:
    """The same with fixed keys 10, 2, 6 and one job without work, after a pause."""
    submit, work = np.array([0.0, 3.0, 4.0, 50.0, 50.0]), np.array([10.0, 2.0, 6.0, 0.0, 1.0])
    end, _ = serve(submit, work, work, False)
    assert end.tolist() == [18.0, 5.0, 11.0, 50.0, 51.0]


def test_one_machine_is_exact() -> None:
    """Jobs that need the whole machine, all there at once: shortest first is optimal and the bound meets it."""
    bounds = lower_bounds(one_core_jobs([0, 0, 0], [4, 1, 2], [2, 2, 2]), build("c", [NodeGroup(count=1, cpus=2)]))
    assert bounds.jct == pytest.approx((1 + 3 + 7) / 3)
    assert bounds.wait == pytest.approx((0 + 1 + 3) / 3)
    assert bounds.makespan_s == 7.0


def test_an_idle_cluster_leaves_only_the_runtimes() -> None:
    bounds = lower_bounds(one_core_jobs([0, 100], [4, 30], [1, 1]), build("c", [NodeGroup(count=1, cpus=64)]))
    assert (bounds.jct, bounds.wait, bounds.bsld, bounds.makespan_s) == (17.0, 0.0, 1.0, 130.0)


def test_no_order_of_small_instances_beats_the_bounds() -> None:
    """Every list schedule of five jobs on three cores, all permutations: an optimum is among them for equal submissions."""
    rng = np.random.default_rng(11)
    for _ in range(15):
        runtime, cores = rng.integers(1, 60, 5).astype(float), rng.integers(1, 4, 5)
        bounds = lower_bounds(one_core_jobs([0] * 5, runtime.tolist(), cores.tolist()), build("c", [NodeGroup(count=1, cpus=3)]))
        best_jct, best_bsld = np.inf, np.inf
        for order in itertools.permutations(range(5)):
            free = np.zeros(3)
            end = np.zeros(5)
            for j in order:
                free.sort()
                end[j] = free[cores[j] - 1] + runtime[j]
                free[: cores[j]] = end[j]
            best_jct = min(best_jct, end.mean())
            best_bsld = min(best_bsld, np.maximum(1, end / np.maximum(runtime, 10)).mean())
        assert bounds.jct is not None
        assert bounds.bsld is not None
        assert bounds.jct <= best_jct + 1e-9
        assert bounds.bsld <= best_bsld + 1e-9
        assert bounds.jct >= runtime.mean()


def test_bounds_hold_on_a_busy_gpu_cluster_and_say_something() -> None:
    schedule = line_up(busy_days(1500), small_cluster(), "line")
    values = score_values(measure(schedule))
    bounds = lower_bounds(schedule.workload, schedule.cluster)
    for name in ("jct", "wait", "bsld"):
        bound, value = bounds.for_score(name), values[name]
        assert bound is not None
        assert value is not None
        assert 0 <= bound <= value
    assert bounds.jct is not None
    assert bounds.jct >= schedule.workload.runtime.mean()
    assert bounds.for_score("util") is None


def test_faster_kinds_shorten_the_bound_and_leave_waits_open() -> None:
    cluster = build("mix", [NodeGroup(count=1, gpus=4, kind="V100-16"), NodeGroup(count=1, gpus=4, kind="T4")], speeds={"V100-16": 2.0})
    jobs = Workload(submit=np.zeros(1), runtime=np.array([100.0]), num_tasks=np.ones(1, np.int32), gpu_milli=np.full(1, 1000, np.int32))
    bounds = lower_bounds(jobs, cluster)
    assert bounds.jct == 50.0
    assert bounds.wait is None


def test_nothing_to_bound() -> None:
    open_cores = build("open", [NodeGroup(count=1, gpus=1, kind="T4")])
    assert lower_bounds(one_core_jobs([0], [5], [1]), open_cores).jct is None
    assert lower_bounds(one_core_jobs([], [], []), open_cores).jct is None


def test_elastic_jobs_have_no_bounds() -> None:
    jobs = busy_days(20)
    assert lower_bounds(jobs, small_cluster()).jct is not None
    elastic = make_elastic(jobs, 0.5, 1.0, 2.0, "linear", 0)
    assert set(dataclasses.astuple(lower_bounds(elastic, small_cluster()))) == {None}


def test_bounds_do_not_depend_on_when_the_clock_begins() -> None:
    """Shaken submissions can be before 0."""
    jobs = one_core_jobs([0.0, 3.0, 4.0, 30.0], [10.0, 2.0, 60.0, 20.0], [2, 1, 3, 4])
    cluster = build("flat", [NodeGroup(1, cpus=4)])
    before = jobs.replace(submit=jobs.submit - 1e6)
    ours, theirs = lower_bounds(before, cluster), lower_bounds(jobs, cluster)
    assert ours.bsld == pytest.approx(theirs.bsld)
    assert ours.jct == pytest.approx(theirs.jct)
    assert ours.makespan_s == pytest.approx(theirs.makespan_s)
