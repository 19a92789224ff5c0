"""What holds for every schedule of the engine under preemption and outages, whatever the policy."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import reference
from agreement import PERFECT, stays
from effort import tries
from fixed_workloads import crowd
from queuewise.cluster.conditions import Conditions, Outage, Power, Preemption
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.evaluation import timeline
from queuewise.evaluation.energy import J_PER_KWH, energy_kwh
from queuewise.evaluation.measure import first_wait, jct, measure, service, wait
from queuewise.evaluation.timeline import bin_edges, mean_watts, peak_watts
from queuewise.policies import simulate
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload
from reference.check import Stay, violations
from strategies import DISPATCHES, Case, caps, cases, policies, powers, preemptive_policies, stopping_costs, troubled_cases

quick = tries(100)
MONOTONE = ("first", "pack", "spread", "random", "fastest", "cheapest", "fgd")  # what fits still fits where more is free


def replay(case: Case, policy: str, conditions: Conditions = PERFECT, dispatch: str = "reorder") -> Schedule:
    options: dict[str, Any] = {"seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    return simulate(case.workload, case.cluster, policy, dispatch=dispatch, estimates=case.known, **options)


def problems(case: Case, policy: str, conditions: Conditions, s: Schedule) -> list[str]:
    options: dict[str, Any] = {"kill_at_limit": case.kill_at_limit, "policy": policy, "conditions": conditions}
    return violations(case.workload, case.cluster, s.start, s.end, s.status, s.preemptions, stays(s), **options)


def assert_equal_runs(a: Schedule, b: Schedule) -> None:
    assert sorted(stays(a), key=repr) == sorted(stays(b), key=repr)
    for column in ("status", "start", "end", "preemptions"):
        np.testing.assert_array_equal(getattr(a, column), getattr(b, column), err_msg=column)


# --- nothing is impossible, nothing is lost


@tries(300)
@given(troubled_cases(), preemptive_policies())
def test_preemptive_policies_lose_nothing(pair: tuple[Case, Conditions], policy: str) -> None:
    case, conditions = pair
    assert problems(case, policy, conditions, replay(case, policy, conditions)) == []


@tries(200)
@given(troubled_cases(), policies(), st.sampled_from(DISPATCHES))
def test_outages_lose_nothing(pair: tuple[Case, Conditions], policy: str, dispatch: str) -> None:
    case, conditions = pair
    assert problems(case, policy, conditions, replay(case, policy, conditions, dispatch)) == []


@quick
@given(st.integers(0, 10_000), preemptive_policies(), stopping_costs())
def test_crowds_lose_nothing(seed: int, policy: str, costs: Preemption) -> None:
    case, conditions = crowd(seed), Conditions(preemption=costs)
    assert problems(case, policy, conditions, replay(case, policy, conditions)) == []


@quick
@given(st.integers(0, 10_000), preemptive_policies())
def test_free_preemption_conserves_work(seed: int, policy: str) -> None:
    """Where all GPUs are alike and stopping is free, the runs of a job add up to its runtime, however often it was stopped."""
    case = crowd(seed)
    cluster = build("alike", [NodeGroup(4, gpus=4, kind="T4", cpus=4, mem_gib=4)])
    workload = case.workload.replace(kind_set=np.zeros(len(case.workload), np.int32), partition=np.full(len(case.workload), -1, np.int32))
    s = simulate(workload, cluster, policy, estimates=case.estimate, seed=seed)
    worked = np.zeros(len(workload))
    np.add.at(worked, s.piece_job, (s.piece_end - s.piece_start) * s.piece_tasks / workload.num_tasks[s.piece_job])
    assert s.finished.any()
    np.testing.assert_allclose(worked[s.finished], workload.runtime[s.finished], rtol=1e-9, atol=1e-9)


@tries(300)
@given(cases(), preemptive_policies(), st.sampled_from((0.0, 0.0, 1.0)))
def test_nothing_is_started_and_stopped_at_one_time(case: Case, policy: str, quantum_s: float) -> None:
    """A run of no length is the last one of its job, and does what is left: nothing."""
    s = replay(case, policy, Conditions(preemption=Preemption(quantum_s=quantum_s)))
    at_once = s.piece_start == s.piece_end
    tasks = np.bincount(s.piece_job[at_once], weights=s.piece_tasks[at_once], minlength=len(case.workload))
    assert (tasks <= case.workload.num_tasks).all()
    np.testing.assert_array_equal(s.piece_end[at_once], s.end[s.piece_job[at_once]])


@quick
@given(st.integers(0, 10_000), preemptive_policies(), stopping_costs(), powers())
def test_a_job_waits_or_runs(seed: int, policy: str, costs: Preemption, power: Power) -> None:
    """All of the time to its end; up to its first start it waits, and no longer if it is never stopped."""
    m = measure(replay(crowd(seed), policy, Conditions(preemption=costs, power=power)))
    np.testing.assert_allclose(wait(m) + service(m), jct(m), rtol=1e-12, atol=1e-9)
    again = wait(m) - first_wait(m)
    assert (again >= 0).all()
    assert (again[m.schedule.preemptions[m.rows] == 0] == 0).all()
    if not power.nodes_sleep:  # what a job holds is what it runs on
        held = np.zeros(len(m.schedule.workload))
        np.add.at(held, m.schedule.piece_job, (m.schedule.piece_end - m.schedule.piece_start) * m.schedule.piece_tasks)
        np.testing.assert_allclose(service(m), (held / m.schedule.workload.num_tasks)[m.rows], rtol=1e-9, atol=1e-9)
    waiting = timeline.waiting_intervals(m, m.schedule.finished)
    assert np.sum(waiting[1] - waiting[0]) == pytest.approx(wait(m).sum())


# --- nodes that sleep


@tries(200)
@given(troubled_cases(), powers(), st.one_of(policies(), preemptive_policies()))
def test_sleeping_nodes_lose_nothing(pair: tuple[Case, Conditions], power: Power, policy: str) -> None:
    case, conditions = pair[0], pair[1].model_copy(update={"power": power})
    assert problems(case, policy, conditions, replay(case, policy, conditions)) == []


@quick
@given(cases(), powers(), policies())
def test_sleep_that_ends_at_once_delays_nobody(case: Case, power: Power, policy: str) -> None:
    """Where the rule looks at nothing but the index, nodes that wake in no time are as good as nodes that never sleep."""
    conditions = Conditions(power=power.model_copy(update={"wake_s": 0.0}))
    order = policy.partition("@")[0]
    assert_equal_runs(replay(case, f"{order}@first", conditions), replay(case, f"{order}@first"))


@quick
@given(cases(), powers(), policies())
def test_energy_is_the_draw_over_time(case: Case, power: Power, policy: str) -> None:
    """The whole of it, and no more than without sleep where sleeping and waking draw nothing."""
    m = measure(replay(case, policy, Conditions(power=power)))
    kwh = energy_kwh(m)
    if kwh is None or not m.span > 0:
        return
    edges = bin_edges(m, 7)
    assert float(mean_watts(m, edges) @ np.diff(edges)) / J_PER_KWH == pytest.approx(kwh, rel=1e-9, abs=1e-12)
    thrifty = dataclasses.replace(m.schedule, power=power.model_copy(update={"sleep_watts": 0.0, "wake_watts": None}))
    awake = dataclasses.replace(m.schedule, power=Power())
    least, most = energy_kwh(measure(thrifty)), energy_kwh(measure(awake))
    assert least is not None
    assert most is not None
    assert least <= most * (1 + 1e-12)


# --- the power cap


@tries(250)
@given(troubled_cases(), st.data(), policies(), st.sampled_from(DISPATCHES))
def test_the_draw_never_exceeds_the_cap(pair: tuple[Case, Conditions], data: st.DataObject, policy: str, dispatch: str) -> None:
    case, conditions = pair
    assume(draws_in_use(case.cluster))
    power = data.draw(caps(case.cluster))
    conditions = conditions.model_copy(update={"power": power})
    s = replay(case, policy, conditions, dispatch)
    assert problems(case, policy, conditions, s) == []
    peak = peak_watts(measure(s))
    assert peak is None or peak <= power.cap_watts + 1e-9


@quick
@given(cases(), policies(), st.sampled_from(DISPATCHES))
def test_a_cap_that_is_never_reached_changes_nothing(case: Case, policy: str, dispatch: str) -> None:
    assume(draws_in_use(case.cluster))
    assert_equal_runs(replay(case, policy, Conditions(power=Power(cap_watts=1e9)), dispatch), replay(case, policy, PERFECT, dispatch))


def draws_in_use(cluster: Cluster) -> bool:
    return bool(cluster.num_gpus or cluster.node_core_watts.any())


# --- policies that come to the same thing


@quick
@given(cases(), st.sampled_from(MONOTONE), stopping_costs())
def test_without_reason_to_stop_preemptive_policies_backfill_greedily(case: Case, placement: str, costs: Preemption) -> None:
    conditions = Conditions(preemption=costs)
    greedy = replay(case, f"fcfs+greedy@{placement}")
    assert_equal_runs(replay(case, f"las:1000000000000@{placement}", conditions), greedy)
    assert_equal_runs(replay(case, f"tiresias:1000000000000@{placement}", conditions), greedy)
    alike = dataclasses.replace(case, workload=case.workload.replace(priority=np.ones(len(case.workload))))
    assert_equal_runs(replay(alike, f"priority-preempt@{placement}", conditions), greedy)
    for_ever = Conditions(preemption=costs.model_copy(update={"quantum_s": 1e12}))
    assert_equal_runs(replay(case, f"srtf@{placement}", for_ever), replay(case, f"sjf+greedy@{placement}"))
    assert_equal_runs(replay(case, f"defrag@{placement}", for_ever), greedy)


@quick
@given(cases(), policies(), st.sampled_from(DISPATCHES), stopping_costs())
def test_costs_of_stopping_do_not_matter_where_nothing_is_stopped(case: Case, policy: str, dispatch: str, costs: Preemption) -> None:
    assert_equal_runs(replay(case, policy, Conditions(preemption=costs), dispatch), replay(case, policy, PERFECT, dispatch))


@quick
@given(cases(), st.one_of(policies(), preemptive_policies()))
def test_outages_when_all_is_over_change_nothing(case: Case, policy: str) -> None:
    before = replay(case, policy)
    last = float(np.max(before.end[np.isfinite(before.end)], initial=case.workload.submit[-1]))
    later = tuple(Outage(node=n, start=last + 1.0, end=last + 2.0) for n in range(case.cluster.num_nodes))
    assert_equal_runs(replay(case, policy, Conditions(outages=later)), before)


# --- the best there is


def least_total_completion(release: tuple[int, ...], work: tuple[int, ...]) -> int:
    """The least sum of completion times on one server, over all schedules that choose again at every second.

    With whole seconds nothing is gained by choosing in between, nor by waiting with work to do.
    """

    @cache
    def best(now: int, left: tuple[int, ...]) -> int:
        if not any(left):
            return 0
        ready = [j for j, rest in enumerate(left) if rest and release[j] <= now]
        if not ready:
            return best(min(release[j] for j, rest in enumerate(left) if rest), left)
        ways = []
        for j in ready:
            after = (*left[:j], left[j] - 1, *left[j + 1 :])
            ways.append(best(now + 1, after) + (now + 1 if left[j] == 1 else 0))
        return min(ways)

    return best(0, work)


@tries(40)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), min_size=1, max_size=7))
def test_srtf_is_optimal_on_one_server(rows: list[tuple[int, int]]) -> None:
    release, work = (tuple(column) for column in zip(*sorted(rows), strict=True))
    num = len(rows)
    workload = Workload(np.array(release, float), np.array(work, float), np.ones(num, np.int32), np.full(num, 1000, np.int32))
    server = build("one", [NodeGroup(1, gpus=1, kind="T4")])
    best = least_total_completion(release, work)
    assert simulate(workload, server, "srtf", estimates="oracle").end.sum() == best
    assert reference.simulate(workload, server, "srtf", estimate=workload.runtime).end.sum() == best


def test_other_orders_are_not_optimal_there() -> None:
    """The search does tell policies apart: a long job first, two short ones behind it."""
    workload = Workload(np.array([0.0, 1.0, 1.0]), np.array([3.0, 1.0, 1.0]), np.ones(3, np.int32), np.full(3, 1000, np.int32))
    server = build("one", [NodeGroup(1, gpus=1, kind="T4")])
    assert least_total_completion((0, 1, 1), (3, 1, 1)) == 2 + 3 + 5
    assert simulate(workload, server, "sjf", estimates="oracle").end.sum() == 3 + 4 + 5


# --- the check itself


@pytest.mark.parametrize(
    "spoil", ["a run is lost", "a run ends late", "a run is twice", "a failed node is used", "a task is lost", "uncounted"]
)
def test_the_check_sees_what_is_wrong(spoil: str) -> None:
    case = crowd(7)
    conditions = Conditions(outages=(Outage(node=5, start=20.0, end=30.0),), preemption=Preemption(restart_s=1.0))
    r = reference.simulate(case.workload, case.cluster, "srtf", estimate=case.estimate, seed=case.seed, conditions=conditions)
    assert r.preemptions.max() >= 2
    rows = [(j, a, b, *piece) for j, a, b, pieces in r.runs for piece in pieces]
    stopped = int(np.argmax(r.preemptions))
    first = next(i for i, row in enumerate(rows) if row[0] == stopped)
    job, start, end, node, tasks, gpus = rows[first]
    whole_run = [row for row in rows if row[:3] == (job, start, end)]
    rest = [row for row in rows if row not in whole_run]
    stops = r.preemptions.copy()
    if spoil == "a run is lost":
        rows = rest
    elif spoil == "a run ends late":
        rows = rest + [(j, a, b + 0.5, n, t, g) for j, a, b, n, t, g in whole_run]
    elif spoil == "a run is twice":
        rows = rows + whole_run
    elif spoil == "a failed node is used":
        last = next(row for row in rows if row[2] > 30.0 and row[1] > 30.0 and row[3] == 5)
        rows = [row for row in rows if row is not last] + [(last[0], 25.0, last[2], *last[3:])]
    elif spoil == "a task is lost":
        rows = [*rest, *whole_run[1:], (job, start, end, node, tasks - 1, gpus)]
    else:
        stops[stopped] -= 1
    found = [Stay(j, n, t, g, a, b) for j, a, b, n, t, g in rows]
    options: dict[str, Any] = {"kill_at_limit": False, "policy": "srtf", "conditions": conditions}
    assert violations(case.workload, case.cluster, r.start, r.end, r.status, r.preemptions, stays_of(r), **options) == []
    assert violations(case.workload, case.cluster, r.start, r.end, r.status, stops, found, **options) != []


def stays_of(result: reference.Result) -> list[Stay]:
    return [Stay(j, n, t, g, a, b) for j, a, b, pieces in result.runs for n, t, g in pieces]
