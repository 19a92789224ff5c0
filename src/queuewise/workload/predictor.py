"""Online runtime prediction: the estimate of a job uses only what was known when it was submitted.

A job's runtime becomes known at `submit + recorded wait + runtime`; it teaches only predictions of jobs submitted strictly later. That is
the log's own clock: in a replay where a job waits differently the predictor still learns when the log did. Waits that the log does not
record are filled in by the caller (`policies.estimating`); inf is one that never ends.

`recent` blends, in log space, the recent runs of ever more alike jobs: all, same size, same user, that user's share of the time
asked for, same user and request, same user and name, and the same with the same size. Each level is pulled towards the coarser ones by
`PRIOR_RUNS` pseudo-runs.

`gb` is gradient boosting (scikit-learn) of the logarithm of runtimes on that prediction, the job's own columns and its user's history
(`runtime_features`), trained again after every fifth more jobs or RETRAIN_JOBS, on the latest jobs that have ended by then.
"""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import unknown_name
from queuewise.workload.estimates import PREDICTORS
from queuewise.workload.jobs import UNKNOWN, Floats, Workload
from queuewise.workload.prediction_cache import kept
from queuewise.workload.runtime_features import runtime_features

# Two runs of a user, as in Tsafrir, Etsion & Feitelson (IEEE TPDS 18(6), 2007), had the least error of 2, 3, 5 and 10 on KTH-SP2 and on the
# first 40,000 jobs of HPC2N. Venus, which names no users, preferred more; there the levels that mix users decide.
RECENT_RUNS = 2
MIXED_RUNS = 20  # of levels that mix users
PRIOR_RUNS = 0.3  # weight of the coarser levels, in runs
RATIO = "ratio"  # first part of levels that remember runtime ÷ request
MIXED = ("all", "size")  # first parts of levels that mix users
FIRST_TRAINING = 200  # jobs; before that `gb` predicts as `recent`
RETRAIN_GROWTH, RETRAIN_JOBS = 1.2, 5_000  # whichever comes first
MOST_TRAINING_JOBS = 30_000  # the latest ones
SEEDS = 2**32  # that the boosting tells apart
BOOSTING = {
    "max_iter": 40,
    "learning_rate": 0.1,
    "max_leaf_nodes": 15,
    "min_samples_leaf": 40,
    "l2_regularization": 1.0,
    "early_stopping": False,
}


def predict(workload: Workload, method: str = "gb", seed: int = 0) -> Floats:
    """[J] predicted seconds, NaN while no job has finished; never above the job's request."""
    if method not in PREDICTORS:
        raise unknown_name("predictor", method, PREDICTORS)
    if method == "gb":
        prediction = kept(workload, _about_boosting(seed), lambda: _predict_boosted(workload, _predict_recent(workload), seed))
    else:
        prediction = _predict_recent(workload)
    return np.fmin(prediction, np.where(np.isnan(prediction), np.nan, workload.requested))


def known_at(workload: Workload) -> Floats:
    """[J] when the runtime of each job becomes known on the log's clock."""
    return workload.submit + workload.recorded_wait + workload.runtime


def _predict_recent(workload: Workload) -> Floats:
    finish = known_at(workload)
    by_finish = np.argsort(finish, kind="stable").tolist()
    finish_sorted = np.sort(finish, kind="stable").tolist()
    log_runtime = np.log(np.maximum(workload.runtime, 1.0)).tolist()
    log_request = np.log(np.maximum(workload.requested, 1.0)).tolist()
    levels = [_levels(*row) for row in zip(*(column.tolist() for column in _traits(workload)), strict=True)]
    means: dict[Hashable, tuple[float, float]] = {}  # level -> (mean of log runtime, or of its distance from log request; runs)
    prediction = np.full(len(workload), np.nan)
    learned = 0
    for j, now in enumerate(workload.submit.tolist()):
        while learned < len(finish_sorted) and finish_sorted[learned] < now:
            done = by_finish[learned]
            for level in levels[done]:
                mean, runs = means.get(level, (0.0, 0.0))
                runs = min(runs + 1.0, MIXED_RUNS if level[0] in MIXED else RECENT_RUNS)
                value = log_runtime[done] - log_request[done] if level[0] == RATIO else log_runtime[done]
                means[level] = (mean + (value - mean) / runs, runs)
            learned += 1
        if learned:
            blended, prior = 0.0, 0.0
            for level in levels[j]:
                if level in means:
                    mean, runs = means[level]
                    value = mean + log_request[j] if level[0] == RATIO else mean
                    blended = (value * runs + blended * prior) / (runs + prior)
                    prior = PRIOR_RUNS
            prediction[j] = blended
    return np.asarray(np.exp(prediction))


def _traits(workload: Workload) -> tuple[NDArray[Any], ...]:
    return workload.user, workload.job_name, workload.size, np.nan_to_num(workload.requested, nan=-1.0)


def _levels(user: int, name: int, size: float, requested: float) -> tuple[tuple[Hashable, ...], ...]:
    """The levels a job belongs to, coarse to fine. A level whose column is unknown is left out."""
    levels: list[tuple[Hashable, ...]] = [("all",), ("size", size)]
    if user != UNKNOWN:
        levels += [("user", user), ("user", user, size)]
    if requested >= 0:
        levels += [(RATIO, user), ("request", user, requested)]
    if name != UNKNOWN:
        levels += [("name", user, name), ("name", user, name, size)]
    return tuple(levels)


def _about_boosting(seed: int) -> str:
    """All that predictions by boosting depend on beside the jobs: the code of this module and of its features, and the library."""
    import sklearn

    code = "".join(Path(file).read_text(encoding="utf-8") for file in (__file__, str(runtime_features.__code__.co_filename)))
    return f"gb {seed} {sklearn.__version__} {code}"


def _predict_boosted(workload: Workload, recent: Floats, seed: int) -> Floats:
    """Block by block: train on jobs finished before the block's first submission, predict the block."""
    from sklearn.ensemble import HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    features = runtime_features(workload, recent)
    target = np.log(np.maximum(workload.runtime, 1.0))
    finish = known_at(workload)
    prediction = recent.copy()
    begin = FIRST_TRAINING
    while begin < len(workload):
        end = min(len(workload), int(np.ceil(begin * RETRAIN_GROWTH)), begin + RETRAIN_JOBS)
        finished = np.flatnonzero(finish[:begin] < workload.submit[begin])[-MOST_TRAINING_JOBS:]
        if len(finished) >= FIRST_TRAINING // 2:
            model = HistGradientBoostingRegressor(**BOOSTING, random_state=seed % SEEDS)
            with threadpool_limits(limits=1):  # trees this small gain nothing from threads, which stall each other on a busy machine
                model.fit(features[finished], target[finished])
                prediction[begin:end] = np.exp(model.predict(features[begin:end]))
        begin = end
    return prediction
