"""How much faster a job is with more tasks: scaling curves of elastic jobs, by name. docs/simulator.md, "Elastic jobs", uses them.

A curve gives the speed with k tasks; only ratios of speeds count. `linear`: k. `amdahl:S`: 1 ÷ (S + (1 − S) ÷ k), with a serial share S.
`power:A`: k to the A. `table:1=1,4=3.5,…`: speeds measured at some numbers of tasks, straight lines between them, as the first per task
before them, and no gain beyond the last.
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
    """The speed with each of these numbers of tasks."""
    return parse_curve(curve)(tasks.astype(np.float64))


def parse_curve(curve: str) -> Callable[[Floats], Floats]:
    """The function that a name stands for."""
    kind, _, option = curve.partition(":")
    if kind not in CURVES:
        raise unknown_name("scaling curve", kind, CURVES)
    return CURVES[kind](option, curve)


def _linear(option: str, curve: str) -> Callable[[Floats], Floats]:
    if option:
        raise InputError(f"scaling curve {curve!r}: linear takes no number", hint="amdahl:0.1, power:0.8 or table:1=1,4=3.5 say more")
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
        raise InputError(f"scaling curve {curve!r} is no list of TASKS=SPEED", hint="for example table:1=1,4=3.5,16=9") from None
    if not all(tasks >= 1 and 0 < gain < np.inf for tasks, gain in points):
        raise InputError(f"scaling curve {curve!r}: tasks are 1 or more, speeds above 0", hint="for example table:1=1,4=3.5,16=9")
    for (tasks, gain), (more, next_gain) in pairwise(points):
        if more <= tasks or next_gain < gain:
            raise InputError(
                f"scaling curve {curve!r} does not rise from {tasks:g}={gain:g} to {more:g}={next_gain:g}",
                hint="give more and more tasks, and speeds that do not fall",
            )
    at, gains = np.array(points).T
    return lambda tasks: np.where(tasks < at[0], gains[0] / at[0] * tasks, np.interp(tasks, at, gains))


CURVES: dict[str, Callable[[str, str], Callable[[Floats], Floats]]] = {
    LINEAR: _linear,
    "amdahl": _amdahl,
    "power": _power,
    "table": _table,
}
