"""`simulate_many` gives what `simulate` and the metrics give, replay by replay, on any number of threads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import effort
import strategies
from queuewise import Snapshot, simulate_many
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Failures, Outage, Power, Preemption
from queuewise.errors import InputError
from queuewise.evaluation.many import FIGURES, ManyReplays
from queuewise.evaluation.measure import Measurement, bounded_slowdown, last_event, measure, wait
from queuewise.evaluation.metrics import makespan
from queuewise.evaluation.scores import machine_utilisation
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload

CLUSTER = load_cluster("4x8:V100-16")
DECIDERS = Path(__file__).parents[3] / "examples" / "policies" / "deciders.py"
WINDOWS = [(0, 60), (45, 40), (80, 1), (20, 100)]
ORDERS = tuple(f"{order}+easy" for order in strategies.ORDERS)
BACKFILLS = tuple(
    f"{order}+{rule}{rest}"
    for rule in strategies.BACKFILLS
    for order, rest in (("sjf", ""), ("wfp3", ""), ("fcfs", "/2:saf"))
    if not rest or rule in strategies.WITH_SECOND_ORDER
)
PLACEMENTS = tuple(f"saf+easy@{placement}" for placement in strategies.PLACEMENTS)
POLICIES = (*ORDERS, *BACKFILLS, *PLACEMENTS)
TROUBLED = Conditions(preemption=Preemption(restart_s=5, quantum_s=20), failures=Failures(mtbf_h=2, mttr_h=0.2, seed=1))
KILLING = Conditions(preemption=Preemption(mode="kill"), outages=(Outage(node=1, start=500, end=900, kind="drain"),), requeue=False)
ASLEEP = Conditions(power=Power(sleep_after_s=30, wake_s=10))


def jobs(num: int = 150) -> Workload:
    rng = np.random.default_rng(3)
    runtime = rng.lognormal(4, 1.5, num)
    return Workload(
        submit=np.sort(rng.uniform(0, 1500, num)),
        runtime=runtime,
        requested=runtime * rng.choice([0.5, 1.0, 3.0], num),
        num_tasks=rng.choice([1, 2, 4, 40], num, p=[0.4, 0.3, 0.28, 0.02]).astype(np.int32),
        gpu_milli=rng.choice([500, 1000, 2000, 4000], num).astype(np.int32),
        priority=rng.integers(0, 5, num).astype(np.float64),
        user=rng.integers(0, 4, num).astype(np.int32),
        users=("a", "b", "c", "d"),
    )


def figures_of_one(workload: Workload, cluster: Any, policy: str, **options: Any) -> tuple[dict[str, float], Any]:
    schedule = simulate(workload, cluster, policy, **options)
    m = measure(schedule)
    waits, slowdowns = wait(m), bounded_slowdown(m)
    of_jobs = (waits.mean(), waits.max(), slowdowns.mean()) if waits.size else (None, None, None)
    found = (*of_jobs, makespan(m), machine_utilisation(m))
    return dict(zip(FIGURES, (np.nan if figure is None else float(figure) for figure in found), strict=True)), schedule.start


def assert_equal_to_simulate(
    found: ManyReplays, workload: Workload, cluster: Any, policies: tuple[str, ...], windows: list[tuple[int, int]], **options: Any
) -> None:
    assert found.starts is not None
    for k, policy in enumerate(policies):
        for w, (first, number) in enumerate(windows):
            expected, start = figures_of_one(workload.take(slice(first, first + number)), cluster, policy, **options)
            np.testing.assert_array_equal(found.starts[k][w], start, err_msg=f"{policy}, window {w}")
            for name, figure in expected.items():
                np.testing.assert_equal(getattr(found, name)[k, w], figure, err_msg=f"{policy}, window {w}, {name}")


@pytest.mark.parametrize(
    ("policies", "options"),
    [
        (POLICIES, {}),
        (strategies.PREEMPTIVE, {}),
        (POLICIES, {"dispatch": "commit", "estimates": "noisy:0.5", "seed": 7}),
        (("sjf+easy", "fcfs+conservative", "random", "qssf+easy", "saf+greedy@random"), {"kill_at_limit": True, "estimates": "oracle"}),
        (("sjf+easy", "fairshare+easy", "fcfs+conservative", *strategies.PREEMPTIVE), {"conditions": TROUBLED, "estimates": "predicted"}),
        (("sjf+easy", "wfp3+greedy", "srtf", "las", "defrag"), {"conditions": KILLING}),
        (("sjf+easy", "fcfs+easy", "hrrn+easy@spread"), {"conditions": ASLEEP}),
    ],
    ids=["plain", "preemptive", "commit", "killed", "troubled", "killing", "asleep"],
)
def test_every_replay_is_that_of_simulate(policies: tuple[str, ...], options: dict[str, Any]) -> None:
    found = simulate_many(jobs(), CLUSTER, policies, windows=WINDOWS, per_job=True, threads=2, **options)
    assert found.wait_s.shape == (len(policies), len(WINDOWS))
    assert_equal_to_simulate(found, jobs(), CLUSTER, policies, WINDOWS, **options)


@effort.tries(60)
@given(strategies.cases(), st.lists(strategies.policies(), min_size=1, max_size=4), st.sampled_from(strategies.DISPATCHES), st.data())
def test_of_anything(case: strategies.Case, policies: list[str], dispatch: str, data: st.DataObject) -> None:
    number = len(case.workload)
    firsts = data.draw(st.lists(st.integers(0, number - 1), min_size=1, max_size=3))
    windows = [(first, data.draw(st.integers(1, number - first))) for first in firsts]
    assume(not any(np.isnan(case.workload.requested[first : first + length]).all() for first, length in windows))
    options: dict[str, Any] = {"dispatch": dispatch, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    found = simulate_many(case.workload, case.cluster, policies, windows=windows, estimates=case.known, per_job=True, **options)
    assert found.starts is not None
    for k, policy in enumerate(policies):
        for w, (first, length) in enumerate(windows):
            part = slice(first, first + length)
            expected, start = figures_of_one(case.workload.take(part), case.cluster, policy, estimates=case.known.take(part), **options)
            np.testing.assert_array_equal(found.starts[k][w], start)
            assert {name: getattr(found, name)[k, w] for name in FIGURES} == pytest.approx(expected, rel=0, abs=0, nan_ok=True)


def test_threads_change_nothing() -> None:
    policies = (*ORDERS[:6], "srtf", "wfp3+easy", "fcfs+conservative")
    results = [simulate_many(jobs(), CLUSTER, policies, windows=windows, threads=threads, per_job=True)
               for threads, windows in ((1, WINDOWS), (2, WINDOWS), (7, WINDOWS), (3, WINDOWS))]  # fmt: skip
    for other in results[1:]:
        for name in FIGURES:
            np.testing.assert_array_equal(getattr(other, name), getattr(results[0], name))
        assert other.starts is not None
        assert results[0].starts is not None
        for mine, its in zip(results[0].starts, other.starts, strict=True):
            np.testing.assert_array_equal(np.concatenate(mine), np.concatenate(its))


def test_starts_are_left_out_unless_asked_for() -> None:
    assert simulate_many(jobs(), CLUSTER, ["fcfs"], windows=WINDOWS).starts is None


def test_what_decides_in_python_is_replayed_as_well() -> None:
    policies = ("sjf+easy", f"{DECIDERS}:WhateverFits", "fcfs")
    found = simulate_many(jobs(), CLUSTER, policies, windows=WINDOWS[:2], per_job=True)
    assert_equal_to_simulate(found, jobs(), CLUSTER, policies, WINDOWS[:2])


def snapshots_at(windows: list[tuple[int, int]], policy: str, conditions: Conditions) -> list[Snapshot]:
    """Of one replay of all jobs, just before the first job of each window is submitted."""
    found = []
    for first, _ in windows:
        simulation = Simulation(jobs(), CLUSTER, policy, conditions=conditions)
        simulation.run(until=np.nextafter(jobs().submit[first], -np.inf))
        found.append(simulation.snapshot(history=False))
    return found


@pytest.mark.parametrize("conditions", [Conditions(), TROUBLED], ids=["free", "troubled"])
@pytest.mark.parametrize("reference", ["fcfs+easy", "srtf"])
def test_windows_start_from_snapshots(reference: str, conditions: Conditions) -> None:
    windows, policies = (
        [(30, 60), (45, 40), (149, 1)],
        ("sjf+easy", "fcfs", "wfp3+greedy", "fairshare+easy", "srtf", f"{DECIDERS}:WhateverFits"),
    )
    start = snapshots_at(windows, reference, conditions)
    found = simulate_many(jobs(), CLUSTER, policies, windows=windows, start=start, conditions=conditions, per_job=True)
    empty = simulate_many(jobs(), CLUSTER, policies, windows=windows, conditions=conditions)
    assert (found.wait_s[:, 0] > empty.wait_s[:, 0]).all()  # jobs were there before
    assert found.starts is not None
    for k, policy in enumerate(policies):
        for w, ((first, number), snapshot) in enumerate(zip(windows, start, strict=True)):
            rows = snapshot.select(jobs(), first, number)
            schedule = simulate(jobs().take(rows), CLUSTER, policy, start=snapshot, conditions=conditions)
            np.testing.assert_array_equal(found.starts[k][w], schedule.start[-number:], err_msg=policy)
            assert (schedule.start[-number:] >= jobs().submit[first : first + number]).all()
            m = Measurement(schedule, slice(len(rows) - number, len(rows)), float(jobs().submit[first]), last_event(schedule))
            assert found.wait_s[k, w] == wait(m).mean()
            assert found.utilisation[k, w] == machine_utilisation(m)


def test_one_snapshot_per_window_is_needed() -> None:
    with pytest.raises(InputError, match="there are 1 snapshots for 4 windows"):
        simulate_many(jobs(), CLUSTER, ["fcfs"], windows=WINDOWS, start=snapshots_at(WINDOWS[:1], "fcfs", Conditions()))
    with pytest.raises(InputError, match="start is 'warm'"):
        simulate_many(jobs(), CLUSTER, ["fcfs"], windows=WINDOWS, start="warm")  # type: ignore[arg-type]


SOURCE = """
TIME_LIMIT_S = 0.5
STATE_SIZE = 2
PARAMS = [1.0, 0.0]

