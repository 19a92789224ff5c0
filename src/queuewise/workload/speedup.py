"""Scaling curves of elastic jobs: the speed of a job with k tasks. See docs/simulator.md, "Elastic jobs".

Only ratios of speeds matter. `linear`: k. `amdahl:S`: 1 ÷ (S + (1 − S) ÷ k), with a serial share S. `power:A`: k to the power of A.
`table:1=1,4=3.5,…`: measured speeds with linear interpolation, proportional to k before the first point and constant after the last.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import InputError, unknown_name

Floats = NDArray[np.float64]
LINEAR = "linear"


def speed(curve: str, tasks: NDArray[np.int64]) -> Floats:
    """The speed for each number of tasks."""
    return parse_curve(curve)(tasks.astype(np.float64))


def parse_curve(curve: str) -> Callable[[Floats], Floats]:
    """The function for the name of a curve."""
    kind, _, option = curve.partition(":")
    if kind not in CURVES:
        raise unknown_name("scaling curve", kind, CURVES)
    return CURVES[kind](option, curve)


def _linear(option: str, curve: str) -> Callable[[Floats], Floats]:
    if option:
        raise InputError(f"scaling curve {curve!r}: linear takes no parameter", hint="use linear, amdahl:0.1, power:0.8 or table:1=1,4=3.5")
    return lambda tasks: tasks


def _amdahl(option: str, curve: str) -> Callable[[Floats], Floats]:
    serial = _share(option, curve, "a serial share")
    return lambda tasks: 1.0 / (serial + (1.0 - serial) / tasks)


def _power(option: str, curve: str) -> Callable[[Floats], Floats]:
    exponent = _share(option, curve, "an exponent")
    return lambda tasks: tasks**exponent


def _share(option: str, curve: str, what: str) -> float:
    try:
        value = float(option)
    except ValueError:
        value = np.nan
    if not 0 <= value <= 1:
        raise InputError(f"scaling curve {curve!r} needs {what} between 0 and 1", hint="for example amdahl:0.1 or power:0.8")
    return value


def _table(option: str, curve: str) -> Callable[[Floats], Floats]:
    try:
        points = [(float(tasks), float(gain)) for tasks, gain in (point.split("=") for point in option.split(","))]
    except ValueError:
        raise InputError(f"scaling curve {curve!r} is not a list of TASKS=SPEED", hint="for example table:1=1,4=3.5,16=9") from None
    if not all(tasks >= 1 and 0 < gain < np.inf for tasks, gain in points):
        raise InputError(f"scaling curve {curve!r}: tasks must be at least 1 and speeds above 0", hint="for example table:1=1,4=3.5,16=9")
    for (tasks, gain), (more, next_gain) in pairwise(points):
        if more <= tasks or next_gain < gain:
            raise InputError(
                f"scaling curve {curve!r} does not increase from {tasks:g}={gain:g} to {more:g}={next_gain:g}",
                hint="list increasing numbers of tasks, with speeds that do not decrease",
            )
    at, gains = np.array(points).T
    return lambda tasks: np.where(tasks < at[0], gains[0] / at[0] * tasks, np.interp(tasks, at, gains))


CURVES: dict[str, Callable[[str, str], Callable[[Floats], Floats]]] = {
    LINEAR: _linear,
    "amdahl": _amdahl,
    "power": _power,
    "table": _table,
}
