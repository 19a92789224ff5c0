"""Named policies as deciders: asked instant by instant, through snapshots, they make the schedules of the engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from effort import tries
from queuewise import load_cluster, simulate
from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError
from queuewise.policies.compiled_decider import CompiledDecider, make_decider
from queuewise.policies.interface import View
from queuewise.sim.core.schedule import Schedule
from queuewise.workload import load_workload
from queuewise.workload.jobs import Workload
from strategies import BACKFILLS, BOUNDS, DISPATCHES, ORDERS, PLACEMENTS, Case, cases, stopping_costs
from views import Retold, has_queues_joined_by_jobs

SEEN = tuple(name for name in ORDERS if name not in ("fairshare", "fairtree", "multifactor", "qssf"))


class ThroughJson(CompiledDecider):
    """The same, but all that it is given has been JSON."""

    def decide(self, view: View) -> object:  # type: ignore[override]
        return super().decide(Retold(view))  # type: ignore[arg-type]


def assert_same(case: Case, policy: str, dispatch: str, conditions: Conditions) -> None:
    if has_queues_joined_by_jobs(case):
        reject()
    options = {"estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    whole = simulate(case.workload, case.cluster, policy, dispatch=dispatch, **options)
    decider = ThroughJson(policy, dispatch=dispatch, conditions=conditions)
    asked = simulate(case.workload, case.cluster, decider, **options)
    np.testing.assert_array_equal(asked.status, whole.status, err_msg=policy)
    np.testing.assert_array_equal(asked.start, whole.start, err_msg=policy)
    np.testing.assert_array_equal(asked.end, whole.end, err_msg=policy)
    assert pieces_of(asked) == pieces_of(whole), policy


def pieces_of(schedule: Schedule) -> list[tuple[int, ...]]:
    """On which nodes and GPUs jobs ran."""
    columns = (schedule.piece_job, schedule.piece_start, schedule.piece_node, schedule.piece_tasks, schedule.piece_gpus)
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("backfill", [name for name in BACKFILLS if name != "easy-strict"])  # which decides after every event
@tries(60)
@given(cases(max_jobs=12), st.sampled_from(SEEN), st.sampled_from(PLACEMENTS), st.sampled_from(BOUNDS), st.sampled_from(DISPATCHES))
def test_orders_and_backfills(backfill: str, case: Case, order: str, placement: str, bound: str, dispatch: str) -> None:
    assume(placement != "fgd")  # which goes by the jobs of the whole log
    assert_same(case, f"{order}+{backfill}{bound}@{placement}", dispatch, Conditions())


@pytest.mark.parametrize("policy", ["srtf", "priority-preempt", "defrag", "defrag:sjf"])
@tries(60)
@given(case=cases(max_jobs=12), costs=stopping_costs())
def test_policies_that_stop_jobs(policy: str, case: Case, costs: object) -> None:
    assert_same(case, policy, "reorder", Conditions(preemption=costs))  # type: ignore[arg-type]


OWN = """
STATE_SIZE = 1
PARAMS = [2.0]

def scattered(job):
    return (job.index * 7919) % 13

def live(job, now, queue, cluster, state):
    state[0] += 1.0
    return (job.index + state[0]) % 5 - (now - job.submit) * cluster.utilisation / queue.length

def held(job, params):
    return job.index % 3

def held_hold(job, now, params):
    return max(params[0] - (now - job.submit), 0.0) if job.index % 2 else 0.0
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("own") / "own.py"
    path.write_text(OWN, encoding="utf-8")
    return path


@pytest.mark.parametrize("policy", ["{}:scattered+easy", "{}:live+greedy", "{}:held+conservative", "{}:held~2s"])
@tries(60)
@given(case=cases(max_jobs=12), dispatch=st.sampled_from(DISPATCHES))
def test_functions_of_a_user(own: Path, policy: str, case: Case, dispatch: str) -> None:
    assert_same(case, policy.format(own), dispatch, Conditions())


@pytest.mark.parametrize("policy", ["saf+conservative~1h@spread", "sjf+slurm@spread", "fcfs+conservative@random"])
def test_a_crowded_cluster(policy: str) -> None:
    """Reservations are on single GPUs: which ones a job gets decides what fits later."""
    workload, cluster = load_workload("bursty", jobs=120, seed=1).workload, load_cluster("4x8:V100-16")
    case = Case(workload, cluster, workload.runtime, 1, False)
    assert_same(case, policy, "reorder", Conditions())


def test_jobs_of_one_instant_go_by_their_place_in_the_log_not_by_their_ids() -> None:
    workload = Workload(
        submit=np.zeros(3), runtime=np.array([3.0, 2.0, 1.0]), num_tasks=np.ones(3, np.int32), cpu_milli=np.full(3, 1000, np.int32),
        job_id=np.array([9, 5, 7]),
    )  # fmt: skip
    schedule = simulate(workload, load_cluster("flat:1"), CompiledDecider("fcfs"), estimates="oracle")
    assert schedule.start.tolist() == [0.0, 3.0, 5.0]


def test_orders_by_request_need_all_requests() -> None:
    workload = load_workload("bench", jobs=60, seed=1).workload
    requested = workload.runtime * np.linspace(3.0, 1.0, 60)
    case = Case(workload.replace(requested=requested), load_cluster("2x8:V100-16"), workload.runtime, 0, False)
    assert_same(case, "saf:requested+easy", "reorder", Conditions())
    requested[7] = np.nan
    with pytest.raises(InputError, match="goes by requested times, and job 7 has none"):
        simulate(workload.replace(requested=requested), case.cluster, CompiledDecider("saf:requested+easy"), estimates="oracle")


CLASS = """
from queuewise.policies.interface import Start

class InOrder:
    def decide(self, view):
        for job in view.queue:
            if view.fits(job):
                yield Start(job)
"""


@pytest.mark.parametrize(
    ("suffix", "options"), [("~1h", {}), ("@spread", {}), ("", {"max_wait": "1h"}), ("", {"params": [1.0]})]
)  # fmt: skip
def test_what_a_class_alone_cannot_keep_is_refused(tmp_path: Path, suffix: str, options: dict[str, Any]) -> None:
    path = tmp_path / "own.py"
    path.write_text(CLASS, encoding="utf-8")
    with pytest.raises(InputError, match="a class decides by itself") as raised:
        make_decider(f"{path}:InOrder{suffix}", **options)
    assert f"make_decider('{path}:InOrder')" in raised.value.hint
    assert hasattr(make_decider(f"{path}:InOrder@pack"), "decide")


@pytest.mark.parametrize("policy", ["fcfs+easy-strict", "fcfs+easy@fgd"])
def test_what_goes_by_more_than_an_instant_is_refused(policy: str) -> None:
    with pytest.raises(InputError, match="which a view does not show"):
        make_decider(policy)


def test_what_users_have_had_is_not_shown_either(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("def mine(job, user):\n    return user.recent_work\n", encoding="utf-8")
    with pytest.raises(InputError, match="past usage, which a view does not show"):
        CompiledDecider(f"{path}:mine+easy")


@pytest.mark.parametrize("policy", ["qssf+easy", "saf:oracle", "fcfs+easy:sjf:noisy:0.5", "fairshare", "las", "tiresias:600"])
def test_what_a_view_does_not_show_is_refused(policy: str) -> None:
    with pytest.raises(InputError, match="view"):
        CompiledDecider(policy)
