"""What a snapshot holds, how it is written and read, and which replays it can start."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
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
from queuewise.sim.core.schedule import STATUS_NAMES
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


@pytest.mark.parametrize("policy", ["fcfs+easy", "sjf+conservative", "wfp3", "srtf"])
def test_a_waiting_job_that_can_never_run_is_rejected(policy: str) -> None:
    """In a replay it would have been rejected at its arrival, but somebody else's queue may have it: it waits there for ever."""
    snapshot = taken()
    (waiting,) = snapshot.queue
    impossible = replace(waiting, job=replace(waiting.job, num_tasks=9, min_tasks=9, max_tasks=9))
    tasks = np.array([1, 1, 9, 1], np.int32)
    schedule = simulate(jobs(num_tasks=tasks), CLUSTER, policy, start=replace(snapshot, queue=(impossible,)))
    assert [STATUS_NAMES[status] for status in schedule.status] == ["done", "done", "rejected", "done"]
    assert schedule.start[3] == 60.0


def test_nodes_that_are_down_drained_or_asleep() -> None:
    outages = (Outage(node=0, start=2, end=90, kind="fail"), Outage(node=1, start=3, end=90, kind="drain"))
    assert [node.state for node in taken(conditions=Conditions(outages=outages)).nodes] == ["down", "drained"]
    late = taken(70.0, conditions=Conditions(power=Power(sleep_after_s=5, wake_s=1)))
    assert [(node.asleep, node.idle_since) for node in late.nodes] == [(False, None), (False, 62.0)]  # it woke at 61


def test_two_runs_of_one_instant_stay_apart() -> None:
    """The node fails when job 10 has just started there: under easy-strict, which decides after every event, it starts again at once."""
    conditions = Conditions(outages=(Outage(node=0, start=0, end=90, kind="fail"),))
    simulation = Simulation(jobs().take(slice(0, 1)), CLUSTER, "fcfs+easy-strict", conditions=conditions)
    simulation.run(until=0.0)
    (running,) = Snapshot.from_json(simulation.snapshot().to_json()).running
    assert running.places == ((1, 1, (0, 1)),)
    assert [(run.start, run.end, run.places) for run in running.runs] == [(0.0, 0.0, ((0, 1, (0, 1)),))]


def test_it_survives_a_file(tmp_path: Path) -> None:
    snapshot = taken()
    snapshot.save(tmp_path / "s.json")
    assert Snapshot.load(tmp_path / "s.json") == snapshot
    assert json.loads((tmp_path / "s.json").read_text())["running"][0]["places"] == [[0, 1, [0, 1]]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text[:-2], "is not JSON"),
        (lambda text: "[]", "is a JSON list, not an object"),
        (lambda text: "{}", "has version None, not 1"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: text.replace('"version": 1', '"version": 2'), "has version 2, not 1"),
        (lambda text: text.replace('"now"', '"then"'), "now: missing|then: "),
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


@pytest.mark.parametrize("text", [None, 3, {"version": 1}])
def test_only_text_can_be_read(text: Any) -> None:
    with pytest.raises(InputError, match=r"is .*, not text"):
        Snapshot.from_json(text)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="is not JSON"):
        Snapshot.load(tmp_path / "s.json")


def twice(queue: Any, **fields: Any) -> Any:
    """The waiting job and one like it, number 99."""
    return [queue[0] | fields, queue[0] | fields | {"job": queue[0]["job"] | {"job_id": 99}}]


def changed(path: str, value: Any) -> str:
    """The JSON of a snapshot with another value at a path. A value that is a function gets what stands there now."""
    content = json.loads(taken().to_json())
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = content
    for part in way:
        place = place[part]
    place[last] = value(place[last]) if callable(value) else value
    return json.dumps(content)


RUN = {"start": 1.0, "end": 2.0, "places": [[0, 1, [0, 1]], [1, 1, [0, 1]]]}  # of job 12, if it is submitted earlier


