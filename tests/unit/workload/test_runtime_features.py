"""The numbers that runtimes are predicted from, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from queuewise.workload.jobs import Workload
from queuewise.workload.runtime_features import ENDED, FEATURES, RUNNING, UNKNOWN_VALUE, WAITING, runtime_features


def jobs(submit: list[float], runtime: list[float], wait: list[float], user: list[int], requested: float = 1000.0) -> Workload:
    ones = np.ones(len(submit), np.int32)
    return Workload(
        submit=np.array(submit),
        runtime=np.array(runtime),
        recorded_wait=np.array(wait),
        requested=np.full(len(submit), requested),
        num_tasks=ones,
        gpu_milli=ones * 1000,
        cpu_milli=ones * 0,
        mem_mib=ones * 0,
        user=np.array(user, np.int32),
        users=("ann", "bob"),
    )


def features(workload: Workload, row: int) -> dict[str, float]:
    found = runtime_features(workload, np.full(len(workload), math.e))
    assert found.shape == (len(workload), len(FEATURES))
    return dict(zip(FEATURES, found[row].tolist(), strict=True))


def test_first_job_of_a_user_has_no_history() -> None:
    first = features(jobs([0.0], [10.0], [0.0], [0]), 0)
    assert first["log_recent"] == 1.0
    assert first["log_request"] == pytest.approx(math.log(1000))
    assert first["log_area"] == pytest.approx(math.log(1000))
    for name in ("user_last", "user_mean", "user_last_share", "twin_last", "since_end", "since_submission", "previous", "previous_twin"):
        assert first[name] == UNKNOWN_VALUE
    assert (first["user_runs"], first["twin_runs"], first["active"], first["running"]) == (0, 0, 0, 0)


def test_runs_that_have_ended_are_known_by_their_length() -> None:
    """Ann's runs of 100 and 400 s have ended when she submits again at 1000; bob's has nothing to do with it."""
    last = features(jobs([0.0, 10.0, 20.0, 1000.0], [100.0, 50.0, 400.0, 1.0], [0.0, 0.0, 80.0, 0.0], [0, 1, 0, 0]), 3)
    assert last["user_last"] == pytest.approx(math.log(400))
    assert last["user_second_last"] == pytest.approx(math.log(100))
    assert last["user_third_last"] == UNKNOWN_VALUE
    assert last["user_mean"] == pytest.approx(math.log(200))
    assert last["user_spread"] == pytest.approx(math.log(2))
    assert last["user_last_share"] == pytest.approx(math.log(0.4))
    assert last["user_runs"] == last["twin_runs"] == 2
    assert last["since_end"] == pytest.approx(math.log1p(500))
    assert last["since_submission"] == pytest.approx(math.log1p(980))
    assert last["previous"] == pytest.approx(math.log(400))
    assert last["previous_state"] == ENDED
    assert last["active"] == 0


def test_runs_that_go_on_are_known_by_how_long_they_have_lasted() -> None:
    """At 100, one of ann's jobs has run for 90 s and another waits: their lengths are still unknown."""
    last = features(jobs([0.0, 50.0, 100.0], [500.0, 500.0, 1.0], [10.0, 70.0, 0.0], [0, 0, 0]), 2)
    assert last["user_last"] == UNKNOWN_VALUE
    assert (last["active"], last["running"], last["active_twins"]) == (2, 1, 2)
    assert last["longest_running"] == last["longest_twin"] == pytest.approx(math.log1p(90))
    assert last["previous_state"] == WAITING
    second = features(jobs([0.0, 50.0, 100.0], [500.0, 500.0, 1.0], [10.0, 70.0, 0.0], [0, 0, 0]), 1)
    assert second["previous"] == pytest.approx(math.log(40))
    assert second["previous_state"] == RUNNING


def test_a_run_that_ends_at_the_very_submission_is_still_going_on() -> None:
    last = features(jobs([0.0, 100.0], [100.0, 1.0], [0.0, 0.0], [0, 0]), 1)
    assert last["user_runs"] == 0
    assert last["previous_state"] == RUNNING
