"""Estimates: what each kind knows, what is filled in, and that the predictor never looks ahead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from queuewise.errors import InputError
from queuewise.workload import Workload
from queuewise.workload.estimates import Estimates, default_estimates, estimate, estimate_error
from queuewise.workload.jobs import constant
from queuewise.workload.predictor import known_at, predict


def jobs(runtime: list[float], *, submit: list[float] | None = None, **columns: Any) -> Workload:
    """Jobs that did not wait, unless told otherwise."""
    num = len(runtime)
    return Workload(
        submit=np.array(submit if submit is not None else np.arange(num) * 1000.0),
        runtime=np.array(runtime),
        num_tasks=np.ones(num, np.int32),
        gpu_milli=constant(1000, num, np.int32),
        **{"recorded_wait": np.zeros(num)} | columns,
    )


def people(num: int, seed: int) -> Workload:
    """Users with named jobs, each name with a runtime of its own; half of the jobs waited."""
    rng = np.random.default_rng(seed)
    user = rng.integers(0, 5, num).astype(np.int32)
    name = (user * 4 + rng.integers(0, 4, num)).astype(np.int32)
    runtime = np.exp(rng.normal(4 + name % 7, 0.3))
    return Workload(
        submit=np.cumsum(rng.exponential(60, num)),
        runtime=runtime,
        num_tasks=rng.choice([1, 2, 4], num).astype(np.int32),
        gpu_milli=constant(1000, num, np.int32),
        user=user,
        users=tuple("abcde"),
        job_name=name,
        requested=np.where(rng.random(num) < 0.5, runtime * 5, np.nan),
        recorded_wait=np.where(rng.random(num) < 0.5, rng.exponential(300, num), 0.0),
    )


def test_oracle_is_the_runtime() -> None:
    workload = jobs([3.0, 4.0])
    assert estimate(workload, "oracle").values.tolist() == [3.0, 4.0]


def test_a_missing_request_is_the_largest_one_so_far() -> None:
    requested = np.array([np.nan, 10.0, np.nan, 70.0, np.nan, 30.0, np.nan])
    found = estimate(jobs([1.0] * 7, requested=requested), "requested")
    assert found.values.tolist() == [86_400, 10, 10, 70, 70, 30, 70]
    assert found.filled == 4
    assert "4 of 7 jobs" in found.note


def test_later_requests_change_no_estimate() -> None:
    workload = people(300, 3)
    changed = workload.replace(requested=np.where(np.arange(300) < 150, workload.requested, workload.requested * 100))
    before, after = (estimate(one, "requested").values for one in (workload, changed))
    assert np.array_equal(before[:150], after[:150])
    assert not np.array_equal(before[150:], after[150:])


def test_requested_without_any_request_is_refused() -> None:
    with pytest.raises(InputError, match="no job of workload has a requested time"):
        estimate(jobs([1.0, 2.0]), "requested")


def test_what_is_known_by_default() -> None:
    log = jobs([1.0, 2.0])
    assert default_estimates(log) == "predicted"
    assert default_estimates(log.replace(generated=True)) == "oracle"
    assert default_estimates(log.replace(requested=np.array([np.nan, 60.0]))) == "requested"


def test_noise_is_lognormal_and_seeded() -> None:
    workload = jobs([100.0] * 20_000)
    first, again, other = (estimate(workload, "noisy:0.5", seed).values for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert np.log(first / 100).std() == pytest.approx(0.5, rel=0.03)
    assert np.median(first) == pytest.approx(100, rel=0.02)
    assert np.array_equal(estimate(workload, "noisy:0").values, workload.runtime)


@pytest.mark.parametrize(("how", "guessed"), [("oracle", False), ("requested", False), ("noisy:0.5", True), ("predicted", True)])
def test_which_estimates_are_guesses(how: str, guessed: bool) -> None:
    workload = people(30, 1)
    found = estimate(workload, how)
    assert (found.guessed, found.take(slice(3, 7)).guessed) == (guessed, guessed)
    assert found.take(np.array([4, 2])).values.tolist() == found.values[[4, 2]].tolist()


@pytest.mark.parametrize(
    "how", ["noisy", "noisy:", "noisy:-1", "noisy:x", "noisy:nan", "oracle:1", "requested:x", "predicted:magic", "orcale"]
)
def test_unknown_estimates_are_refused_with_a_hint(how: str) -> None:
    with pytest.raises(InputError) as refusal:
        estimate(jobs([1.0]), how)
    assert refusal.value.hint


def test_error_by_hand() -> None:
    error = estimate_error(jobs([10.0, 10.0, 10.0]), Estimates(np.array([10.0, 20.0, 40.0]), 0, ""))
    assert error.mae_s == pytest.approx(40 / 3)
    assert error.median_ratio == 2
    assert error.within_2x == pytest.approx(2 / 3)


def test_runtime_is_known_after_wait_and_run() -> None:
    workload = jobs([5.0, 5.0], recorded_wait=np.array([7.0, np.inf]))
    assert known_at(workload).tolist() == [12.0, np.inf]


@pytest.mark.parametrize("how", ["predicted:recent", "predicted"])
def test_predictions_are_refused_where_nobody_knows_when_jobs_ended(how: str) -> None:
    with pytest.raises(InputError, match="does not record the waits") as refusal:
        estimate(jobs([5.0, 5.0], recorded_wait=np.array([7.0, np.nan])), how)
    assert "estimate_on" in str(refusal.value.hint)


def test_first_jobs_have_no_prediction_and_get_their_request() -> None:
    workload = jobs([500.0, 500.0, 10.0], submit=[0.0, 100.0, 200.0], requested=np.array([900.0, 800.0, 700.0]))
    assert np.isnan(predict(workload)).all()
    found = estimate(workload, "predicted")
    assert found.values.tolist() == [900, 800, 700]
    assert found.filled == 3


def test_a_job_that_finishes_at_the_very_submission_teaches_nothing_yet() -> None:
    workload = jobs([100.0, 1.0, 1.0], submit=[0.0, 100.0, 100.5])
    assert np.isnan(predict(workload)[1])
    assert predict(workload)[2] == pytest.approx(100)


def test_prediction_follows_the_same_users_same_job() -> None:
    """Two names of one user, far apart in runtime: after a few runs each is predicted by its own past."""
    runtime = [10.0, 1000.0] * 10
    name = np.array([0, 1] * 10, np.int32)
    user = np.zeros(20, np.int32)
    predicted = predict(jobs(runtime, submit=list(np.arange(20) * 2000.0), user=user, users=("a",), job_name=name))
    assert predicted[18] == pytest.approx(10, rel=0.5)
    assert predicted[19] == pytest.approx(1000, rel=0.5)


def test_recent_runs_count_more_than_old_ones() -> None:
    runtime = [10.0] * 30 + [1000.0] * 5
    user = np.zeros(35, np.int32)
    predicted = predict(jobs(runtime, submit=list(np.arange(35) * 2000.0), user=user, users=("a",)))
    assert predicted[30] == pytest.approx(10)
    assert predicted[34] > 700


def test_requests_scale_the_prediction_of_a_user_who_always_asks_for_too_much() -> None:
    """Every job takes a tenth of what was asked; the last asks for something never asked before."""
    requested = np.array([100.0, 1000.0, 300.0, 2000.0, 5e4])
    user = np.zeros(5, np.int32)
    predicted = predict(jobs((requested / 10).tolist(), submit=list(np.arange(5) * 1e4), requested=requested, user=user, users=("a",)))
    assert predicted[4] == pytest.approx(5000, rel=0.5)


def test_prediction_is_never_above_the_request() -> None:
    workload = people(400, 0)
    predicted = predict(workload)
    known = ~np.isnan(workload.requested) & ~np.isnan(predicted)
    assert known.sum() > 100
    assert (predicted[known] <= workload.requested[known]).all()


@pytest.mark.parametrize("method", ["recent", "gb"])
def test_the_future_teaches_nothing(method: str) -> None:
    """Change every runtime that is unknown when job j is submitted: the predictions up to j stay, bit for bit."""
    workload = people(450, 1)
    before = predict(workload, method)
    for j in (150, 449):
        now = workload.submit[j]
        unknown = known_at(workload) >= now
        assert unknown[:j].any()
        changed = workload.replace(runtime=np.where(unknown, workload.runtime * 7 + 1000, workload.runtime))
        assert np.array_equal(predict(changed, method)[: j + 1], before[: j + 1], equal_nan=True)
    learned = workload.replace(runtime=np.where(known_at(workload) < workload.submit[300], workload.runtime * 7, workload.runtime))
    assert not np.array_equal(predict(learned, method)[300:], before[300:])


@pytest.mark.parametrize("how", ["predicted:recent", "predicted"])
def test_prediction_beats_requests_where_jobs_repeat(how: str) -> None:
    workload = people(1500, 2)
    asked, predicted = (estimate_error(workload, estimate(workload, kind)) for kind in ("requested", how))
    assert predicted.within_2x > 0.7
    assert predicted.mae_s < asked.mae_s / 3


def test_nothing_to_compare_without_jobs() -> None:
    with pytest.raises(InputError):
        estimate_error(jobs([]), Estimates(np.array([]), 0, ""))


def test_any_seed_predicts() -> None:
    assert np.isfinite(predict(people(600, 3), "gb", 2**70)[-300:]).all()