def with_run(**fields: Any) -> Any:
    """Changes job 12: submitted at 0, it ran from 1 to 2."""
    progress = {"stops": 1, "worked_s": 1.0, "done_s": [1.0, 0.0]} | fields.pop("progress", {})
    runs = [RUN | fields.pop("run", {})]
    return lambda one: one | {"job": one["job"] | {"submit": 0.0}, "runs": runs, "progress": one["progress"] | progress} | fields


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("now", -1e9, "job 12 is submitted at 5 s, after the snapshot"),
        ("now", 4.0, "job 12 is submitted at 5 s, after the snapshot"),
        ("nodes.1.state", "zzz", "node 1 is 'zzz', not up, down or drained"),
        ("nodes.1.index", 7, "node 7 is at position 1"),
        ("nodes", lambda nodes: nodes[:1], "running job 11 has impossible places: there is no node 1"),
        ("nodes.1.free_gpus", [1, 1], "node 1 has free GPUs"),
        ("nodes.1.free_gpus", [0, 1], "node 1 has 2000 milli of GPU 0"),
        ("nodes.1.free_gpus", [64], "node 1 has free GPUs"),
        ("nodes.1.shared_gpus", {"1": 0}, "node 1 has "),
        ("nodes.0.free_cpu_milli", -1, "node 0 has free_cpu_milli -1"),
        ("queue", lambda queue: queue * 2, "job 12 is in the snapshot 2 times"),
        ("queue.0.job.job_id", 10, "job 10 is in the snapshot 2 times"),
        ("history.ended", [[12, "done", 0.0, 1.0, 0]], "job 12 is in the snapshot 2 times"),
        ("history.ended", [[9, "asleep", 0.0, 1.0, 0]], "job 9 has ended as 'asleep'"),
        ("history.ended", [[9, "done", 0.0, 99.0, 0]], "job 9 has ended at 99 s, after"),
        ("history.ended", [[9, "done", 0.0, 1.0, -1]], "job 9 was stopped -1 times"),
        ("history.starts", -1, "counts -1 starts"),
        ("history.looped_at", 6.0, "before a loop of Slurm at 6 s"),
        ("history.dependencies", [[13, -1, None, False]], "job 13 wait for -1 others"),
        ("queue.0.job.job_id", 10**30, "more than 64 bits"),
        ("queue.0.job.num_tasks", -1, "job 12 has num_tasks -1"),
        ("queue.0.job.num_tasks", 10**30, "job 12 has num_tasks 1000"),
        ("queue.0.job.gpu_milli", 1500, "job 12 has gpu_milli 1500"),
        ("queue.0.job.gpu_milli", 0, "job 12 asks for no GPU"),
        ("queue.0.job.mem_mib", -5, "job 12 has cpu_milli 0 and mem_mib -5"),
        ("queue.0.job.estimate", -5.0, "job 12 has estimate -5"),
        ("queue.0.progress.stops", -1, "job 12 has stops -1"),
        ("queue.0.progress.worked_s", -1.0, "job 12 has worked_s -1"),
        ("queue.0.progress.stops", 5, "job 12 has stops 5, but 0 earlier runs"),
        ("queue.0.progress.done_s", [1e308, 1e308], "job 12 has done_s .1e.308, 1e.308. after 0 s of work"),
        ("queue.0.progress.done_s", [-500.0, 0.0], "job 12 has done_s .-500.0, 0.0."),
        ("queue.0.progress.done_s", [1e9, 0.0], "job 12 has done_s .1000000000.0, 0.0. after 0 s of work"),
        ("queue.0", with_run(progress={"stops": 2}), "job 12 has stops 2, but 1 earlier runs"),
        ("queue.0", with_run(progress={"worked_s": 2.0}), "job 12 has worked for 2 s, but its earlier runs have 1 s"),
        ("queue.0", with_run(first_start=0.5), "waiting job 12 has first_start 0.5 s"),
        ("queue.0", with_run(first_start=6.0), "waiting job 12 has first_start 6 s"),
        ("queue.0", with_run(run={"end": 6.0}), "job 12 has an earlier run from 1 to 6 s"),
        ("queue.0", with_run(run={"places": [[0, 2, [0, 1]]]}), "needs 4 different GPUs"),
        ("queue.0.runs", [RUN], "job 12 has an earlier run from 1 to 2 s: runs follow each other, from the submission at 5 s"),
        ("queue.0.first_start", 5.0, "waiting job 12 has first_start 5 s, which is in or after none of its 0 earlier runs"),
        ("queue", lambda queue: twice(queue, committed=True), "waiting job 99 is committed, and so is job 12"),
        ("queue.0", lambda one: one | {"committed": True, "awaits_others": True}, "waiting job 12 is committed, but in no queue"),
        ("nodes.0.state", "down", "node 0 is down, but job 10 runs there"),
        ("nodes.0.asleep", True, "node 0 is asleep, but job 10 runs there"),
        ("nodes.0.idle_since", 3.0, "node 0 is idle since 3 s, but job 10 runs there"),
        ("nodes.1.idle_since", 6.0, "node 1 is idle since 6 s, after the snapshot"),
        ("history.ended", [[9, "done", 9.0, None, 0]], "job 9 has ended, and started at 9 s, after the snapshot"),
        ("history.ended", [[9, "done", 2.0, 1.0, 0]], "job 9 has ended at 1 s, before its start"),
        ("history.ended", [[9, "done", None, 1.0, 0]], "job 9 has ended at 1 s, but never started"),
        ("history.ended", [[9, "killed", 1.0, None, 0]], "job 9 is killed, but has no end"),
        ("running.0.first_start", 6.0, "running job 10 has first_start 6 s, not a time from 0 s to its begin at 0 s"),
        ("running.0.first_start", -1.0, "running job 10 has first_start -1 s"),
        ("running.0.job.submit", 2.0, "running job 10 started at 0 s, before its submission at 2 s"),
        ("queue.0.released_at", 1.0, "waiting job 12 has released_at 1 s, before"),
        ("queue.0.held_until", 1.0, "waiting job 12 has held_until 1 s, before"),
        ("queue.0.planned_places", [[0, 2, []]], "has planned places, but no planned start"),
        ("running.0.start", 6.0, "running job 10 starts at 6 s, after"),
        ("running.0.begin", -1.0, "running job 10 started at 0 s, but begins at -1 s"),
        ("running.0.places", [], "running job 10 has places for 0 tasks, not 1"),
        ("running.0.places", [[0, 2, [0, 1]]], "running job 10 has places for 2 tasks, not 1"),
        ("running.0.places", [[0, 1, [0]]], "needs 2 different GPUs, not .0."),
        ("running.0.places", [[0, 1, [1, 1]]], "needs 2 different GPUs, not .1, 1."),
        ("running.0.places", [[0, 1, [-1, 1]]], "node 0 has no GPU -1"),
        ("running.0.places", [[9, 1, [0, 1]]], "running job 10 has impossible places: there is no node 9"),
        ("running.0.places", [[0, 10**30, []]], "running job 10 has places for 1000"),
        ("running.1.places", [[0, 1, [1]]], "node 0 has 2000 milli of GPU 1"),
    ],
)
def test_what_contradicts_itself_is_refused(path: str, value: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        Snapshot.from_json(changed(path, value))
    assert "take the snapshot again" in raised.value.hint


def test_a_snapshot_that_was_never_json_is_checked_when_a_replay_starts_from_it() -> None:
    good = taken()
    bad = replace(good, running=(replace(good.running[0], start=6.0), *good.running[1:]))
    with pytest.raises(InputError, match="running job 10 starts at 6 s, after"):
        simulate(jobs(), CLUSTER, "fcfs+easy", start=bad)


def test_jobs_that_use_more_than_a_node_has_are_refused() -> None:
    """Two jobs of two cores each run on four cores, and not on three."""
    workload = Workload(
        submit=np.zeros(2), runtime=np.full(2, 9.0), num_tasks=np.full(2, 2, np.int32), cpu_milli=np.full(2, 1000, np.int32)
    )
    simulation = Simulation(workload, load_cluster("flat:4"), "fcfs", estimates="oracle")
    simulation.run(until=1.0)
    with pytest.raises(InputError, match="the running jobs have 4,000 cpu_milli of node 0, which has 3,000"):
        simulate(workload, load_cluster("flat:3"), "fcfs", estimates="oracle", start=simulation.snapshot())


def test_tasks_of_one_node_that_share_gpus_have_a_place_each() -> None:
    workload = jobs(gpu_milli=np.array([2000, 1000, 400, 1000], np.int32))
    simulation = Simulation(workload, CLUSTER, "fcfs+easy")
    simulation.run(10.0)
    read = Snapshot.from_json(simulation.snapshot().to_json())
    assert read.running[2].places == ((1, 1, (1,)), (1, 1, (1,)))
    assert read.nodes[1].shared_gpus == {1: 200}


def test_an_absent_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Snapshot.load(tmp_path / "absent.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"free_gpus": ()}, "node 1, which is up, has 0 gpu_milli free, not 1000: running jobs hold 1000 of 2000"),
        ({"free_gpus": (2,)}, "node 1 has free GPUs beyond the 2"),
        ({"free_cpu_milli": 4000}, "node 1, which is up, has 4000 cpu_milli free, not None"),
        ({"state": "drained"}, "node 1, which is drained, has 1000 gpu_milli free, not 0"),
    ],
)
def test_what_is_free_is_what_running_jobs_leave(change: Any, message: str) -> None:
    good = taken()
    bad = replace(good, nodes=(good.nodes[0], replace(good.nodes[1], **change)))
    with pytest.raises(InputError, match=message):
        simulate(jobs(), CLUSTER, "fcfs+easy", start=bad)


