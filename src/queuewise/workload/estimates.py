"""Runtime estimates: what a policy may know of a runtime. Four kinds, named by one string each.

`oracle` the true runtime · `requested` what the user asked for · `noisy:σ` the runtime times a lognormal factor of that σ ·
`predicted` learns from finished jobs only: by gradient boosting (`predicted:gb`, the same), or from recent runs (`predicted:recent`).
Semantics of missing requests: docs/simulator.md, "What a policy knows".
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.plain_numbers import decimal_number

DEFAULT_REQUEST_S = 86_400.0  # of jobs without a request that no job with one precedes
KINDS = ("oracle", "requested", "noisy", "predicted")
PREDICTORS = ("gb", "recent")  # the first is the default


@dataclass(frozen=True, eq=False)
class Estimates:
    """One estimate a job, how many of them had nothing to go by, and a sentence on what was done about those."""

    values: Floats  # [J] seconds, >= 0
    filled: int = 0
    note: str = ""
    guessed: bool = False  # a job that runs longer is expected to go on; otherwise, to end at any moment

    def take(self, rows: slice | NDArray[np.int64]) -> Estimates:
        """Those of some of the jobs."""
        return replace(self, values=self.values[rows])


@dataclass(frozen=True)
class EstimateError:
    """How far estimates are from the runtimes."""

    mae_s: float  # mean absolute error
    median_ratio: float  # median of estimate ÷ runtime, both at least 1 s
    within_2x: float  # share of jobs with a ratio in [1/2, 2]


def estimate(workload: Workload, how: str, seed: int = 0) -> Estimates:
    """Estimates for every job. `how`: oracle, requested, noisy:σ, predicted or predicted:recent (both need recorded waits of all jobs)."""
    kind, argument = check_estimate(how)
    check_known(workload, how)
    if kind == "noisy":
        return _noisy(workload, float(argument), seed)
    if kind == "predicted":
        from queuewise.workload.predictor import predict

        if np.isnan(workload.recorded_wait).any():
            raise InputError(
                f"estimate {how!r} learns when jobs end, and the log does not record the waits of all jobs",
                hint="use queuewise.policies.estimating.estimate_on, which takes them from a replay on a cluster",
            )
        return _predicted(workload, predict(workload, argument or PREDICTORS[0], seed))
    if kind == "oracle":
        return Estimates(workload.runtime, 0, "true runtimes")
    return _requested(workload)


def check_known(workload: Workload, how: str) -> None:
    """Raise an InputError if estimates by request are wanted of a log without requests."""
    if how == "requested" and len(workload) and np.isnan(workload.requested).all():
        raise InputError(
            f"no job of {workload.name} has a requested time, so estimates by request would all be equal",
            hint="use predicted, oracle or noisy:SIGMA, or leave estimates out",
        )


def default_estimates(workload: Workload) -> str:
    """What policies know if nobody says: requests where the log has some, predictions where it has none, runtimes in a model without."""
    if not len(workload) or not np.isnan(workload.requested).all():
        return "requested"
    return "oracle" if workload.generated else "predicted"


def is_constant(values: Floats) -> bool:
    """Whether estimates say nothing: they are equal for all jobs."""
    return len(values) > 1 and bool((values == values[0]).all())


def check_estimate(how: str) -> tuple[str, str]:
    """The kind and the argument in the name of estimates."""
    kind, _, argument = how.partition(":")
    if kind not in KINDS:
        raise unknown_name("estimate", how, (*KINDS, "predicted:recent"))
    if kind == "noisy" and decimal_number(argument) in (None, np.inf):
        raise InputError(f"estimate {how!r} needs a number σ ≥ 0 after the colon", hint="for example noisy:0.5")
    if kind == "predicted" and argument not in ("", *PREDICTORS):
        raise unknown_name("predictor", argument, PREDICTORS)
    if kind in ("oracle", "requested") and argument:
        raise InputError(f"estimate {how!r}: {kind} takes no argument", hint=f"write {kind!r}")
    return kind, argument


def learns_by_waits(how: str) -> bool:
    """Whether estimates of this name need to know when jobs waited how long."""
    return how.partition(":")[0] == "predicted"


def estimate_error(workload: Workload, estimates: Estimates) -> EstimateError:
    """The error of `estimates` over all jobs."""
    if not len(workload):
        raise InputError("a workload without jobs has no estimate error")
    ratio = np.maximum(estimates.values, 1.0) / np.maximum(workload.runtime, 1.0)
    return EstimateError(
        mae_s=float(np.abs(estimates.values - workload.runtime).mean()),
        median_ratio=float(np.median(ratio)),
        within_2x=float(((ratio >= 0.5) & (ratio <= 2.0)).mean()),
    )


def _noisy(workload: Workload, sigma: float, seed: int) -> Estimates:
    factor = np.random.default_rng(seed).lognormal(0.0, sigma, len(workload))
    return Estimates(workload.runtime * factor, 0, f"runtime × lognormal(σ={sigma:g})", guessed=True)


def _requested(workload: Workload) -> Estimates:
    missing = np.isnan(workload.requested)
    filled = int(missing.sum())
    if not filled:
        return Estimates(workload.requested, 0, "requested times")
    largest = np.fmax.accumulate(workload.requested)  # so far; NaN before the first
    values = np.where(missing, np.where(np.isnan(largest), DEFAULT_REQUEST_S, largest), workload.requested)
    given = f"the largest request before theirs, or {DEFAULT_REQUEST_S:g} s where there is none"
    return Estimates(values, filled, f"{filled} of {len(workload)} jobs without a request are given {given}")


def _predicted(workload: Workload, prediction: Floats) -> Estimates:
    """Jobs before any other has finished have no prediction (NaN): they get their request, filled in as `requested` does."""
    unknown = np.isnan(prediction)
    filled = int(unknown.sum())
    values = np.where(unknown, _requested(workload).values, prediction)
    note = f"{filled} of {len(workload)} jobs came before anything could be learned and are given their request"
    return Estimates(values, filled, note, guessed=True)
