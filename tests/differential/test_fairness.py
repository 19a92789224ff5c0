"""Fair orders: the engine and the independent reference make identical schedules, whatever the accounts and shares."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import some, tries
from queuewise.cluster import load_cluster
from queuewise.cluster.accounts import Account, Fairness, PriorityWeights
from queuewise.cluster.conditions import Conditions
from queuewise.workload import load_workload
from queuewise.workload.jobs import UNKNOWN
from reference.fairness import FAIR_ORDERS
from strategies import BACKFILLS, DISPATCHES, PLACEMENTS, WITH_SECOND_ORDER, Case, cases, column

GROUPS = ("physics", "biology", "idle")
USERS = ("ada", "ben", "cy")


@st.composite
def fair_cases(draw: st.DrawFn) -> Case:
    """Any case, with owners: some jobs have no user, some no account."""
    case = draw(cases())
    num = len(case.workload)
    owned = case.workload.replace(
        user=column(draw, num, (UNKNOWN, 0, 1, 1, 2), np.int32),
        group=column(draw, num, (UNKNOWN, 0, 0, 1), np.int32),
        qos=column(draw, num, (UNKNOWN, 0, 1), np.int32),
        users=USERS,
        groups=GROUPS,
        qos_names=("normal", "high"),
    )
    return replace(case, workload=owned)


@st.composite
def shares(draw: st.DrawFn) -> Fairness:
    """Settings from none at all to a tree of three levels of accounts, with shares of nothing among them."""
    if draw(st.booleans()):
        return Fairness(half_life_s=draw(st.sampled_from((0.0, 3.0, 604_800.0))), fair_tree=draw(st.booleans()))
    shares = st.sampled_from((0, 1, 1, 2, 5))
    accounts = {
        "physics": Account(
            shares=draw(shares), parent=draw(st.sampled_from((None, "science", "lab"))), users={"ada": draw(shares)}, priority=3
        ),
        "lab": Account(shares=draw(shares), parent="science", users={"dora": draw(shares)}),
        "science": Account(shares=draw(shares)),
        "biology": Account(
            shares=draw(shares), parent=draw(st.sampled_from((None, "science"))), users={"ben": draw(shares), "cy": 3}, priority=1
        ),
    }
    weight = st.sampled_from((0.0, 1.0, 1000.0))
    return Fairness(
        half_life_s=draw(st.sampled_from((0.0, 0.7, 5.0, 1000.0))),
        max_age_s=draw(st.sampled_from((1.0, 10.0))),
        fair_tree=draw(st.booleans()),
        favor_small=draw(st.booleans()),
        weights=PriorityWeights(**{name: draw(weight) for name in PriorityWeights.model_fields}),
        accounts=accounts,
        partition_priority=draw(st.sampled_from(({}, {"north": 3.0}, {"south": 0.0}))),
        qos_priority={"high": 5.0},
    )


@st.composite
def fair_policies(draw: st.DrawFn) -> str:
    """A fair order in the first place, in the second, or in both."""
    order = draw(st.sampled_from((*FAIR_ORDERS, "fcfs", "hrrn")))
    second = draw(st.sampled_from(("", *FAIR_ORDERS))) if order in FAIR_ORDERS else draw(st.sampled_from(FAIR_ORDERS))
    depth = "" if (second or order) == "drf" else draw(st.sampled_from(("", "", "/1", "/3")))
    rule = draw(st.sampled_from(BACKFILLS if order in FAIR_ORDERS else WITH_SECOND_ORDER))
    name = f"{order}+{rule}" + (depth + (f":{second}" if second else "") if rule in WITH_SECOND_ORDER else "")
    return name + "@" + draw(st.sampled_from(PLACEMENTS))


@tries(250)
@given(fair_cases(), shares(), st.lists(fair_policies(), min_size=3, max_size=3), st.sampled_from(DISPATCHES))
def test_any_fair_policy_on_any_workload(case: Case, fairness: Fairness, names: list[str], dispatch: str) -> None:
    for policy in names:
        assert_same_schedule(case, policy, dispatch, Conditions(fairness=fairness))


@pytest.mark.parametrize("backfill", some([name for name in BACKFILLS if name != "conservative"], 2))  # which takes the reference minutes
def test_a_log_with_users_and_groups(traces: Path, backfill: str) -> None:
    workload = load_workload(traces / "swf" / "HPC2N-2002-2.2-cln.swf.gz").workload.take(slice(0, 800))
    assert len(np.unique(workload.user)) >= 10
    case = Case(workload, load_cluster("flat:120"), np.where(np.isnan(workload.requested), workload.runtime, workload.requested), 3, False)
    for order, dispatch in itertools.product(FAIR_ORDERS, DISPATCHES):
        assert_same_schedule(case, f"{order}+{backfill}", dispatch, Conditions())
