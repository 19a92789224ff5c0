"""Online runtime prediction: the estimate of a job uses only what was known when it was submitted.

A job's runtime becomes known at `submit + recorded wait (0 if unknown) + runtime`; it teaches only predictions of jobs submitted strictly
later. That is the log's own clock: in a replay where a job waits differently the predictor still learns when the log did.

`recent` blends, in log space, the recent runs of ever more alike jobs: all, same GPUs, same user, same user and request,
same user and name, and the same with the same GPUs. Each level is pulled towards the coarser one by `PRIOR_RUNS` pseudo-runs.

`gb` is gradient boosting (scikit-learn) on that prediction and the job's own columns, trained anew whenever the number of jobs has grown
by half, on jobs finished by then.
"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np

from queuewise.errors import MissingExtraError, unknown_name
from queuewise.workload.jobs import UNKNOWN, Floats, Workload

RECENT_RUNS = 10  # a level's mean forgets runs older than about this many
PRIOR_RUNS = 1.0  # weight of the coarser level, in runs
METHODS = ("recent", "gb")
FIRST_TRAINING = 200  # jobs; before that `gb` predicts as `recent`
RETRAIN_GROWTH = 1.5
MOST_TRAINING_JOBS = 20_000  # the latest ones


def predict(workload: Workload, method: str = "recent", seed: int = 0) -> Floats:
    """[J] predicted seconds, NaN while no job has finished; never above the job's request."""
    if method not in METHODS:
        raise unknown_name("predictor", method, METHODS)
    prediction = _predict_recent(workload)
    if method == "gb":
        prediction = _predict_boosted(workload, prediction, seed)
    return np.fmin(prediction, np.where(np.isnan(prediction), np.nan, workload.requested))


def known_at(workload: Workload) -> Floats:
    """[J] when the runtime of each job becomes known on the log's clock."""
    return workload.submit + np.nan_to_num(workload.recorded_wait, nan=0.0) + workload.runtime


def _predict_recent(workload: Workload) -> Floats:
    finish = known_at(workload)
    by_finish = np.argsort(finish, kind="stable").tolist()
    finish_sorted = np.sort(finish, kind="stable").tolist()
    log_runtime = np.log(np.maximum(workload.runtime, 1.0)).tolist()
    keys = _similarity_keys(workload)
    means: dict[Hashable, tuple[float, float]] = {}  # key -> (mean of log runtime, runs counted up to RECENT_RUNS)
    prediction = np.full(len(workload), np.nan)
    learned = 0
    for j, now in enumerate(workload.submit.tolist()):
        while learned < len(finish_sorted) and finish_sorted[learned] < now:
            done = by_finish[learned]
            for key in keys[done]:
                mean, runs = means.get(key, (0.0, 0.0))
                runs = min(runs + 1.0, RECENT_RUNS)
                means[key] = (mean + (log_runtime[done] - mean) / runs, runs)
            learned += 1
        if learned:
            blended, prior = 0.0, 0.0
            for key in keys[j]:
                if key in means:
                    mean, runs = means[key]
                    blended = (mean * runs + blended * prior) / (runs + prior)
                    prior = PRIOR_RUNS
            prediction[j] = blended
    return np.asarray(np.exp(prediction))


def _similarity_keys(workload: Workload) -> list[tuple[Hashable, ...]]:
    """The levels each job belongs to, coarse to fine. A level whose column is unknown is left out."""
    columns = zip(
        workload.user.tolist(), workload.job_name.tolist(), workload.size.tolist(), np.nan_to_num(workload.requested, nan=-1.0).tolist(),
        strict=True,
    )  # fmt: skip
    return [_levels(*row) for row in columns]


def _levels(user: int, name: int, size: float, requested: float) -> tuple[Hashable, ...]:
    levels: list[Hashable] = ["all", ("size", size)]
    if user != UNKNOWN:
        levels.append(("user", user))
    if requested >= 0:
        levels.append(("request", user, requested))
    if name != UNKNOWN:
        levels += [("name", user, name), ("name", user, name, size)]
    elif user != UNKNOWN:
        levels.append(("user", user, size))
    return tuple(levels)


def _predict_boosted(workload: Workload, recent: Floats, seed: int) -> Floats:
    """Block by block: train on jobs finished before the block's first submission, predict the block."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
        from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
    except ImportError:
        raise MissingExtraError("scikit-learn", "predict") from None
    features = _features(workload, recent)
    target = np.log(np.maximum(workload.runtime, 1.0))
    finish = known_at(workload)
    prediction = recent.copy()
    begin = FIRST_TRAINING
    while begin < len(workload):
        end = min(len(workload), int(np.ceil(begin * RETRAIN_GROWTH)))
        finished = np.flatnonzero(finish[:begin] < workload.submit[begin])[-MOST_TRAINING_JOBS:]
        if len(finished) >= FIRST_TRAINING // 2:
            model = HistGradientBoostingRegressor(max_iter=50, early_stopping=False, random_state=seed)
            with threadpool_limits(limits=1):  # trees this small gain nothing from threads, which stall each other on a busy machine
                model.fit(features[finished], target[finished])
                prediction[begin:end] = np.exp(model.predict(features[begin:end]))
        begin = end
    return prediction


def _features(workload: Workload, recent: Floats) -> Floats:
    """[J, features] all known at submission: none is made from the job's own runtime or wait."""
    hour = (workload.submit + workload.epoch) // 3600 % 24
    columns = [
        np.log(recent), workload.size, workload.num_tasks, workload.gpu_milli, workload.cpu_milli, workload.mem_mib, workload.requested,
        workload.user, workload.group, workload.job_name, workload.partition, workload.priority, hour,
    ]  # fmt: skip
    return np.stack([np.nan_to_num(np.asarray(column, np.float64), nan=-1.0) for column in columns], axis=1)