def test_a_job_that_ended_before_its_submission_is_refused() -> None:
    late = taken(70.0)
    ended = (late.history.ended[0], late.history.ended[1]._replace(start=59.0))
    with pytest.raises(InputError, match="job 13 is submitted at 60 s, but has started at 59"):
        simulate(jobs(), CLUSTER, "fcfs+easy", start=replace(late, history=replace(late.history, ended=ended)))


def test_more_work_than_a_node_does_is_refused() -> None:
    """On V100s, runtimes are those of the log: five seconds of work take five seconds."""
    good = taken(policy="srtf")
    assert sum(good.queue[0].progress.done_s) == good.queue[0].progress.worked_s == 5.0
    for done, refused in ((5.0, False), (1e9, True)):
        first = replace(good.queue[0], progress=replace(good.queue[0].progress, done_s=(done, 0.0)))
        start = Snapshot.from_json(replace(good, queue=(first, *good.queue[1:])).to_json())
        with pytest.raises(InputError, match=r"job 10 has done 1e.09 s of work in the 5 s") if refused else nullcontext():
            simulate(jobs(), CLUSTER, "srtf", start=start)


def test_a_drained_node_stays_drained_without_the_conditions_that_drained_it() -> None:
    drained = taken(conditions=Conditions(outages=(Outage(node=0, start=3, end=90, kind="drain"),)))
    again = Simulation(jobs(), CLUSTER, "fcfs+easy", start=drained).snapshot()
    assert [node.state for node in Snapshot.from_json(again.to_json()).nodes] == ["drained", "up"]


