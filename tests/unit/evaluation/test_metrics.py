"""Every metric against values worked out by hand on the ten-job replay of conftest.py."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.cluster.conditions import Power
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.measure import Measurement, bounded_slowdown, first_wait, jct, measure, service, slowdown, wait
from queuewise.evaluation.metrics import DISTRIBUTIONS, METRICS, all_metrics, summarise
from queuewise.evaluation.scores import SCORES
from queuewise.sim.core.schedule import CANCELLED, DONE, FAILED, KILLED, QUEUED, REJECTED, RUNNING, Schedule
from queuewise.workload.jobs import Workload

SLOWDOWNS = [1, 1, 1, 1.75, 1.15, 1, 2.6]  # of jobs 0–6; job 7 has no runtime

BY_HAND = {
    "completed": 8,
    "killed": 0,
    "rejected": 1,
    "cancelled": 0,
    "failed": 0,
    "unfinished": 1,
    "completion_rate": 0.8,
    "makespan_s": 180.0,
    "throughput_per_h": 160.0,  # 8 jobs in 1/20 h
    "gpu_utilisation": 395 / 720,  # 185 GPU-seconds on node 0, 210 on node 1
    "flops_utilisation": (185 * 15.7 + 210 * 8.1) / (180 * 2 * (15.7 + 8.1)),
    "cpu_utilisation": 455 / (8 * 180),
    "memory_utilisation": 455 / (32 * 180),
    "load_imbalance": (12.5 / 360) / (197.5 / 360),
    "stranded_gpus": (4 * 160 - 330) / 180,  # some GPU job waits from 20 to 180, when 330 GPU-seconds are used
    "queue_length_mean": (30 + 15 + 50 + 30 + 100) / 180,
    "queue_length_max": 2,
    "jain_index": 3.85**2 / (3 * (1.4**2 + 1.375**2 + 1.075**2)),  # users a, b, c
    "gini": 2 * (1.4 - 1.075) / (3 * 3.85),
    "max_over_mean_user_slowdown": 1.4 * 3 / 3.85,
    "unfair_starts": 1,
    "energy_kwh": (280 * 180 + 185 * 270 + 210 * 60 + 455 * 10) / 3.6e6,
    "energy_per_job_kwh": (280 * 180 + 185 * 270 + 210 * 60 + 455 * 10) / 3.6e6 / 8,
    "energy_cost": None,  # no price stated
    "peak_watts": 280 + 280 + 2 * 145 + 140,  # from 45 to 60: job 0, jobs 4 and 5 on halves of a GPU, and both GPUs of node 1
    "asleep_share": None,  # nobody sleeps
    "wakes": None,
    "preemptions": 1,
    "overstays": None,
    "migrations": 1,
    "deadline_misses": 2,
}


@pytest.mark.parametrize("name", BY_HAND)
def test_metric_equals_the_value_by_hand(name: str, counted: Measurement) -> None:
    expected = BY_HAND[name]
    value = METRICS[name].of(counted)
    assert value == (None if expected is None else pytest.approx(expected, rel=1e-12))


def test_every_metric_is_checked_by_hand() -> None:
    assert set(METRICS) - set(BY_HAND) == {"fragmentation"}  # test_fragmentation.py


def test_job_times(counted: Measurement) -> None:
    assert first_wait(counted).tolist() == [0, 0, 0, 30, 15, 0, 50, 0]
    assert wait(counted).tolist() == [0, 0, 0, 30, 15, 0, 80, 0]  # job 6 was stopped for 30 s
    assert jct(counted).tolist() == [100, 50, 5, 70, 115, 20, 130, 0]
    assert service(counted).tolist() == [100, 50, 5, 40, 100, 20, 50, 0]  # job 6 was off the machine for 30 s
    assert slowdown(counted).tolist() == SLOWDOWNS
    assert bounded_slowdown(counted).tolist() == [*SLOWDOWNS, 1.0]


def test_distributions(counted: Measurement) -> None:
    figures = all_metrics(counted)
    assert figures["wait_s"] == pytest.approx({"mean": 15.625, "p50": 0, "p90": 45, "p95": 62.5, "p99": 76.5, "max": 80})
    assert figures["first_wait_s"] == pytest.approx({"mean": 11.875, "p50": 0, "p90": 36, "p95": 43, "p99": 48.6, "max": 50})
    assert figures["jct_s"]["mean"] == 61.25
    assert figures["slowdown"]["mean"] == pytest.approx(9.5 / 7)
    assert figures["bounded_slowdown"]["mean"] == pytest.approx(1.3125)
    assert figures["bounded_slowdown"]["p50"] == 1.0
    assert list(DISTRIBUTIONS) == ["wait_s", "first_wait_s", "jct_s", "slowdown", "bounded_slowdown"]


def test_short_jobs_are_bounded_by_ten_seconds() -> None:
    """wait 95 s + run 5 s over the bound of 10 s: 10; a wait of 2 s with a run of 1 s stays at 1."""
    workload = Workload(
        submit=np.zeros(2), runtime=np.array([5.0, 1.0]), num_tasks=np.ones(2, np.int32), cpu_milli=np.full(2, 1000, np.int32)
    )
    start = np.array([95.0, 2.0])
    nothing, none = np.empty(0), np.empty(0, np.int32)
    schedule = Schedule(
        workload, build("c", [NodeGroup(count=1, cpus=1)]), "p", "reorder", "oracle", 0, workload.runtime, np.full(2, DONE, np.int8),
        start, start + workload.runtime, np.zeros(2, np.int32), none, none, none,
        nothing.astype(np.int64), nothing, nothing, 0.0, 0,
    )  # fmt: skip
    assert bounded_slowdown(measure(schedule)).tolist() == [10.0, 1.0]


def test_a_job_that_ends_at_its_deadline_is_in_time(ten_jobs: Schedule) -> None:
    """Job 0 ends at 100, job 1 at 50."""
    for first, missed in ((100.0, 0), (99.0, 1)):
        deadline = np.full(10, np.nan)
        deadline[:2] = first, 50.0
        late = dataclasses.replace(ten_jobs, workload=ten_jobs.workload.replace(deadline=deadline))
        assert METRICS["deadline_misses"].of(measure(late)) == missed


def test_summary_has_exactly_the_keys_of_simulate(ten_jobs: Schedule) -> None:
    summary = summarise(ten_jobs)
    assert list(summary) == [
        "policy", "jobs", "completed", "killed", "rejected", "cancelled", "failed", "unfinished", "preemptions", "makespan_s",
        "wait_s", "first_wait_s", "jct_s", "slowdown", "bounded_slowdown",
        "gpu_utilisation", "cpu_utilisation", "flops_utilisation", "load_imbalance", "completion_rate", "jain_index", "energy_kwh",
        "energy_cost", "decisions", "decision_us", "engine_s", "jobs_per_s",
    ]  # fmt: skip
    figures = all_metrics(measure(ten_jobs))
    for name in ("wait_s", "first_wait_s", "jct_s", "slowdown", "bounded_slowdown"):
        assert list(summary[name]) == ["mean", "p50", "p90", "p95", "p99", "max"]
        assert summary[name] == figures[name]
    assert (summary["jobs"], summary["jobs_per_s"]) == (10, 20.0)
    json.dumps(summary, allow_nan=False)


def test_every_job_is_counted_by_how_it_ended(ten_jobs: Schedule) -> None:
    status = np.array([DONE, KILLED, KILLED, DONE, FAILED, CANCELLED, DONE, QUEUED, REJECTED, RUNNING], np.int8)
    end = np.where(np.isin(status, (DONE, KILLED)), ten_jobs.end, np.inf)
    summary = summarise(dataclasses.replace(ten_jobs, status=status, end=end))
    counts = {name: summary[name] for name in ("completed", "killed", "rejected", "cancelled", "failed", "unfinished")}
    assert counts == {"completed": 5, "killed": 2, "rejected": 1, "cancelled": 1, "failed": 1, "unfinished": 2}
    assert sum(counts.values()) - counts["killed"] == summary["jobs"]  # killed jobs are among the completed


def test_undefined_figures_are_none_never_nan(nothing_ran: Schedule) -> None:
    bare = dataclasses.replace(nothing_ran, cluster=build("bare", [NodeGroup(count=1, cpus=2)]))
    for schedule in (nothing_ran, bare):
        figures = all_metrics(measure(schedule))
        json.dumps(figures, allow_nan=False)
        for name in ("makespan_s", "throughput_per_h", "gpu_utilisation", "energy_kwh", "jain_index", "fragmentation", "queue_length_mean"):
            assert figures[name] is None, name
        assert figures["wait_s"] == {"mean": None, "p50": None, "p90": None, "p95": None, "p99": None, "max": None}
        assert figures["rejected"] == 10


def test_no_gpu_or_open_resources_give_no_share(ten_jobs: Schedule) -> None:
    unlimited = dataclasses.replace(ten_jobs, cluster=build("open", [NodeGroup(count=2, gpus=2, kind="T4")]))
    assert METRICS["cpu_utilisation"].of(measure(unlimited)) is None
    assert METRICS["memory_utilisation"].of(measure(unlimited)) is None
    cpu_only = dataclasses.replace(ten_jobs, cluster=build("cpu", [NodeGroup(count=2, cpus=4)]))
    for name in ("gpu_utilisation", "flops_utilisation", "stranded_gpus", "fragmentation", "energy_kwh"):
        assert METRICS[name].of(measure(cpu_only)) is None, name
    assert METRICS["load_imbalance"].of(measure(cpu_only)) == pytest.approx(17.5 / 227.5)  # 245 and 210 core-seconds


def test_energy_cost_follows_the_hour_of_day(ten_jobs: Schedule) -> None:
    """The log begins 90 s before one o'clock: 73,825 J are used at price 1, the other 43,675 J at price 3."""
    power = Power(price_by_hour=(1.0, 3.0, *[1.0] * 22))
    schedule = dataclasses.replace(ten_jobs, power=power, workload=ten_jobs.workload.replace(epoch=3600.0 - 90.0))
    assert METRICS["energy_cost"].of(measure(schedule)) == pytest.approx((73_825 + 3 * 43_675) / 3.6e6)


