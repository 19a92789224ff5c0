"""A replay that is cut at any instant, written as JSON and taken up again ends as if it had not been cut."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from effort import tries
from queuewise import Snapshot
from queuewise.cluster.conditions import Conditions
from queuewise.policies import parse_policy, simulate
from queuewise.policies.preemptive import PREEMPTIVE
from queuewise.policies.schedule_snapshots import ScheduleSnapshots
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import DONE, Schedule
from strategies import (
    DISPATCHES,
    Case,
    caps,
    cases,
    elastic,
    linked_cases,
    owned,
    policies,
    powers,
    preemptive_policies,
    reserved_cases,
    shared_cases,
    troubled_cases,
)

often = settings(tries(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much])
moments = st.sampled_from((0.0, 0.1, 0.25, 0.4, 0.6, 0.8, 0.95, 1.0))  # of the time from the first submission to the last end
FULL_DEPTH = policies().map(lambda name: name.replace("/1", "").replace("/3", ""))
OWN = """
from math import inf
STATE_SIZE = 3
PARAMS = [0.5]

def counts(job, now, state):
    state[0] += 1
    state[1] = max(state[1], now)
    return job.estimate if state[0] % 3 else -job.submit

def looks(job, now, queue, cluster):
    return (now - job.submit) * cluster.utilisation - queue.work / max(job.width, 1.0)

def by_job(job, params):
    return job.estimate ** params[0] * job.width

def favours(job, now, user, params):
    return user.running_jobs + user.recent_work * params[0] - job.submit

def favours_hold(job, now, queue, user):
    if user.running_jobs > 1 or queue.length > 6:
        return inf
    return 1.5 if now - job.submit < 1.0 else 0.0
