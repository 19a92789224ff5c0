"""Preemptive policies by name: who may take whose place. The formulas are those of docs/simulator.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from queuewise.errors import InputError
from queuewise.policies.ordering import Jobs
from queuewise.sim import preemption
from queuewise.sim.core.rules import Levels, Order, Rules
from queuewise.workload.jobs import Floats

DOUBLINGS = 40  # levels of las and gittins
FIRST_LEVEL = 60.0  # GPU-seconds; seconds of las
TIRESIAS_LEVEL = 3600.0  # GPU-seconds


@dataclass(frozen=True)
class PreemptiveRule:
    summary: str
    source: str
    make: Callable[[Jobs, float], Rules]  # from the jobs and the option
    option: float = 0.0  # of service, that may be given after a colon; 0: nothing may


def _doubling(first: float) -> Floats:
    return np.ldexp(first, np.arange(DOUBLINGS))


def _by_level(levels: Levels) -> Rules:
    return Rules(order=Order(), keys=preemption.BY_LEVEL, levels=levels)


def _las(first: float, by_time: bool) -> Rules:
    return _by_level(Levels(_doubling(first), np.arange(DOUBLINGS + 1, dtype=np.float64), by_time=by_time))


def _tiresias(jobs: Jobs, bound: float) -> Rules:
    return _by_level(Levels(np.array([bound]), np.array([0.0, 1.0]), promotes=True))


def _gittins(jobs: Jobs, first: float) -> Rules:
    bounds = _doubling(first)
    services = np.sort((jobs.workload.runtime * jobs.size)[jobs.workload.runtime > 0])
    return _by_level(Levels(bounds, np.array([-gittins_index(services, attained) for attained in (0.0, *bounds)])))


def gittins_index(services: Floats, attained: float) -> float:
    """The greatest chance of ending within some more service, per service expected to be spent on it. `services` ascend."""
    above = services[np.searchsorted(services, attained, side="right") :]
    if len(above) == 0:
        return 0.0
    more = above - attained
    ends = np.arange(1, len(more) + 1)
    spent = np.cumsum(more) + (len(more) - ends) * more
    return float((ends / spent).max())


PREEMPTIVE: dict[str, PreemptiveRule] = {
    "srtf": PreemptiveRule(
        "shortest remaining time first, by estimate", "Schrage 1968", lambda jobs, _: Rules(order=Order(), keys=preemption.BY_REMAINING)
    ),
    "las": PreemptiveRule(
        "least time of running so far first; levels that double from Q seconds on", "Nuyens & Wierman 2008",
        lambda _, first: _las(first, by_time=True), FIRST_LEVEL,
    ),
    "las2d": PreemptiveRule(
        "the same of GPUs × time; levels that double from Q GPU-seconds on", "Gu et al., NSDI 2019",
        lambda _, first: _las(first, by_time=False), FIRST_LEVEL,
    ),
    "tiresias": PreemptiveRule(
        "two levels of attained service, promotion of those who wait long", "Gu et al., NSDI 2019", _tiresias, TIRESIAS_LEVEL
    ),
    "gittins": PreemptiveRule(
        "greatest Gittins index of the attained service, by the log's services", "Gittins 1979; Gu et al., NSDI 2019", _gittins, FIRST_LEVEL
    ),
    "priority-preempt": PreemptiveRule(
        "the log's own priorities; more urgent jobs take the place of others",
        "folklore",
        lambda jobs, _: Rules(order=Order(fixed=-np.asarray(jobs.workload.priority, np.float64)), keys=preemption.BY_FIXED),
    ),
}  # fmt: skip


def parse_option(name: str, text: str) -> float:
    """The number after a preemptive policy's colon."""
    default = PREEMPTIVE[name].option
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if default == 0.0 or not (np.isfinite(value) and value > 0):
        hint = f"write {name}:{default:g} for levels from {default:g} GPU-seconds on" if default else f"{name} takes no option"
        raise InputError(f"policy {name}:{text}: {text!r} is no option of {name}", hint=hint)
    return value