def test_warmup_and_cooldown_leave_out_jobs_and_time(ten_jobs: Schedule) -> None:
    """20 % each: jobs 2–7 count, over 10 s (submission of job 2) to 70 s (submission of job 8)."""
    m = measure(ten_jobs, warmup=0.2, cooldown=0.2)
    assert m.rows.tolist() == [2, 3, 4, 5, 6, 7]
    assert (m.begin, m.end) == (10.0, 70.0)
    assert wait(m).tolist() == [0, 30, 15, 0, 80, 0]
    used = 60 + 5 + 12.5 + 10 + 80 + 40  # jobs 0, 2, 4, 5, 1, 3
    assert METRICS["gpu_utilisation"].of(m) == pytest.approx(used / 240)
    assert METRICS["queue_length_mean"].of(m) == pytest.approx((30 + 15 + 20) / 60)
    assert METRICS["rejected"].of(m) == 0
    assert METRICS["unfinished"].of(m) == 0
    assert METRICS["migrations"].of(m) == 1


@pytest.mark.parametrize(("warmup", "cooldown"), [(0.5, 0.5), (-0.1, 0.0), (0.0, 1.0), (float("nan"), 0.0)])
def test_trimming_everything_is_refused(ten_jobs: Schedule, warmup: float, cooldown: float) -> None:
    with pytest.raises(InputError, match="leave no jobs to count"):
        measure(ten_jobs, warmup=warmup, cooldown=cooldown)


