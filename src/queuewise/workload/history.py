"""What is known of a job and its user when the job is submitted: columns for policies' own functions.

All of it goes by the log's clock: a run is known from `submit + recorded wait + runtime` on (predictor.py).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from queuewise.workload.estimates import estimate
from queuewise.workload.jobs import UNKNOWN, Floats, Workload
from queuewise.workload.predictor import known_at

HISTORY = ("predicted", "predicted_low", "predicted_high", "user_mean", "user_spread", "user_gap")
LAST_RUNS = 5  # of a user
ERRORS = 2000  # of the last predictions, by which quantiles go
FIRST_ERRORS = 20  # before that, errors of up to FIRST_SPREAD
FIRST_SPREAD = 10.0 ** (1 / 0.8)  # a tenth of the prediction at one job in ten
REFRESH = 50  # ended jobs after which quantiles are computed again

History = Mapping[str, Floats]  # some of the columns above, [J] each; and `index`, positions in the log, if they are not 0, 1, 2, …
NO_HISTORY: History = MappingProxyType({})


def history_of(workload: Workload, columns: Collection[str], seed: int = 0) -> History:
    """These columns of a workload that records the wait of every job."""
    found: dict[str, Floats] = {}
    wanted = set(columns)
    if wanted & {"predicted", "predicted_low", "predicted_high"}:
        found["predicted"] = estimate(workload, "predicted", seed).values
    if wanted & {"predicted_low", "predicted_high"}:
        found["predicted_low"], found["predicted_high"] = prediction_quantiles(workload, found["predicted"], (0.1, 0.9)).T
    if wanted & {"user_mean", "user_spread"}:
        found["user_mean"], found["user_spread"] = _last_runs(workload)
    if "user_gap" in wanted:
        found["user_gap"] = _gaps(workload)
    return found


def _ends_before(workload: Workload, learn: Callable[[int], None]) -> Iterator[int]:
    """Every job in order of submission, after `learn` was called with all jobs whose runtimes were known strictly before."""
    known = known_at(workload)
    by_end = np.argsort(known, kind="stable")
    learned = 0
    for j, now in enumerate(workload.submit.tolist()):
        while learned < len(by_end) and known[by_end[learned]] < now:
            learn(int(by_end[learned]))
            learned += 1
        yield j


def prediction_quantiles(workload: Workload, predicted: Floats, levels: Sequence[float]) -> Floats:
    """[J, levels] what so many jobs stay below: the prediction times quantiles of runtime ÷ prediction of jobs that have ended.

    They are calibrated as the log goes on (conformal prediction): an error counts from when its job has ended.
    """
    ratio = np.maximum(workload.runtime, 1.0) / np.maximum(predicted, 1.0)
    errors: deque[float] = deque(maxlen=ERRORS)
    number, refresh_at = 0, FIRST_ERRORS
    factors = FIRST_SPREAD ** (2 * np.asarray(levels) - 1)
    found = np.empty((len(workload), len(levels)))

    def learn(j: int) -> None:
        nonlocal number
        errors.append(float(ratio[j]))
        number += 1

    for j in _ends_before(workload, learn):
        if number >= refresh_at:
            factors = np.quantile(np.array(errors), levels)
            refresh_at = number + REFRESH
        found[j] = predicted[j] * factors
    most = np.where(np.isnan(workload.requested), np.inf, np.maximum(workload.requested, predicted))
    return np.fmin(found, most[:, None])


def _last_runs(workload: Workload) -> tuple[Floats, Floats]:
    """[J] mean and standard deviation of the runtimes of the user's last runs; the request, filled in, and 0 before the first."""
    runs: dict[int, deque[float]] = {}
    mean, spread = estimate(workload, "requested").values.copy(), np.zeros(len(workload))

    def learn(j: int) -> None:
        runs.setdefault(int(workload.user[j]), deque(maxlen=LAST_RUNS)).append(float(workload.runtime[j]))

    for j in _ends_before(workload, learn):
        user = int(workload.user[j])
        if user != UNKNOWN and user in runs:
            mean[j], spread[j] = np.mean(runs[user]), np.std(runs[user])
    return mean, spread


def _gaps(workload: Workload) -> Floats:
    """[J] seconds since the user's last submission, inf for the first and for unknown users."""
    order = np.lexsort((np.arange(len(workload)), workload.user))
    gap = np.full(len(workload), np.inf)
    same = (workload.user[order[1:]] == workload.user[order[:-1]]) & (workload.user[order[1:]] != UNKNOWN)
    gap[order[1:][same]] = (workload.submit[order[1:]] - workload.submit[order[:-1]])[same]
    return gap
