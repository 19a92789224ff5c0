"""Elastic jobs: curves, ranges, the transform, files, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, VirtualCluster, build
from queuewise.envs.episodes import lay_out_episode
from queuewise.errors import InputError
from queuewise.evaluation.breakdown import breakdown
from queuewise.evaluation.jobs_table import jobs_table
from queuewise.evaluation.measure import measure
from queuewise.policies import simulate
from queuewise.reading import Reading
from queuewise.workload import load_workload
from queuewise.workload.jobs import Workload
from queuewise.workload.models import generate
from queuewise.workload.speedup import speed
from queuewise.workload.transform import make_elastic, merge, parse_elastic
from queuewise.workload.writers import write_workload

CLUSTER = build("one", [NodeGroup(1, gpus=4, kind="T4")])


def job(**columns: object) -> Workload:
    """One job of two one-GPU tasks that takes 12 s."""
    return Workload(np.zeros(1), np.full(1, 12.0), np.full(1, 2, np.int32), np.full(1, 1000, np.int32), **columns)  # type: ignore[arg-type]


def elastic(least: int, most: int, curve: str = "linear") -> Workload:
    return job(min_tasks=np.array([least], np.int32), max_tasks=np.array([most], np.int32), scalings=(curve,))


@pytest.mark.parametrize(
    ("curve", "speeds"),
    [
        ("linear", [1, 2, 4, 16]),
        ("amdahl:0.5", [1, 4 / 3, 1.6, 1 / (0.5 + 0.5 / 16)]),
        ("amdahl:1", [1, 1, 1, 1]),
        ("power:0.5", [1, np.sqrt(2), 2, 4]),
        ("table:2=1.5,4=2.5,8=3", [0.75, 1.5, 2.5, 3]),
        ("table:1=1,16=4", [1, 1.2, 1.6, 4]),
    ],
)
def test_curves(curve: str, speeds: list[float]) -> None:
    np.testing.assert_allclose(speed(curve, np.array([1, 2, 4, 16])), speeds)


@pytest.mark.parametrize(
    ("curve", "message"),
    [
        ("amdal:0.1", "scaling curve 'amdal'.*did you mean 'amdahl'"),
        ("amdahl", "needs a serial share between 0 and 1"),
        ("amdahl:1.5", "needs a serial share between 0 and 1"),
        ("power:nan", "needs an exponent between 0 and 1"),
        ("linear:2", "linear takes no parameter"),
        ("table:", "is not a list of TASKS=SPEED"),
        ("table:1=1,4", "is not a list of TASKS=SPEED"),
        ("table:0=1", "tasks must be at least 1 and speeds above 0"),
        ("table:1=1,4=3,8=2", "does not increase from 4=3 to 8=2"),
        ("table:1=1,1=2", "does not increase from 1=1 to 1=2"),
    ],
)
def test_curves_that_are_none(curve: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        elastic(1, 4, curve)


@pytest.mark.parametrize(("least", "most", "column"), [(3, 4, "min_tasks"), (0, 4, "min_tasks"), (1, 1, "max_tasks"), (4, 1, "min_tasks")])
def test_ranges_that_are_none(least: int, most: int, column: str) -> None:
    with pytest.raises(InputError, match=f"{column} is below"):
        elastic(least, most)


@pytest.mark.parametrize(
    ("curve", "end"), [("linear", 6.0), ("power:0.5", 12 / np.sqrt(2)), ("amdahl:1", 12.0), ("table:1=1,2=2,4=3", 8.0)]
)
def test_it_starts_in_the_greatest_size(curve: str, end: float) -> None:
    """Four of its up to nine tasks fit."""
    found = simulate(elastic(1, 9, curve), CLUSTER, "fcfs")
    assert found.end[0] == pytest.approx(end)
    assert jobs_table(found)["tasks_run"].to_list() == [4]
    (row,) = breakdown(measure(found), "size")
    assert row.gpu_hours == pytest.approx(4 * end / 3600)


def test_a_size_that_never_fits_is_rejected() -> None:
    assert simulate(elastic(2, 9), build("small", [NodeGroup(1, gpus=1, kind="T4")]), "fcfs").status.tolist() == [4]
    assert simulate(elastic(1, 9), build("small", [NodeGroup(1, gpus=1, kind="T4")]), "fcfs").end.tolist() == [24]


def test_rigid_jobs_do_not_scale() -> None:
    curved = job(scaling=np.zeros(1, np.int32), scalings=("amdahl:0.3",))
    assert simulate(curved, CLUSTER, "fcfs").end.tolist() == [12]


@pytest.mark.parametrize("policy", ["srtf", "las", "priority-preempt", "defrag"])
def test_policies_that_stop_jobs_know_none(policy: str) -> None:
    with pytest.raises(InputError, match="policies that preempt or migrate do not support elastic jobs") as caught:
        simulate(elastic(1, 4), CLUSTER, policy)
    assert "--elastic" in caught.value.hint
    assert "quotas" not in caught.value.hint


def test_quotas_know_none() -> None:
    shared = build("shared", [NodeGroup(1, gpus=4, kind="T4")], virtual_clusters=[VirtualCluster("a", 2)])
    workload = elastic(1, 4).replace(group=np.zeros(1, np.int32), groups=("a",))
    with pytest.raises(InputError, match="quotas do not support elastic jobs"):
        simulate(workload, shared, "fcfs", conditions=Conditions(quotas=True))


def test_environments_know_none() -> None:
    with pytest.raises(InputError, match="do not support elastic jobs"):
        lay_out_episode(elastic(1, 4), CLUSTER, None, None, np.zeros(1))  # type: ignore[arg-type]


def test_the_transform() -> None:
    jobs = generate("poisson", 500, seed=1)
    made = make_elastic(jobs, 0.3, 0.5, 2.5, "power:0.8", seed=2)
    chosen = made.is_elastic
    assert 0.2 < chosen[jobs.num_tasks > 1].mean() < 0.4
    np.testing.assert_array_equal(made.min_tasks[chosen], np.maximum(np.ceil(jobs.num_tasks[chosen] / 2), 1))
    np.testing.assert_array_equal(made.max_tasks[chosen], np.floor(jobs.num_tasks[chosen] * 2.5))
    assert {made.scalings[code] for code in made.scaling[chosen]} == {"power:0.8"}
    np.testing.assert_array_equal(made.min_tasks[~chosen], jobs.num_tasks[~chosen])
    np.testing.assert_array_equal(made.runtime, jobs.runtime)
    both = merge([jobs, made])
    assert both.is_elastic.sum() == chosen.sum()
    assert {both.scalings[code] for code in both.scaling[both.is_elastic]} == {"power:0.8"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.3", "is not SHARE,LEAST-MOST,CURVE"),
        ("0.3,2,linear", "is not SHARE,LEAST-MOST,CURVE"),
        ("0,0.5-2,linear", "cannot make a share of 0 of the jobs elastic"),
        ("0.3,2-0.5,linear", "invalid range for elastic jobs: 2 to 0.5 times their tasks"),
        ("0.3,0.5-2,cubic", "scaling curve 'cubic'"),
    ],
)
def test_transforms_that_are_none(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make_elastic(job(), *parse_elastic(text))


def test_the_command_line_option() -> None:
    loaded = Reading(elastic="1,1-2,table:1=1,8=4").load("poisson", 50, 0)
    assert loaded.workload.is_elastic.all()
    assert loaded.workload.scalings[-1] == "table:1=1,8=4"


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_files_hold_them(suffix: str, tmp_path: Path) -> None:
    made = make_elastic(generate("poisson", 100, seed=1), 0.5, 0.5, 2, "amdahl:0.1")
    assert write_workload(made, tmp_path / f"jobs.{suffix}") == []
    back = load_workload(tmp_path / f"jobs.{suffix}").workload
    for column in ("min_tasks", "max_tasks"):
        np.testing.assert_array_equal(getattr(back, column), getattr(made, column))
    assert [back.scalings[code] for code in back.scaling] == [made.scalings[code] for code in made.scaling]
    assert any("elastic" in note for note in write_workload(made, tmp_path / "jobs.swf"))


def test_rows_with_impossible_ranges_are_skipped_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    rows = ["0,5,2,1,4,amdahl:0.1", "1,5,2,3,4,", "2,5,2,,1,", "3,5,2,1.5,2,", "4,5,2,,,"]
    path.write_text("submit,runtime,gpus,min_tasks,max_tasks,scaling\n" + "\n".join(rows) + "\n")
    loaded = load_workload(path)
    assert loaded.tally.skipped == {"num_tasks is not between min_tasks and max_tasks": 3}
    assert loaded.workload.is_elastic.tolist() == [True, False]
    assert simulate(loaded.workload, load_cluster("1x4:T4"), "fcfs").end[0] < 5
    path.write_text("submit,runtime,gpus,max_tasks,scaling\n0,5,2,4,amdahl:7\n")
    with pytest.raises(InputError, match=r"jobs\.csv: scaling curve 'amdahl:7' needs a serial share"):
        load_workload(path)


def test_new_numbers_of_tasks_are_rigid_unless_ranges_are_given() -> None:
    cores = np.full(2, 1000, np.int32)
    two = Workload(submit=np.zeros(2), runtime=np.ones(2), num_tasks=np.array([4, 2], np.int32), cpu_milli=cores)
    fewer = two.replace(num_tasks=np.ones(2, np.int32))
    assert not fewer.is_elastic.any()
    elastic = two.replace(num_tasks=np.full(2, 3, np.int32), min_tasks=np.array([1, 3], np.int32))
    assert elastic.is_elastic.tolist() == [True, False]