def by_job(job):
    return job.estimate * job.width

def by_time(job, now, queue, cluster):
    return -(now - job.submit) * cluster.utilisation - queue.length

def remembers(job, state):
    state[0] += 1
    return job.estimate if state[0] % 3 else -job.estimate

def gives_up(job, now):
    if now > 300:
        raise ValueError("I give up")
    return 0.0

def nan_once(job):
    return job.estimate / 0.0 - job.estimate / 0.0

def never_returns(job, now):
    while job.submit >= 0:
        now += 1e-9
    return now

def favourite(node):
    return -node.index

def parametric(job, params):
    return job.estimate ** params[0] * job.width ** params[1]

def live(job, now, params):
    return -params[0] * (now - job.submit) / (job.estimate + params[1])
"""


@pytest.fixture
def mine(tmp_path: Path) -> str:
    path = tmp_path / "mine.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def test_score_functions_of_a_user(mine: str) -> None:
    policies = (
        f"{mine}:by_job+easy", f"{mine}:by_time+easy", f"{mine}:remembers", f"fcfs+easy:{mine}:by_job", f"sjf+easy@{mine}:favourite",
    )  # fmt: skip
    found = simulate_many(jobs(), CLUSTER, policies, windows=WINDOWS, per_job=True)
    assert_equal_to_simulate(found, jobs(), CLUSTER, policies, WINDOWS)


@pytest.mark.parametrize("name", ["parametric+easy", "live+easy", "live", "parametric+conservative", "live+greedy~200s"])
def test_parameters_of_a_score_function(mine: str, name: str) -> None:
    policy = f"{mine}:{name}"
    candidates: list[Any] = [policy, (policy, (0.5, 1.0)), (policy, [2.0, 0.5]), "sjf+easy", (policy, np.array([1.0, 0.0]))]
    found = simulate_many(jobs(), CLUSTER, candidates, windows=WINDOWS, per_job=True)
    assert found.starts is not None
    for k, params in enumerate((None, (0.5, 1.0), (2.0, 0.5), None, (1.0, 0.0))):
        for w, (first, number) in enumerate(WINDOWS):
            part = jobs().take(slice(first, first + number))
            expected = simulate(part, CLUSTER, "sjf+easy" if k == 3 else policy, params=params)
            np.testing.assert_array_equal(found.starts[k][w], expected.start)
    assert len({tuple(found.starts[k][0]) for k in (0, 1, 2)}) > 1  # parameters matter


def test_a_bound_for_all_policies() -> None:
    policies = ("sjf+easy", "saf+greedy~100s", "srtf", "fcfs")
    found = simulate_many(jobs(), CLUSTER, policies, windows=WINDOWS, max_wait="300s", per_job=True)
    assert_equal_to_simulate(found, jobs(), CLUSTER, policies, WINDOWS, max_wait="300s")


def test_parameters_that_a_policy_does_not_take_are_refused(mine: str) -> None:
    with pytest.raises(InputError, match="takes params"):
        simulate_many(jobs(), CLUSTER, [("sjf+easy", [1.0])], windows=WINDOWS)
    with pytest.raises(InputError, match="takes 2 finite parameters"):
        simulate_many(jobs(), CLUSTER, [(f"{mine}:parametric", [1.0])], windows=WINDOWS)


@pytest.mark.parametrize(
    ("name", "message", "line"),
    [
        ("gives_up", "ValueError: I give up", 18),
        ("nan_once", "returned NaN for job", 21),
        ("never_returns", "did not return within 0.5 s", 24),
    ],
)
def test_errors_of_a_function_name_its_line(mine: str, name: str, message: str, line: int) -> None:
    with pytest.raises(InputError, match=message) as raised:
        simulate_many(jobs(), CLUSTER, ["fcfs", f"{mine}:{name}+easy"], windows=WINDOWS)
    assert raised.value.where == f"{mine}:{line}"


@pytest.mark.parametrize("window", [(0, 0), (-1, 5), (140, 11), (150, 1), (3, -2)])
def test_windows_outside_the_workload_are_refused(window: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="is not a part of the 150 jobs") as raised:
        simulate_many(jobs(), CLUSTER, ["fcfs"], windows=[(0, 10), window])
    assert raised.value.hint is not None
    assert "first_job, num_jobs" in raised.value.hint


@pytest.mark.parametrize("candidate", [3, None, ("fcfs",), ("fcfs", 3), ("fcfs", ["x"])])
def test_what_is_no_candidate_is_refused(candidate: Any) -> None:
    with pytest.raises(InputError, match=r"policy is|is no policy"):
        simulate_many(jobs(), CLUSTER, [candidate], windows=WINDOWS)


@pytest.mark.parametrize(("policies", "windows", "what"), [([], WINDOWS, "candidates"), (["fcfs"], [], "windows")])
def test_nothing_to_do_is_refused(policies: list[str], windows: list[tuple[int, int]], what: str) -> None:
    with pytest.raises(InputError, match=f"no {what} are given"):
        simulate_many(jobs(), CLUSTER, policies, windows=windows)


@pytest.mark.parametrize("threads", [0, -1])
def test_numbers_of_threads_below_one_are_refused(threads: int) -> None:
    with pytest.raises(InputError, match=f"threads is {threads}"):
        simulate_many(jobs(), CLUSTER, ["fcfs"], windows=WINDOWS, threads=threads)


ENDLESS = """
import queuewise
from queuewise.workload.models import generate
jobs, cluster = generate("bench", 20_000, gpus=64, load=2.0), queuewise.load_cluster("8x8:V100-16")
queuewise.simulate_many(jobs, cluster, ["fcfs+easy"], windows=[(0, 10)])
print("ready", flush=True)
queuewise.simulate_many(jobs, cluster, ["wfp3+easy"] * 500, windows=[(0, 20_000)])
"""


def cpu_seconds(process: int) -> float:
    """That a process has used so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_ctrl_c_ends_it() -> None:
    process = subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    before, deadline = cpu_seconds(process.pid), time.monotonic() + 300
    while cpu_seconds(process.pid) - before < 0.5:  # until it surely replays, however busy the machine is
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