def test_overtaking_agrees_with_the_quadratic_definition() -> None:
    from queuewise.evaluation.overtaking import count_overtaken

    rng = np.random.default_rng(5)
    for _ in range(20):
        submit = np.sort(rng.integers(0, 40, 60)).astype(np.float64)
        start = submit + rng.integers(0, 30, 60)
        size = rng.integers(0, 6, 60)
        later = (submit[None, :] > submit[:, None]) & (size[None, :] >= size[:, None]) & (start[None, :] < start[:, None])
        assert count_overtaken(submit, start, size) == later.any(axis=1).sum()


def test_the_docs_list_every_metric_with_its_unit_and_function(repository: Path) -> None:
    text = (repository / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = {
        name: (unit, function) for name, unit, function in re.findall(r"^\| `(\w+)` \| ([^|]+) \|.*\| `([\w.]+)` \|$", text, re.MULTILINE)
    }
    expected: dict[str, tuple[str, Any]] = {name: (metric.unit, metric.of) for name, metric in METRICS.items()}
    expected |= {name: (unit, values) for name, (values, unit) in DISTRIBUTIONS.items()}
    assert {name: unit for name, (unit, _) in rows.items()} == {name: unit for name, (unit, _) in expected.items()}
    for name, (_, function) in rows.items():
        of = expected[name][1]
        assert f"{of.__module__.rpartition('.')[2]}.{of.__name__}" == function
    scores = re.findall(r"^\| `(\w+)` \| [^|]+ \| (lower|higher) \|$", text, re.MULTILINE)
    assert dict(scores) == {name: "higher" if term.higher_is_better else "lower" for name, term in SCORES.items()}
