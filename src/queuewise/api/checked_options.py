"""Options of the functions of `queuewise`, apart from workload, cluster and policy: mistakes are reported before the work."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from queuewise.errors import InputError
from queuewise.evaluation.planning import parse_percent
from queuewise.policies.budgets import Budgets
from queuewise.policies.snapshot import Snapshot
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Floats

FLAG = re.compile(r"(?<![\w-])--([a-z][a-z0-9]*(?:-[a-z0-9]+)*)")
P = ParamSpec("P")
R = TypeVar("R")


def in_python_words(function: Callable[P, R]) -> Callable[P, R]:
    """Errors of the function name parameters where the command line has flags: window_jobs for --window-jobs."""

    @functools.wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except InputError as error:
            message, hint = (FLAG.sub(lambda flag: flag[1].replace("-", "_"), text) for text in (error.message, error.hint))
            if (message, hint) == (error.message, error.hint):
                raise
            raise InputError(message, hint=hint, where=error.where) from None

    return call


def as_count(role: str, value: Any) -> int | None:
    """A whole number above 0, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{role} is {value!r:.60}", hint=f"pass a whole number above 0, for example {role}=8")
    return int(value)


def as_seed(value: Any) -> int:
    """A whole number from 0."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise InputError(f"seed is {value!r:.60}", hint="pass a whole number from 0, for example seed=1")
    return int(value)


def as_estimates(value: Any) -> str | Floats | Estimates | None:
    """Estimates of runtimes; a list of seconds is as good as an array."""
    if value is None or isinstance(value, str | Estimates):
        return value
    try:
        return np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"estimates is {value!r:.60}", hint="pass a name such as 'oracle', or seconds, one number per job") from None


def as_same(value: Any) -> float:
    """The share below which differences do not matter: 0.01 or "1%"."""
    if isinstance(value, str):
        return parse_percent(value)
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 <= value < 1:
        raise InputError(f"same is {value!r:.60}", hint="pass a share such as 0.01, or '1%'")
    return float(value)


def check_types(**options: Any) -> None:
    """Refuse values of options that would be misunderstood: budgets, kill_at_limit, start, score."""
    expected: dict[str, tuple[Any, str]] = {
        "budgets": (Budgets, "Budgets(…) of queuewise.policies.budgets"),
        "kill_at_limit": (bool | np.bool_, "True or False"),
        "start": (Snapshot | None, "a Snapshot, or leave it out to begin with an empty cluster"),
        "score": (str | None, "a name such as 'bsld' or a sum such as '0.7*bsld+0.3*wait'"),
    }
    for name, value in options.items():
        kind, hint = expected[name]
        if not isinstance(value, kind):
            raise InputError(f"{name} is {type(value).__name__} {value!r:.60}", hint=f"pass {hint}")


def check_windows(windows: Any) -> None:
    """Refuse anything but pairs (first_job, num_jobs)."""
    pairs = isinstance(windows, Sequence | np.ndarray) and not isinstance(windows, str)
    if not pairs or not all(isinstance(one, Sequence | np.ndarray) and len(one) == 2 for one in windows):
        raise InputError(f"windows is {windows!r:.60}", hint="pass a list of (first_job, num_jobs), for example [(0, 500), (500, 500)]")
