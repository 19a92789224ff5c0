"""What a planner expects: how long jobs may take, and which jobs may come. Nothing of it is known only later.

With exact runtimes (`oracle`) or other estimates that somebody gives, these are what jobs take. Otherwise runtimes are drawn:
log-normal, so that one job in ten is below `predicted_low` and one in ten above `predicted_high`, and for a running job longer
than it has run. Jobs to come are those that followed the same time of day on one of the last days, with their own estimates.
All candidates of a decision see the same draws.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from queuewise.policies.estimating import history_on
from queuewise.policies.interface import ReplayRequest
from queuewise.workload.jobs import Floats

DAY_S = 86_400.0
LAST_DAYS = 14  # of which one is drawn for the jobs to come
MOST_TO_COME = 64  # jobs
DRAWN = ("requested", "predicted")  # kinds of estimates that say too little to be taken for the truth
TENTH = float(ndtri(0.9))


class Expected(NamedTuple):
    """One draw of the future."""

    runtime: Floats  # [known jobs]
    coming: NDArray[np.int64]  # rows of earlier jobs that are expected to come again
    coming_submit: Floats
    coming_runtime: Floats


class Futures:
    def __init__(self, request: ReplayRequest) -> None:
        self._workload, self._estimate, self._seed = request.workload, request.estimate, request.seed
        self._draws = request.estimates.partition(":")[0] in DRAWN
        if self._draws:
            columns = history_on(request.workload, request.cluster, ("predicted", "predicted_low", "predicted_high"), request.seed)
            low, high = np.maximum(columns["predicted_low"], 1.0), np.maximum(columns["predicted_high"], 1.0)
            self._mean, self._spread = np.log(low * high) / 2, np.maximum(np.log(high / low) / (2 * TENTH), 0.05)
            self._most = np.where(np.isnan(request.workload.requested), np.inf, np.maximum(request.workload.requested, 1.0))

    @property
    def is_exact(self) -> bool:
        """Whether runtimes are not drawn."""
        return not self._draws

    def draw(self, now: float, arrived: int, known: NDArray[np.int64], worked: Floats, number: int, sample: int) -> Expected:
        """One future of the known jobs, which have run for `worked` seconds. Decision `number`, draw `sample`."""
        rng = np.random.default_rng((self._seed, number, sample))
        runtime = self._runtime(rng, known, worked)
        first_day = float(self._workload.submit[0])
        days = int(min((now - first_day) // DAY_S, LAST_DAYS))
        if days < 1:
            none = np.zeros(0)
            return Expected(runtime, np.zeros(0, np.int64), none, none)
        shift = DAY_S * int(rng.integers(1, days + 1))
        first = int(np.searchsorted(self._workload.submit, now - shift, side="right"))
        coming = np.arange(first, min(first + MOST_TO_COME, arrived))
        return Expected(runtime, coming, self._workload.submit[coming] + shift, self._runtime(rng, coming, np.zeros(len(coming))))

    def _runtime(self, rng: np.random.Generator, jobs: NDArray[np.int64], worked: Floats) -> Floats:
        if not self._draws:
            return np.maximum(self._estimate[jobs], worked)
        mean, spread = self._mean[jobs], self._spread[jobs]
        below = ndtr((np.log(np.maximum(worked, 1.0)) - mean) / spread) * (worked > 0)
        level = np.minimum(below + rng.random(len(jobs)) * (1.0 - below), 1.0 - 1e-9)
        drawn = np.exp(mean + spread * ndtri(np.maximum(level, 1e-9)))
        return np.maximum(np.minimum(drawn, self._most[jobs]), worked)
