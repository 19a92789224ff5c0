"""Preemptive policies by name: who may take whose place. The formulas are those of docs/simulator.md."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from queuewise.errors import InputError
from queuewise.policies.known import Jobs, OracleJobs
from queuewise.sim import preemption
from queuewise.sim.core.rules import Levels, Order, Rules
from queuewise.workload.jobs import Floats
from queuewise.workload.plain_numbers import decimal_number

DOUBLINGS = 40  # levels of las and gittins
FIRST_LEVEL = 60.0  # GPU-seconds; seconds of las
TIRESIAS_LEVEL = 3600.0  # GPU-seconds


@dataclass(frozen=True)
class PreemptiveRule:
    summary: str
    source: str
    make: Callable[[Jobs, float], Rules]  # from the jobs and the option
    option: float = 0.0  # of service, that may be given after a colon; 0: nothing may
    unit: str = "GPU-seconds"  # of the option
    oracle: bool = False  # it is given all runtimes (OracleJobs); no other rule is


def _doubling(first: float) -> Floats:
    return np.ldexp(first, np.arange(DOUBLINGS))


def _by_level(levels: Levels) -> Rules:
    return Rules(order=Order(), keys=preemption.BY_LEVEL, levels=levels)


def _las(first: float, by_time: bool) -> Rules:
    return _by_level(Levels(_doubling(first), by_time=by_time))


def _tiresias(jobs: Jobs, bound: float) -> Rules:
    return _by_level(Levels(np.array([bound]), promotes=True))


def _gittins(jobs: Jobs, first: float) -> Rules:
    return _by_level(Levels(_doubling(first), learns=True))


def _gittins_oracle(jobs: Jobs, first: float) -> Rules:
    assert isinstance(jobs, OracleJobs)
    return _by_level(Levels(_doubling(first), services=(jobs.runtime * jobs.size)[jobs.runtime > 0]))


PREEMPTIVE: dict[str, PreemptiveRule] = {
    "srtf": PreemptiveRule(
        "shortest remaining time first, by estimate", "Schrage 1968", lambda jobs, _: Rules(order=Order(), keys=preemption.BY_REMAINING)
    ),
    "las": PreemptiveRule(
        "least time of running so far first; levels that double from Q seconds on", "Nuyens & Wierman 2008",
        lambda _, first: _las(first, by_time=True), FIRST_LEVEL, "seconds",
    ),
    "las2d": PreemptiveRule(
        "the same of GPUs × time; levels that double from Q GPU-seconds on", "Gu et al., NSDI 2019",
        lambda _, first: _las(first, by_time=False), FIRST_LEVEL,
    ),
    "tiresias": PreemptiveRule(
        "two levels of attained service, promotion of those who wait long", "Gu et al., NSDI 2019", _tiresias, TIRESIAS_LEVEL
    ),
    "gittins": PreemptiveRule(
        "greatest Gittins index of the attained service, learned from jobs that have ended", "Gittins 1979; Gu et al., NSDI 2019",
        _gittins, FIRST_LEVEL,
    ),
    "gittins-oracle": PreemptiveRule(
        "the same by the services of all jobs of the log: an oracle, which sees all runtimes", "Gittins 1979", _gittins_oracle, FIRST_LEVEL,
        oracle=True,
    ),
    "priority-preempt": PreemptiveRule(
        "the log's own priorities; more urgent jobs take the place of others",
        "folklore",
        lambda jobs, _: Rules(order=Order(fixed=-np.asarray(jobs.priority, np.float64)), keys=preemption.BY_FIXED),
    ),
}  # fmt: skip


def parse_option(name: str, text: str) -> float:
    """The number after a preemptive policy's colon."""
    rule = PREEMPTIVE[name]
    if not text:
        return rule.option
    value = decimal_number(text)
    if rule.option == 0.0 or value is None or not 0 < value < np.inf:
        example = f"write {name}:{rule.option:g} for levels from {rule.option:g} {rule.unit} on"
        hint = example if rule.option else f"{name} takes no option"
        raise InputError(f"policy {name}:{text}: {text!r} is no option of {name}", hint=hint)
    return value
