"""Quotas: the engine and the independent reference make identical schedules, whatever is guaranteed and borrowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import VirtualCluster
from queuewise.workload.jobs import UNKNOWN
from strategies import DISPATCHES, Case, cases, column, policies

GROUPS = ("vision", "speech", "guests")


@st.composite
def shared_cases(draw: st.DrawFn) -> Case:
    """A case on a cluster of which two virtual clusters hold parts; jobs of others, and of nobody, come too."""
    case = draw(cases())
    gpus = case.cluster.num_gpus
    assume(gpus > 0)
    first = draw(st.sampled_from((0.0, 0.5, 1.0, 2.0, float(gpus))))
    assume(first <= gpus)
    second = draw(st.sampled_from((0.0, 1.0, gpus - first)))
    assume(first + second <= gpus)
    extra = st.sampled_from((0.0, 0.3, 1.0, 2.0, float("inf")))
    tenants = (VirtualCluster("vision", first, first + draw(extra)), VirtualCluster("speech", second, second + draw(extra)))
    group = column(draw, len(case.workload), (0, 0, 1, 1, 2, UNKNOWN), np.int32)
    assume(bool(np.isin(group, (0, 1)).any()))
    users = column(draw, len(case.workload), (0, 1), np.int32)
    workload = case.workload.replace(group=group, groups=GROUPS, user=users, users=("ada", "ben"))
    return replace(case, workload=workload, cluster=replace(case.cluster, virtual_clusters=tenants))


full_depth = policies().map(lambda name: name.replace("/1", "").replace("/3", ""))
fair = st.sampled_from(("drf+easy", "fairshare", "drf+greedy"))
slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]


@settings(tries(250), suppress_health_check=slow)
@given(shared_cases(), st.lists(st.one_of(full_depth, fair), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_policy_under_quotas(case: Case, policies: list[str], dispatch: str) -> None:
    for policy in policies:
        assert_same_schedule(case, policy, dispatch, Conditions(quotas=True))
