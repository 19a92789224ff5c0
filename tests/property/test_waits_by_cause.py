"""The causes of a wait add up to the wait, to the last bit."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agreement import replay
from effort import tries
from queuewise.cluster.conditions import Conditions
from queuewise.evaluation.cause_walk import CAUSES
from queuewise.evaluation.measure import measure, wait
from queuewise.evaluation.wait_causes import wait_causes
from queuewise.sim.core.schedule import Schedule
from strategies import DISPATCHES, Case, cases, crowded, elastic, policies, preemptive_policies, troubled_cases, worlds

often = settings(tries(400), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])

RESIZING = (Conditions(), Conditions(resize="shrink"), Conditions(resize="grow"), Conditions(resize="both"))


def assert_adds_up(schedule: Schedule) -> None:
    found = wait_causes(schedule)
    m = measure(schedule)
    seconds = found.seconds[m.rows]
    for row, expected in zip(seconds.tolist(), wait(m).tolist(), strict=True):
        assert all(part >= 0 for part in row)
        assert sum(row) == expected  # from left to right
        assert sum(row[::-1]) == expected
        assert sum(sorted(row)) == expected
    others = np.setdiff1d(np.arange(len(schedule.workload)), m.rows)
    assert np.isnan(found.seconds[others]).all()
    assert found.seconds.shape == (len(schedule.workload), len(CAUSES))
    if m.rows.size:
        assert sum(v for v in found.means().values() if v is not None) == wait(m).mean()


@often
@given(worlds(), policies(), st.sampled_from(DISPATCHES), st.booleans())
def test_any_policy_under_any_condition(world: tuple[Case, Conditions], policy: str, dispatch: str, crowd: bool) -> None:
    case, conditions = world
    if conditions.quotas:
        policy = policy.replace("/1", "").replace("/3", "")
    assert_adds_up(replay(crowded(case) if crowd else case, policy, conditions, dispatch))


@often
@given(troubled_cases(), preemptive_policies())
def test_jobs_that_are_stopped(pair: tuple[Case, Conditions], policy: str) -> None:
    assert_adds_up(replay(crowded(pair[0]), policy, pair[1]))


@often
@given(st.data(), cases(), policies(), st.sampled_from(RESIZING))
def test_elastic_jobs(data: st.DataObject, case: Case, policy: str, conditions: Conditions) -> None:
    assert_adds_up(replay(data.draw(elastic(case)), policy, conditions))
