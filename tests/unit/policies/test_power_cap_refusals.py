"""Caps that cannot be kept, and policies that do not know one, are refused; who can never run is counted."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster.conditions import Conditions, Power
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import METRICS
from queuewise.policies import simulate
from queuewise.workload.jobs import Workload

CLUSTER = build("two", [NodeGroup(2, cpus=4, idle_watts=100, core_watts=10)])


def jobs(*cores: int) -> Workload:
    num = len(cores)
    one = np.ones(num, np.int32)
    return Workload(np.zeros(num), np.full(num, 5.0), one, 0 * one, np.array(cores, np.int32) * 1000)


def under(power: Power, policy: str = "fcfs") -> None:
    simulate(jobs(1), CLUSTER, policy, conditions=Conditions(power=power))


@pytest.mark.parametrize("policy", ["srtf", "las", "priority-preempt", "defrag"])
def test_preemptive_policies_know_no_cap(policy: str) -> None:
    with pytest.raises(InputError, match="a power cap needs a policy that does not preempt or migrate"):
        under(Power(cap_watts=500), policy)


def test_a_cap_below_the_idle_draw() -> None:
    with pytest.raises(InputError, match="'two' draws 200 W without any job, more than the cap of 199 W"):
        under(Power(cap_watts=199))


def test_sleep_that_costs_more_than_idling() -> None:
    sleepy = Power(cap_watts=500, sleep_after_s=1)
    for watts in ("sleep_watts", "wake_watts"):
        with pytest.raises(InputError, match="no node may draw more asleep or waking than idle"):
            under(sleepy.model_copy(update={watts: 101.0}))
    under(Power(cap_watts=500, sleep_after_s=1, sleep_watts=100, wake_watts=100))


def test_a_cluster_that_does_not_say_what_jobs_draw() -> None:
    bare = build("bare", [NodeGroup(1, cpus=4, idle_watts=100)])
    with pytest.raises(InputError, match="does not define what jobs draw"):
        simulate(jobs(1), bare, "fcfs", conditions=Conditions(power=Power(cap_watts=500)))


def test_who_exceeds_the_cap_alone_is_rejected_and_counted() -> None:
    m = measure(simulate(jobs(1, 4, 3), CLUSTER, "fcfs", conditions=Conditions(power=Power(cap_watts=230))))
    assert METRICS["rejected"].of(m) == 1
    assert METRICS["completed"].of(m) == 2
    assert METRICS["peak_watts"].of(m) == 230
    assert m.schedule.start.tolist() == [0, np.inf, 5]
