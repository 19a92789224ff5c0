"""What a snapshot holds, how it is written and read, and which replays it can start."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise import Snapshot
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Outage, Power
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.policies.simulation import Simulation
from queuewise.workload.jobs import Workload

CLUSTER = load_cluster("2x2:V100-16")


def jobs(**columns: Any) -> Workload:
    """Job 10 takes both GPUs of node 0 until 100, job 11 one of node 1 until 50; 12 waits for four, 13 comes at 60."""
    values: dict[str, Any] = {
        "submit": np.array([0.0, 0.0, 5.0, 60.0]), "runtime": np.array([100.0, 50.0, 20.0, 1.0]),
        "requested": np.array([200.0, 90.0, 30.0, 2.0]),
        "num_tasks": np.array([1, 1, 2, 1], np.int32), "gpu_milli": np.array([2000, 1000, 2000, 1000], np.int32),
        "job_id": np.array([10, 11, 12, 13]), "user": np.array([0, 1, -1, 0], np.int32), "users": ("ann", "bob"),
    }  # fmt: skip
    return Workload(**values | columns)


def taken(until: float = 10.0, policy: str = "fcfs+easy", **options: Any) -> Snapshot:
    simulation = Simulation(jobs(), CLUSTER, policy, **options)
    simulation.run(until)
    return simulation.snapshot()


def test_what_it_holds() -> None:
    snapshot = taken()
    assert snapshot.now == 5.0
    assert [(one.job.job_id, one.start, one.expected_end, one.places) for one in snapshot.running] == [
        (10, 0.0, 200.0, ((0, 1, (0, 1)),)),
        (11, 0.0, 90.0, ((1, 1, (0,)),)),
    ]
    assert [(one.job.job_id, one.job.estimate, one.job.user, one.job.num_tasks) for one in snapshot.queue] == [(12, 30.0, None, 2)]
    assert [(node.state, node.free_gpus, node.free_cpu_milli) for node in snapshot.nodes] == [("up", (), None), ("up", (1,), None)]
    assert snapshot.history.starts == 2
    assert taken(70.0).history.ended == ((11, "done", 0.0, 50.0, 0), (13, "done", 60.0, 61.0, 0))


def test_nodes_that_are_down_drained_or_asleep() -> None:
    outages = (Outage(node=0, start=2, end=90, kind="fail"), Outage(node=1, start=3, end=90, kind="drain"))
    assert [node.state for node in taken(conditions=Conditions(outages=outages)).nodes] == ["down", "drained"]
    late = taken(70.0, conditions=Conditions(power=Power(sleep_after_s=5, wake_s=1)))
    assert [(node.asleep, node.idle_since) for node in late.nodes] == [(False, None), (False, 62.0)]  # it woke at 61


def test_it_survives_a_file(tmp_path: Path) -> None:
    snapshot = taken()
    snapshot.save(tmp_path / "s.json")
    assert Snapshot.load(tmp_path / "s.json") == snapshot
    assert json.loads((tmp_path / "s.json").read_text())["running"][0]["places"] == [[0, 1, [0, 1]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-2], "is not JSON"),
        (lambda text: "[]", "has version None, not 1"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "has version 2, not 1"),
        (lambda text: text.replace('"now"', '"then"'), "now: Field required|then: "),
        (lambda text: text.replace('"now": 5.0', '"now": NaN'), "now: .*finite"),
        (lambda text: text.replace('"submit": 5.0', '"submit": "early"'), "queue.0.job.submit: "),
    ],
)
def test_broken_files_are_refused(change: Any, message: str, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text(change(taken().to_json()), encoding="utf-8")
    with pytest.raises(InputError, match=message) as raised:
        Snapshot.load(tmp_path / "s.json")
    assert raised.value.where == str(tmp_path / "s.json")
    assert raised.value.hint


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Snapshot.load(tmp_path / "absent.json")


def test_another_policy_goes_on_with_the_same_jobs() -> None:
    """Under srtf, job 12 takes the place of job 10 at 50, or those of 10 and 11 at 5; under fcfs they go on at 25."""
    assert simulate(jobs(), CLUSTER, "srtf", start=taken()).start.tolist() == [0.0, 0.0, 50.0, 60.0]
    stopped = taken(policy="srtf")
    assert [(one.job.job_id, one.progress.stops, sum(one.progress.done_s)) for one in stopped.queue] == [(10, 1, 5.0), (11, 1, 5.0)]
    plain = simulate(jobs(), CLUSTER, "fcfs", start=stopped)
    assert plain.start.tolist() == [0.0, 0.0, 5.0, 60.0]
    assert plain.end.tolist() == [120.0, 70.0, 25.0, 61.0]


def test_a_window_takes_along_what_waits_and_runs() -> None:
    log = taken(55.0)
    assert log.select(jobs(), 3, 1).tolist() == [0, 2, 3]
    schedule = simulate(jobs().take(log.select(jobs(), 3, 1)), CLUSTER, "fcfs+easy", start=log)
    assert schedule.start.tolist() == [0.0, 100.0, 60.0]


@pytest.mark.parametrize(
    ("workload", "cluster", "message"),
    [
        (jobs().take(slice(1, 4)), CLUSTER, "job 10 of the snapshot is not in the workload; 1 such"),
        (jobs(job_id=np.array([10, 11, 12, 10])), CLUSTER, "several jobs with the same id"),
        (jobs(), load_cluster("3x2:V100-16"), "the snapshot has 2 nodes, the cluster 3"),
        (jobs(submit=np.array([0.0, 0.0, 5.0, 5.0])), CLUSTER, "job 13 was submitted before the snapshot and is not in it"),
    ],
)
def test_what_does_not_belong_to_it_is_refused(workload: Workload, cluster: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        simulate(workload, cluster, "fcfs+easy", start=taken())
    assert raised.value.hint