def test_a_job_whose_nodes_are_waking_begins_later_whatever_the_conditions() -> None:
    """Idle since 0, node 1 falls asleep at 5 and wakes for job 13 from 60 to 61."""
    waking = taken(60.0, conditions=Conditions(power=Power(sleep_after_s=5, wake_s=1)))
    again = Snapshot.from_json(Simulation(jobs(), CLUSTER, "fcfs+easy", start=waking).snapshot().to_json())
    for snapshot in (waking, again):
        assert [(one.start, one.first_start, one.begin) for one in snapshot.running if one.job.job_id == 13] == [(60.0, 61.0, 61.0)]


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
        (jobs(submit=np.array([0.0, 0.0, 4.0, 60.0])), CLUSTER, "job 12 has submit 5.0 in the snapshot, but 4.0 in the workload"),
        (jobs(requested=np.full(4, 99.0)), CLUSTER, "job 12 has requested 30.0 in the snapshot, but 99.0 in the workload"),
        (jobs(users=("eve", "bob")), CLUSTER, "job 10 has user ann in the snapshot, but eve in the workload"),
        (jobs(num_tasks=np.array([1, 1, 1, 1], np.int32)), CLUSTER, "job 12 has num_tasks 2 in the snapshot, but 1 in the workload"),
        (jobs(), load_cluster("2x1:V100-16"), "running job 10 has GPU 1 of node 0, which the cluster does not have"),
        (jobs(submit=np.array([0.0, 0.0, 5.0, 5.0])), CLUSTER, "job 13 was submitted before the snapshot and is not in it"),
    ],
)
def test_what_does_not_belong_to_it_is_refused(workload: Workload, cluster: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as raised:
        simulate(workload, cluster, "fcfs+easy", start=taken())
    assert raised.value.hint


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"version": 1}, "now: missing"),
        ({"version": 1, "now": 0.0, "queue": [], "running": [], "nodes": [], "waiting": 5}, "waiting: no known field"),
        ({"version": 1, "now": "soon", "queue": [], "running": [], "nodes": []}, "now: must be a number"),
        ({"version": 1, "now": 0.0, "queue": [], "running": [], "nodes": [3]}, "nodes.0: must be a table"),
    ],
)
def test_a_file_that_is_no_snapshot_is_refused_in_plain_words(content: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as refused:
        Snapshot.from_plain(content)
    assert "docs/snapshots.md" in str(refused.value.hint)
