"""The causes of waits, found in a finished schedule, are those that the reference sees while it makes the same schedule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agreement import replay
from effort import tries
from queuewise.cluster.conditions import Conditions
from queuewise.evaluation.cause_walk import CAUSES
from queuewise.evaluation.wait_causes import wait_causes
from queuewise.policies import parse_policy
from queuewise.policies.estimating import estimate_on
from reference.causes import CauseWatcher
from strategies import DISPATCHES, Case, cases, crowded, elastic, policies, preemptive_policies, reserved_cases, troubled_cases, worlds

often = settings(tries(400), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
dispatches = st.sampled_from(DISPATCHES)


def seen_by_reference(case: Case, policy: str, dispatch: str, conditions: Conditions) -> CauseWatcher:
    predicted = estimate_on(case.workload, case.cluster, "predicted", case.seed).values if "qssf" in policy else None
    own = {name: estimate_on(case.workload, case.cluster, name, case.seed).values for name in parse_policy(policy).own_estimates}
    about: tuple[Any, ...] = dispatch, case.estimate, case.guessed, case.seed, case.kill_at_limit, predicted, conditions, own, None, None
    watcher = CauseWatcher(case.workload, case.cluster, policy, *about)
    watcher.run()
    return watcher


def assert_same_causes(case: Case, policy: str, dispatch: str, conditions: Conditions) -> None:
    schedule = replay(case, policy, conditions, dispatch)
    found = wait_causes(schedule).seconds
    watcher = seen_by_reference(case, policy, dispatch, conditions)
    for j in np.flatnonzero(schedule.finished).tolist():
        expected = {cause: seconds for cause, seconds in watcher.seconds[j].items() if seconds > 0}
        mine = {cause: seconds for cause, seconds in zip(CAUSES, found[j].tolist(), strict=True) if seconds > 0 and cause != "waking"}
        assert mine == pytest.approx(expected, abs=1e-9), f"job {j} under {policy} {dispatch}"


@often
@given(worlds(), policies(), dispatches, st.booleans())
def test_any_policy_under_any_condition(world: tuple[Case, Conditions], policy: str, dispatch: str, crowd: bool) -> None:
    case, conditions = world
    if conditions.quotas:
        policy = policy.replace("/1", "").replace("/3", "")
    if conditions.power.is_capped:  # which nodes a task would get depends on what sleeps, and on the number of starts
        assume("random" not in policy and not conditions.power.nodes_sleep)
    if conditions.reservations:  # loops that start nothing are no instants of the schedule
        assume("slurm" not in policy)
    assert_same_causes(crowded(case) if crowd else case, policy, dispatch, conditions)


@often
@given(troubled_cases(max_jobs=12), preemptive_policies())
def test_preemptive_policies(pair: tuple[Case, Conditions], policy: str) -> None:
    assert_same_causes(crowded(pair[0]), policy, "reorder", pair[1])


@often
@given(st.data(), st.one_of(cases(max_jobs=12).map(lambda case: (case, Conditions())), reserved_cases(max_jobs=12)), policies())
def test_elastic_jobs(data: st.DataObject, pair: tuple[Case, Conditions], policy: str) -> None:
    assume("slurm" not in policy)
    case = data.draw(elastic(pair[0]))
    assert_same_causes(case, policy, "reorder", pair[1])
