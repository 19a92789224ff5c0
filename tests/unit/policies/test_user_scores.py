"""Score functions of a user's own: they order like the built-ins with the same formula, and are told what the docs say."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.errors import InputError
from queuewise.policies import parse_policy, simulate
from queuewise.policies.replaying import known_estimates
from queuewise.policies.user_code import find_user_code
from queuewise.sim.core.facts import FACTS_BLOCK
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate

SCORES = """
import math

ONE = 1.0
STATE_SIZE = 3

def sjf(job):
    return job.estimate

def f1(job):
    return math.log10(max(job.estimate, ONE)) * job.width + 870 * math.log10(max(job.submit, ONE))

def by_index(job, now):
    return job.index

def by_age(job, now, queue, state):
    elapsed = [now - submit for submit in (job.submit, 0.0)]
    return -elapsed[0]

def wfp3(now, job):
    return -cube(waiting(job, now) / max(job.estimate, ONE)) * job.width

def cube(x):
    return x * x * x

def waiting(job, now):
    return now - job.submit

def qssf(job):
    return job.predicted * job.width

def last_come(job, state):
    state[2] += 1
    if state[2] > 40:
        raise ValueError("forty calls")
    return -job.submit
"""


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("a folder") / "mine.py"
    path.write_text(SCORES, encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def workload() -> Workload:
    return generate("bench", 1500, gpus=32, load=0.95)


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    return load_cluster("4x8:V100-16")


def assert_same(found: Schedule, expected: Schedule) -> None:
    np.testing.assert_array_equal(found.start, expected.start)
    np.testing.assert_array_equal(found.piece_node, expected.piece_node)
    assert found.first_wait.max() > 0  # there was something to order


@pytest.mark.parametrize("dispatch", ["reorder", "commit"])
@pytest.mark.parametrize(
    ("own", "built_in"),
    [
        ("{}:sjf", "sjf"),
        ("{}:f1+easy", "f1+easy"),
        ("{}:by_index+greedy", "fcfs+greedy"),
        ("{}:wfp3+easy@spread", "wfp3+easy@spread"),
        ("{}:wfp3+conservative/8", "wfp3+conservative/8"),
        ("fcfs+easy:{}:sjf", "fcfs+easy:sjf"),
        ("fcfs+easy/16:{}:wfp3@pack", "fcfs+easy/16:wfp3@pack"),
        ("{0}:sjf+easy:{0}:wfp3", "sjf+easy:wfp3"),
        ("{}:qssf+easy", "qssf+easy"),
    ],
)
def test_the_same_formula_gives_the_same_schedule(
    mine: str, workload: Workload, cluster: Cluster, own: str, built_in: str, dispatch: str
) -> None:
    found = simulate(workload, cluster, own.format(mine), dispatch=dispatch)
    assert_same(found, simulate(workload, cluster, built_in, dispatch=dispatch))
    assert found.policy == own.format(mine)


def test_a_function_of_the_job_alone_is_asked_once(mine: str, workload: Workload) -> None:
    score = parse_policy(f"{mine}:sjf").compile()[0]
    assert score.make(None).function is None
    assert parse_policy(f"{mine}:wfp3").compile()[0].make(None).function is not None


@pytest.mark.parametrize(("name", "used"), [("by_index", {"job"}), ("by_age", {"job", "now"}), ("last_come", {"job", "state"})])
def test_only_parameters_that_are_used_count(mine: str, workload: Workload, cluster: Cluster, name: str, used: set[str]) -> None:
    assert find_user_code(f"{mine}:{name}").used_parameters == used
    order = parse_policy(f"{mine}:{name}").compile()[0].make(None)
    assert (order.function is None) == (used == {"job"})


def test_a_function_that_is_asked_once_is_asked_for_every_job(tmp_path: Path, cluster: Cluster) -> None:
    """Jobs are told of in blocks: here there are several, and a part of one."""
    workload = generate("bench", 5 * FACTS_BLOCK // 2, gpus=32, load=0.95)
    path = tmp_path / "mine.py"
    path.write_text("def f3(job):\n    return job.estimate * job.width + job.index * 1e-3\n", encoding="utf-8")
    scores = workload.size * known_estimates(workload, cluster, "requested", 0)[1].values + np.arange(len(workload)) * 1e-3
    ranked = dataclasses.replace(workload, priority=-scores)
    assert_same(simulate(workload, cluster, f"{path}:f3"), simulate(ranked, cluster, "priority"))


def test_a_relative_path_is_one_from_the_working_folder(
    mine: str, workload: Workload, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(mine).parent.parent)
    assert_same(simulate(workload, cluster, f"{Path(mine).parent.name}/mine.py:sjf"), simulate(workload, cluster, "sjf"))


def test_a_changed_file_is_read_anew(tmp_path: Path, workload: Workload, cluster: Cluster) -> None:
    path = tmp_path / "mine.py"
    for sign, built_in in (("", "fcfs"), ("-", "lcfs")):
        path.write_text(f"def score(job):\n    return {sign}job.submit\n", encoding="utf-8")
        assert_same(simulate(workload, cluster, f"{path}:score"), simulate(workload, cluster, built_in))


def test_state_is_kept_between_decisions_and_begins_anew_with_every_replay(mine: str, workload: Workload, cluster: Cluster) -> None:
    few = workload.take(slice(0, 4))  # too few for forty calls in one replay, enough for them in twenty
    for _ in range(20):
        simulate(few, cluster, f"{mine}:last_come", estimates="oracle")
    with pytest.raises(InputError, match="forty calls"):
        simulate(workload, cluster, f"{mine}:last_come")


def three_jobs() -> Workload:
    """Job 0 takes 3 of 4 GPUs; at 5 s the jobs 1 (2 GPUs, 20 s) and 2 (4 GPUs, 10 s) wait."""
    return Workload(
        submit=np.array([0.0, 2.0, 5.0]),
        runtime=np.array([100.0, 20.0, 10.0]),
        num_tasks=np.array([3, 1, 2], np.int32),
        gpu_milli=np.array([1000, 2000, 2000], np.int32),
        cpu_milli=np.array([2000, 1000, 500], np.int32),
        mem_mib=np.array([1024, 10, 20], np.int32),
        priority=np.array([0.0, 7.0, 0.0]),
        deadline=np.array([np.nan, 99.0, np.nan]),
        user=np.array([0, 1, 2], np.int32),
        group=np.array([0, 3, 1], np.int32),
    )


def told(tmp_path: Path, condition: str, values: str, cluster: Cluster) -> tuple[float, ...]:
    """The values that a function is told when the condition is met, by way of an error."""
    source = f"def spy(job, now, queue, cluster):\n    if {condition}:\n        raise ValueError({values})\n    return 0.0\n"
    path = tmp_path / "spy.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(InputError) as caught:
        simulate(three_jobs(), cluster, f"{path}:spy", estimates="oracle")
    assert caught.value.where == f"{path}:3"
    numbers = caught.value.message.removeprefix("ValueError: (").removesuffix(")")
    return tuple(float(number) for number in numbers.split(","))


def small() -> Cluster:
    return build("small", [NodeGroup(1, gpus=4, kind="V100-16", cpus=8, mem_gib=8), NodeGroup(1, cpus=2, mem_gib=1)])


def test_what_a_function_is_told_of_the_job(tmp_path: Path) -> None:
    fields = ["submit", "estimate", "width", "num_tasks", "gpus", "cpus", "mem_mib", "priority", "deadline", "user", "group", "index"]
    found = told(tmp_path, "job.index == 1", ", ".join(f"job.{field}" for field in fields), small())
    assert found == (2.0, 20.0, 2.0, 1.0, 2.0, 1.0, 10.0, 7.0, 99.0, 1.0, 3.0, 1.0)


def test_what_a_function_is_told_of_the_queue(tmp_path: Path) -> None:
    found = told(tmp_path, "now == 5", "now, queue.length, queue.width, queue.work, queue.oldest_submit", small())
    assert found == (5.0, 2.0, 2.0 + 4.0, 2 * 20.0 + 4 * 10.0, 2.0)


@pytest.mark.parametrize(
    ("make", "expected"),
    [
        (small, (2.0, 4.0, 1.0, 10.0, 4.0, 9 * 1024.0, 6 * 1024.0, 1.0, 0.75)),
        (lambda: load_cluster("1x4:V100-16"), (1.0, 4.0, 1.0, np.inf, np.inf, np.inf, np.inf, 1.0, 0.75)),
    ],
)
def test_what_a_function_is_told_of_the_cluster(tmp_path: Path, make: Callable[[], Cluster], expected: tuple[float, ...]) -> None:
    fields = ["nodes", "gpus", "free_gpus", "cores", "free_cores", "mem_mib", "free_mem_mib", "running_jobs", "utilisation"]
    assert told(tmp_path, "now == 5", ", ".join(f"cluster.{field}" for field in fields), make()) == expected
