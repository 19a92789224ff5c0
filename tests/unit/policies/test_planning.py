"""Planners: rollouts are replays, a planner that never changes its mind is its base policy, and names are complete names."""

from __future__ import annotations

import numpy as np
import pytest

from no_future import MIXED, crowded
from queuewise import simulate
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError
from queuewise.policies import parse_policy
from queuewise.policies.interface import ReplayRequest
from queuewise.policies.planner_names import PLANNERS
from queuewise.policies.planning import planned_replay
from queuewise.policies.planning.futures import Expected, Futures
from queuewise.policies.planning.planned_replay import LookingAhead, Planner
from queuewise.policies.planning.rollouts import AS_USUAL, NO_PASS
from queuewise.policies.simulation import Simulation
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload

NOTHING = np.zeros(0)
MEMBERS = ("fcfs", "fcfs+easy", "sjf+easy", "saf+greedy@spread", "wfp3+easy:sjf@tier", "saf:oracle+easy")


def request(workload: Workload, policy: str, estimates: str = "oracle") -> ReplayRequest:
    known = {"oracle": workload.runtime, "predicted": workload.runtime * 1.5}[estimates]
    return ReplayRequest(workload, MIXED, policy, "reorder", known, estimates, False, 0, False, Conditions(), None, None)


def same(one: Schedule, other: Schedule) -> bool:
    names = ("start", "end", "piece_job", "piece_node", "piece_tasks", "piece_gpus")
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in names)


@pytest.mark.parametrize("member", MEMBERS)
def test_a_rollout_is_a_replay_from_there(member: str) -> None:
    """With exact runtimes, and no jobs to come, it has the waits of a replay that starts from a snapshot."""
    workload = crowded(3)
    ahead = LookingAhead(request(workload, f"plan:{member}"), (member,))
    simulation = Simulation(workload, MIXED, member, estimates="oracle")
    compared = 0
    for share in (0.2, 0.5, 0.8):
        at = float(workload.submit[int(share * len(workload))])
        ahead.run_until(at)
        simulation.run(until=at)
        snapshot = simulation.snapshot(history=False)
        present = ahead.present
        rows = np.sort(np.concatenate([present.running, present.queued]))
        assert sorted(snapshot.unfinished) == workload.job_id[rows].tolist()
        known = np.concatenate([present.running, present.queued])
        expected = Expected(workload.runtime[known], np.zeros(0, np.int64), NOTHING, NOTHING)
        (found,) = ahead.rollouts[0].run(present, expected, np.array([AS_USUAL]))
        schedule = simulate(workload.take(rows), MIXED, member, estimates="oracle", start=snapshot)
        waits = schedule.first_wait[np.searchsorted(rows, present.queued)]
        if len(waits):
            assert found == pytest.approx(waits.mean(), abs=1e-6)
            compared += 1
    assert compared >= 2


@pytest.mark.parametrize("member", MEMBERS)
def test_a_planner_that_never_prefers_anything_is_its_policy(member: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planned_replay, "LEAST_GAIN", 2.0)
    monkeypatch.setattr(planned_replay, "MARGIN", 2.0)
    workload = crowded(4)
    usual = simulate(workload, MIXED, member, estimates="oracle")
    assert same(simulate(workload, MIXED, f"plan:{member}", estimates="oracle"), usual)
    other = "lcfs" if member != "lcfs" else "ljf"
    for kind in ("portfolio", "recent"):
        assert same(simulate(workload, MIXED, f"{kind}:{member},{other}", estimates="oracle"), usual)


@pytest.mark.parametrize("policy", [*PLANNERS.values(), "milp:4@tier"])
def test_the_same_input_gives_the_same_plan(policy: str) -> None:
    workload = crowded(5)
    one, other = (simulate(workload, MIXED, policy, estimates="requested") for _ in range(2))
    assert same(one, other)
    assert one.finished.all()
    assert one.thinking is not None
    assert one.thinking["decisions"] > 0


def test_a_planner_lets_another_job_go_first() -> None:
    """One long job would keep nine short ones waiting: in rollouts, a short one first is better, and so it is."""
    num = 10
    workload = Workload(
        submit=np.zeros(num),
        runtime=np.array([1000.0, *[10.0] * 9]),
        num_tasks=np.ones(num, np.int32),
        gpu_milli=np.full(num, 0, np.int32),
        cpu_milli=np.full(num, 1000, np.int32),
    )
    cluster = load_cluster("flat:2")
    planned = simulate(workload, cluster, "plan:ljf", estimates="oracle")
    assert planned.first_wait.mean() <= simulate(workload, cluster, "ljf", estimates="oracle").first_wait.mean()


def test_all_candidates_see_the_same_future() -> None:
    workload = crowded(6)
    futures = Futures(request(workload, "plan:fcfs+easy", "predicted"))
    known = np.arange(20)
    worked = np.where(known < 10, 500.0, 0.0)
    one, same_again, other = (futures.draw(5000.0, 60, known, worked, 3, sample) for sample in (0, 0, 1))
    assert np.array_equal(one.runtime, same_again.runtime)
    assert not np.array_equal(one.runtime, other.runtime)
    assert (one.runtime >= worked).all()  # a running job takes longer than it has run
    assert (other.coming < 60).all()  # only jobs that have been submitted are expected again


def test_waiting_is_a_candidate() -> None:
    """NO_PASS starts nothing now: no job that waits can start before the next event."""
    workload = crowded(3)
    ahead = Planner(request(workload, "plan:fcfs+easy"), ("fcfs+easy",))
    ahead.run_until(float(workload.submit[20]))
    present = ahead.present
    known = np.concatenate([present.running, present.queued])
    expected = Expected(workload.runtime[known], np.zeros(0, np.int64), NOTHING, NOTHING)
    usual, waiting = ahead.rollouts[0].run(present, expected, np.array([AS_USUAL, NO_PASS]))
    assert waiting == pytest.approx(usual)  # at an instant at which the policy has decided, a pass more or less changes nothing


@pytest.mark.parametrize(
    "name", ["plan:", "portfolio:fcfs", "portfolio:fcfs,,sjf", "portfolio:fcfs,fcfs", "plan:plan:fcfs", "recent:fcfs", "milp:9", "milp:0"]
)
def test_incomplete_names_are_refused(name: str) -> None:
    with pytest.raises(InputError):
        parse_policy(name)


@pytest.mark.parametrize("name", ["plan:fcfs+conservative", "plan:srtf", "plan:fairshare+easy", "plan:fcfs+easy/4", "plan:fcfs+easy@milp"])
def test_policies_that_cannot_be_planned_with_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be a member"):
        simulate(crowded(0), MIXED, name, estimates="oracle")


def test_members_are_complete_names() -> None:
    parsed = parse_policy("portfolio:fcfs+easy~3d@tier,saf+easy:sjf~3d")
    assert parsed.members == ("fcfs+easy~3d@tier", "saf+easy:sjf~3d")
    assert parsed.max_wait_s == 3 * 86400.0
