"""Dependencies: the engine and the independent reference make identical schedules, whoever waits for whom."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agreement import assert_same_schedule
from queuewise.cluster.conditions import Conditions, Outage, Preemption
from queuewise.workload.dependencies import KINDS, Dependencies
from strategies import DISPATCHES, Case, cases, policies


@st.composite
def linked_cases(draw: st.DrawFn) -> Case:
    """A case whose jobs wait for others, submitted before or after them, in no circle."""
    case = draw(cases(max_jobs=12))
    num = len(case.workload)
    rank = draw(st.permutations(range(num)))
    ends = st.tuples(st.integers(0, num - 1), st.integers(0, num - 1))
    pairs = draw(st.lists(ends, max_size=2 * num, unique=True))
    kinds, delays = st.sampled_from(sorted(KINDS.values())), st.sampled_from((0.0, 0.0, 0.5, 3.0))
    edges = [(job, on, draw(kinds), draw(delays)) for job, on in pairs if rank[on] < rank[job]]
    return replace(case, workload=case.workload.replace(dependencies=Dependencies.of(edges)))


names = st.one_of(policies(), st.sampled_from(("srtf", "las:2", "defrag", "drf+easy", "priority-preempt")))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(linked_cases(), st.lists(names, min_size=2, max_size=2), st.sampled_from(DISPATCHES), st.booleans(), st.booleans())
def test_any_policy_with_dependencies(case: Case, policies: list[str], dispatch: str, outage: bool, requeue: bool) -> None:
    begin = float(case.workload.submit[0])
    outages = (Outage(node=0, start=begin + 2.0, end=begin + 4.0),) if outage else ()
    conditions = Conditions(dependencies=True, outages=outages, requeue=requeue, preemption=Preemption(mode="kill"))
    for policy in policies:
        preempts = policy.split(":")[0] in ("srtf", "las", "priority-preempt")
        assert_same_schedule(case, policy, "reorder" if preempts else dispatch, conditions)
