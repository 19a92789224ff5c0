"""Dependencies: the engine and the independent reference make identical schedules, whichever jobs wait for which."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from queuewise.cluster.conditions import Conditions, Outage, Power, Preemption
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.sim.core.schedule import DONE, FAILED, NEVER
from queuewise.workload.dependencies import KINDS, Dependencies
from queuewise.workload.jobs import Workload
from strategies import DISPATCHES, Case, linked_cases, policies

names = st.one_of(policies(), st.sampled_from(("srtf", "las:2", "defrag", "drf+easy", "priority-preempt")))


@tries(300)
@given(linked_cases(), st.lists(names, min_size=2, max_size=2), st.sampled_from(DISPATCHES), st.booleans(), st.booleans())
def test_any_policy_with_dependencies(case: Case, policies: list[str], dispatch: str, outage: bool, requeue: bool) -> None:
    begin = float(case.workload.submit[0])
    outages = (Outage(node=0, start=begin + 2.0, end=begin + 4.0),) if outage else ()
    conditions = Conditions(dependencies=True, outages=outages, requeue=requeue, preemption=Preemption(mode="kill"))
    for policy in policies:
        preempts = policy.split(":")[0] in ("srtf", "las", "priority-preempt")
        assert_same_schedule(case, policy, "reorder" if preempts else dispatch, conditions)


def test_a_job_that_fails_before_it_starts_is_waited_for_once() -> None:
    """Job 1 is placed at 20 and fails at 22, while its node wakes. Job 2 waits for its start and for the end of job 3."""
    submit, one = np.array([0.0, 20.0, 20.0, 24.0]), np.ones(4, np.int32)
    edges = [(2, 1, KINDS["after"], 0.0), (2, 3, KINDS["afterok"], 0.0)]
    workload = Workload(submit, np.full(4, 3.0), one, one * 1000, dependencies=Dependencies.of(edges))
    case = Case(workload, build("one", [NodeGroup(1, gpus=1, kind="T4")]), workload.runtime, seed=0, kill_at_limit=False)
    power = Power(sleep_after_s=10, wake_s=5)
    conditions = Conditions(dependencies=True, outages=(Outage(node=0, start=22, end=23),), requeue=False, power=power)
    assert_same_schedule(case, "fcfs", conditions=conditions)
    schedule = simulate(workload, case.cluster, "fcfs", estimates="oracle", conditions=conditions)
    assert schedule.status.tolist() == [DONE, FAILED, DONE, DONE]
    assert schedule.start.tolist() == [0, NEVER, 28, 25]