"""


def options_of(case: Case, conditions: Conditions, policy: str, dispatch: str) -> dict[str, Any]:
    preempts = parse_policy(policy).order in PREEMPTIVE
    return {
        "estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions,
        "dispatch": "reorder" if preempts else dispatch,
    }  # fmt: skip


def assert_goes_on_equally(case: Case, policy: str, conditions: Conditions, dispatch: str, moment: float) -> None:
    options = options_of(case, conditions, policy, dispatch)
    expected = simulate(case.workload, case.cluster, policy, **options)
    first = float(case.workload.submit[0])
    last = max(expected.end[np.isfinite(expected.end)].max(initial=first), float(case.workload.submit[-1]))
    halted = Simulation(case.workload, case.cluster, policy, **options)
    halted.run(until=first + moment * (last - first))
    if halted.now < first and not halted.schedule().decisions:
        return  # nothing has happened
    snapshot = halted.snapshot()
    read = Snapshot.from_json(snapshot.to_json())
    assert read == snapshot
    found = simulate(case.workload, case.cluster, policy, start=read, **options)
    label = f"{policy} {dispatch} cut at {snapshot.now}"
    for column in ("status", "start", "end", "preemptions"):
        np.testing.assert_array_equal(getattr(found, column), getattr(expected, column), err_msg=label)
    assert runs_after(found, snapshot.now) == runs_after(expected, snapshot.now), label
    again = Simulation(case.workload, case.cluster, policy, start=read, **options)
    assert again.snapshot().to_json() == snapshot.to_json(), label


def runs_after(schedule: Schedule, now: float) -> list[tuple[Any, ...]]:
    """The pieces of runs that go on after a time, in order."""
    columns = ("piece_job", "piece_node", "piece_tasks", "piece_gpus", "piece_start", "piece_end")
    later = schedule.piece_end > now
    return list(zip(*(getattr(schedule, name)[later].tolist() for name in columns), strict=True))


@often
@given(cases(), policies(), st.sampled_from(DISPATCHES), moments)
def test_any_policy(case: Case, policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(case, policy, Conditions(), dispatch, moment)


@often
@given(troubled_cases(), st.one_of(preemptive_policies(), policies()), st.sampled_from(DISPATCHES), moments)
def test_outages_and_stops(pair: tuple[Case, Conditions], policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(pair[0], policy, pair[1], dispatch, moment)


@often
@given(reserved_cases(), st.data(), policies(), st.sampled_from(DISPATCHES), moments)
def test_reservations_and_resizing(pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str, moment: float) -> None:
    case, conditions = pair
    if data.draw(st.booleans()):
        case = data.draw(elastic(case))
        conditions = conditions.model_copy(update={"resize": data.draw(st.sampled_from(("none", "shrink", "grow", "both")))})
    assert_goes_on_equally(case, policy, conditions, dispatch, moment)


@often
@given(cases(), st.data(), policies(), st.sampled_from(DISPATCHES), moments)
def test_power(case: Case, data: st.DataObject, policy: str, dispatch: str, moment: float) -> None:
    draws = case.cluster.num_gpus > 0 or bool(case.cluster.node_core_watts.any())
    power = data.draw(st.one_of(powers(), caps(case.cluster)) if draws else powers()).model_copy(update={"price_per_kwh": 0.3})
    assert_goes_on_equally(case, policy, Conditions(power=power), dispatch, moment)


@often
@given(linked_cases(), st.one_of(policies(), st.sampled_from(("srtf", "las:2"))), st.sampled_from(DISPATCHES), moments)
def test_dependencies(case: Case, policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(case, policy, Conditions(dependencies=True), dispatch, moment)


@often
@given(shared_cases(), FULL_DEPTH, st.sampled_from(DISPATCHES), moments)
def test_quotas(case: Case, policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(case, policy, Conditions(quotas=True), dispatch, moment)


fair_orders = st.sampled_from(("fairshare+easy", "multifactor", "drf+greedy", "fairtree+conservative", "fcfs+easy:multifactor"))


@often
@given(cases(), st.data(), fair_orders, st.sampled_from(DISPATCHES), moments)
def test_fair_orders(case: Case, data: st.DataObject, policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(data.draw(owned(case)), policy, Conditions(), dispatch, moment)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


own_policies = st.sampled_from(
    (
        "{}:counts+easy",
        "{}:looks+greedy",
        "{}:by_job+easy",
        "fcfs+easy:{}:counts",
        "{}:counts+conservative",
        "{}:favours+easy",
        "{}:favours~3s",
    )
)


@often
@given(case=cases(), data=st.data(), policy=own_policies, dispatch=st.sampled_from(DISPATCHES), moment=moments)
def test_functions_of_a_user(own: Path, case: Case, data: st.DataObject, policy: str, dispatch: str, moment: float) -> None:
    assert_goes_on_equally(data.draw(owned(case)), policy.format(own), Conditions(), dispatch, moment)


bounds = st.sampled_from(("~1s", "~4s", "~30s"))


@often
@given(troubled_cases(), policies(), bounds, st.sampled_from(DISPATCHES), moments)
def test_bounds_on_waiting(pair: tuple[Case, Conditions], policy: str, bound: str, dispatch: str, moment: float) -> None:
    scheduling, at, placement = policy.partition("@")
    policy = scheduling + (bound if "~" not in scheduling else "") + at + placement
    assert_goes_on_equally(pair[0], policy, pair[1], dispatch, moment)


@often
@given(troubled_cases(), st.one_of(preemptive_policies(), policies()), st.data(), moments)
def test_runtimes_of_unfinished_jobs_are_not_in_it(pair: tuple[Case, Conditions], policy: str, data: st.DataObject, moment: float) -> None:
    """Two logs that differ only in runtimes that nobody can know yet have the same snapshots."""
    case, conditions = pair
    if "oracle" in policy:
        return
    options = options_of(case, conditions, policy, "reorder") | {"kill_at_limit": False}
    first = Simulation(case.workload, case.cluster, policy, **options)
    span = float(case.workload.submit[-1] - case.workload.submit[0]) + 20.0
    first.run(until=float(case.workload.submit[0]) + moment * span)
    unfinished = first.schedule().status < DONE
    longer = case.workload.runtime + np.where(unfinished, 1000.0 + 1 / 3, 0.0)
    second = Simulation(case.workload.replace(runtime=longer), case.cluster, policy, **options)
    second.run(until=float(case.workload.submit[0]) + moment * span)
    mine, its = (json.loads(one.snapshot().to_json()) for one in (first, second))
    for one, other in zip((*mine["queue"], *mine["running"]), (*its["queue"], *its["running"]), strict=True):
        done, same = one["progress"].pop("done_s"), other["progress"].pop("done_s")
        assert sum(done) == pytest.approx(sum(same), abs=1e-9)  # differences of other numbers, otherwise rounded
    assert mine == its


@often
@given(cases(max_jobs=15), st.sampled_from(("fcfs", "sjf+easy", "fcfs+conservative", "saf+greedy")), moments)
def test_a_schedule_shows_what_its_replay_showed(case: Case, policy: str, moment: float) -> None:
    options: dict[str, Any] = {"estimates": case.estimate, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    schedule = simulate(case.workload, case.cluster, policy, **options)
    first, last = case.workload.submit[0], np.max(schedule.end[schedule.end < np.inf], initial=case.workload.submit[-1])
    now = float(first + moment * (last - first))
    simulation = Simulation(case.workload, case.cluster, policy, **options)
    simulation.run(until=now)
    expected, found = simulation.snapshot(history=False), ScheduleSnapshots(schedule).at(now)
    assert [one.job for one in found.queue] == sorted((one.job for one in expected.queue), key=lambda job: (job.submit, job.job_id))
    assert found.nodes == expected.nodes
    assert len(found.running) == len(expected.running)
    for mine, its in zip(found.running, expected.running, strict=True):
        assert (mine.job, mine.start, mine.places) == (its.job, its.start, its.places)
        if schedule.end[case.workload.job_id.tolist().index(mine.job.job_id)] > mine.start:
            assert mine.expected_end == pytest.approx(its.expected_end)
