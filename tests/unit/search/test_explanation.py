"""What a rule is made of, and whom it serves."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise import load_cluster, simulate
from queuewise.cluster.conditions import PERFECT
from queuewise.evaluation.measure import Measurement, last_event
from queuewise.policies.found_rules import NUMBERS, FoundRule
from queuewise.policies.window_replays import ReplayOptions
from queuewise.search.explanation import ablate, effects
from queuewise.search.stretches import Stretch, Stretches
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

MACHINE = load_cluster("flat:256")
JOBS = generate("lublin", 600, 5)


def test_the_term_that_matters_comes_first_and_one_that_changes_nothing_costs_nothing() -> None:
    numbers = {"log_runtime": 1.0, "log_age_hours": 0.5}  # the age itself has no weight
    rule = FoundRule(tuple(numbers.get(name, 0.0) for name in NUMBERS), scheduling="+easy", estimates="oracle")
    stretches = Stretches(JOBS, MACHINE, range(400), ReplayOptions("reorder", "oracle", 0, False, PERFECT))
    first, second = ablate(rule, stretches, [Stretch(0, 400, 1)], "fcfs+easy", {"bsld": 1.0})
    assert (first.name, second.name) == ("log_runtime", "log_age_hours")
    assert first.added_cost > 0.1
    assert second.added_cost == pytest.approx(0.0)


def test_effects_by_hand() -> None:
    """Two users on one core: a long job of a, then a short one of b. sjf lets b go first: b waits 1 s instead of 101, a 11 instead of 1."""
    jobs = Workload(
        submit=np.array([0.0, 1.0, 1.0]), runtime=np.array([2.0, 100.0, 10.0]), num_tasks=np.ones(3, np.int32),
        cpu_milli=np.full(3, 1000, np.int32), user=np.array([0, 0, 1], np.int32), users=("a", "b"),
    )  # fmt: skip

    def measured(policy: str) -> Measurement:
        schedule = simulate(jobs, load_cluster("flat:1"), policy, estimates="oracle")
        return Measurement(schedule, slice(1, 3), 1.0, last_event(schedule))

    found = effects(measured("sjf"), measured("fcfs"))
    assert [(one.key, one.label, one.jobs, one.wait_s, one.other_wait_s) for one in found] == [
        ("user", "a", 1, 11.0, 1.0),
        ("user", "b", 1, 1.0, 101.0),
    ]
    assert [one.added_s for one in found] == [10.0, -100.0]
