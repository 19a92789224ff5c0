"""The clock by which predictions learn: recorded waits, and one reference replay where there are none."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.policies import estimating, simulate
from queuewise.policies.estimating import estimate_on, with_waits
from queuewise.sim.core import engine
from queuewise.workload import Workload
from queuewise.workload.estimates import estimate
from queuewise.workload.jobs import constant
from queuewise.workload.predictor import predict

CLUSTER = load_cluster("1x2:V100-16")


def workload(**columns: Any) -> Workload:
    """Two GPUs: job 0 takes both for 100 s, job 1 waits for it, job 2 can never run, job 3 comes before job 1 has ended, job 4 after."""
    base: dict[str, Any] = {
        "submit": np.array([0.0, 10.0, 20.0, 130.0, 160.0]),
        "runtime": np.array([100.0, 50.0, 5.0, 1.0, 1.0]),
        "num_tasks": np.array([2, 2, 3, 1, 1], np.int32),
        "gpu_milli": constant(1000, 5, np.int32),
    }
    return Workload(**base | columns)


def test_missing_waits_are_those_of_the_reference_replay() -> None:
    jobs = workload()
    replay = simulate(jobs, CLUSTER, "fcfs+easy", estimates="oracle")
    assert with_waits(jobs, CLUSTER).recorded_wait.tolist() == (replay.start - jobs.submit).tolist() == [0, 90, np.inf, 20, 0]


def test_recorded_waits_stay() -> None:
    recorded = np.array([3.0, np.nan, 7.0, np.nan, np.nan])
    assert with_waits(workload(recorded_wait=recorded), CLUSTER).recorded_wait.tolist() == [3, 90, 7, 20, 0]
    full = workload(recorded_wait=np.arange(5.0))
    assert with_waits(full, CLUSTER) is full


def test_a_job_teaches_when_it_has_ended_in_the_reference_replay() -> None:
    """Without a wait job 1 would have ended at 60; it ends at 150, after job 3 was submitted and before job 4 was."""
    found = predict(with_waits(workload(), CLUSTER))
    assert np.isnan(found[:3]).all()
    assert found[3] == pytest.approx(100)
    assert found[4] < 100


def test_estimates_of_a_replay_go_by_that_clock() -> None:
    jobs = workload()
    known = estimate(with_waits(jobs, CLUSTER), "predicted").values
    assert simulate(jobs, CLUSTER, "sjf+easy", estimates="predicted").estimate.tolist() == known.tolist()
    assert estimate_on(jobs, CLUSTER, "oracle").values.tolist() == jobs.runtime.tolist()


def test_the_reference_replay_is_made_once_and_forgotten_with_its_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    replays = []

    def counted(*arguments: Any, **options: Any) -> Any:
        replays.append(arguments)
        return original(*arguments, **options)

    original = engine.simulate
    monkeypatch.setattr(engine, "simulate", counted)
    jobs = workload()
    for how in ("predicted", "predicted", "predicted:recent"):
        estimate_on(jobs, CLUSTER, how)
    assert len(replays) == 1
    estimate_on(jobs, load_cluster("2x2:V100-16"), "predicted")
    assert len(replays) == 2
    replays.clear()
    gc.collect()  # what earlier tests left behind
    kept = len(estimating._waits)
    del jobs
    gc.collect()
    assert len(estimating._waits) == kept - 1
