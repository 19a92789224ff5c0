"""Slurm's loops: the engine and the independent reference make identical schedules, whatever the parameters and conditions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from fixed_workloads import crowd, gangs, mixture
from queuewise.cluster.conditions import Conditions
from strategies import BOUNDS, DISPATCHES, PLACEMENTS, SLURM, Case, elastic, worlds

ORDERS = ("fcfs", "sjf", "hrrn", "drf", "multifactor")
NUMBERS = {
    "bf_interval": (0.3, 1, 2, 7, -1), "bf_max_job_test": (1, 2, 5, 500), "bf_window": (0.01, 0.05, 0.2, 1440),
    "bf_resolution": (0.1, 0.7, 1, 3, 10), "default_queue_depth": (1, 2, 4, 100), "sched_interval": (1, 2.5, 60, -1),
}  # fmt: skip


@st.composite
def names(draw: st.DrawFn) -> str:
    """An order, a bound and a placement, with {} for the rule."""
    return draw(st.sampled_from(ORDERS)) + "+{}" + draw(st.sampled_from(BOUNDS)) + "@" + draw(st.sampled_from(PLACEMENTS))


@tries(400)
@given(
    worlds(),
    st.fixed_dictionaries({name: st.sampled_from(values) for name, values in NUMBERS.items()}),
    names(),
    st.sampled_from(DISPATCHES),
)
def test_any_parameters_under_any_conditions(
    tmp_path_factory: pytest.TempPathFactory, world: tuple[Case, Conditions], numbers: dict[str, float], name: str, dispatch: str
) -> None:
    case, conditions = world
    path = tmp_path_factory.mktemp("slurm") / "config.txt"
    path.write_text("SchedulerParameters = " + ",".join(f"{one}={value}" for one, value in numbers.items()), encoding="utf-8")
    assert_same_schedule(case, name.format(f"slurm:{path}"), dispatch, conditions)


@tries(150)
@given(worlds(), st.data(), st.sampled_from(SLURM), names(), st.sampled_from(("none", "shrink", "grow", "both")))
def test_elastic_jobs(world: tuple[Case, Conditions], data: st.DataObject, rule: str, name: str, resize: str) -> None:
    case, conditions = data.draw(elastic(world[0])), world[1].model_copy(update={"quotas": False, "resize": resize})
    assert_same_schedule(case, name.format(rule), conditions=conditions)


@pytest.mark.parametrize("rule", SLURM)
@pytest.mark.parametrize("placement", PLACEMENTS)
def test_long_queues(rule: str, placement: str) -> None:
    for case, order in zip((gangs(), mixture(), crowd(3, 40), crowd(4, 60)), ORDERS, strict=False):
        assert_same_schedule(case, f"{order}+{rule}@{placement}")
