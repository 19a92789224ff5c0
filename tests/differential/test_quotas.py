"""Quotas: the engine and the independent reference make identical schedules, whatever is guaranteed and borrowed."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from queuewise.cluster.conditions import Conditions
from strategies import DISPATCHES, Case, policies, shared_cases

full_depth = policies().map(lambda name: name.replace("/1", "").replace("/3", ""))
fair = st.sampled_from(("drf+easy", "fairshare", "drf+greedy"))
slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(tries(250), suppress_health_check=slow)
@given(shared_cases(), st.lists(st.one_of(full_depth, fair), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_policy_under_quotas(case: Case, policies: list[str], dispatch: str) -> None:
    for policy in policies:
        assert_same_schedule(case, policy, dispatch, Conditions(quotas=True))
