"""Who waits for whom: what logs may write, what stays of it in parts of a log, and what replays make of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError
from queuewise.policies import simulate
from queuewise.sim.core.schedule import CANCELLED, DONE, KILLED, REJECTED, Schedule
from queuewise.workload import load_workload
from queuewise.workload.dependencies import AFTER, AFTERANY, AFTEROK, Dependencies, parse, resolve
from queuewise.workload.jobs import Workload
from queuewise.workload.writers import write_workload


def jobs(edges: list[tuple[int, int, int, float]], cores: list[int] | None = None, runtime: float = 10.0) -> Workload:
    cores = cores or [1] * (1 + max(max(job, on) for job, on, _, _ in edges))
    return Workload(
        submit=np.arange(len(cores), dtype=np.float64),
        runtime=np.full(len(cores), runtime),
        num_tasks=np.array(cores, np.int32),
        cpu_milli=np.full(len(cores), 1000, np.int32),
        job_id=np.array([f"j{row}" for row in range(len(cores))]),
        dependencies=Dependencies.of(edges),
    )


def replay(workload: Workload, *, heeded: bool = True, kill: bool = False) -> Schedule:
    return simulate(
        workload, load_cluster("flat:4"), "fcfs", estimates="oracle", kill_at_limit=kill, conditions=Conditions(dependencies=heeded)
    )


@pytest.mark.parametrize(("kind", "start"), [(AFTER, 1.0), (AFTERANY, 10.0), (AFTEROK, 10.0)])
def test_a_job_waits_for_a_start_or_an_end(kind: int, start: float) -> None:
    assert replay(jobs([(1, 0, kind, 0.0)])).start.tolist() == [0.0, start]
    assert replay(jobs([(1, 0, kind, 5.0)])).start.tolist() == [0.0, max(1.0, (0.0 if kind == AFTER else 10.0) + 5.0)]


def test_dependencies_are_not_heeded_unless_asked_for() -> None:
    assert replay(jobs([(1, 0, AFTEROK, 0.0)]), heeded=False).start.tolist() == [0.0, 1.0]


def test_a_job_may_wait_for_one_that_is_submitted_later() -> None:
    assert replay(jobs([(0, 1, AFTERANY, 0.0)])).start.tolist() == [11.0, 1.0]


def test_waiting_for_a_rejected_job() -> None:
    """8 cores are never free: who waits for a good end is cancelled, and so is who waits for that one; any end will do for the others."""
    workload = jobs([(1, 0, AFTEROK, 0.0), (2, 1, AFTEROK, 0.0), (3, 0, AFTERANY, 0.0), (4, 1, AFTER, 0.0)], [8, 1, 1, 1, 1])
    schedule = replay(workload)
    assert schedule.status.tolist() == [REJECTED, CANCELLED, CANCELLED, DONE, DONE]
    assert schedule.start[3:].tolist() == [3.0, 4.0]
    assert np.isinf(schedule.start[1:3]).all()


def test_a_job_killed_at_its_limit_has_not_ended_well() -> None:
    workload = jobs([(1, 0, AFTEROK, 0.0), (2, 0, AFTERANY, 0.0)]).replace(requested=np.array([4.0, np.nan, np.nan]))
    schedule = replay(workload, kill=True)
    assert schedule.status.tolist() == [KILLED, CANCELLED, DONE]
    assert schedule.start[2] == 4.0


@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ([(0, 0, AFTER, 0.0)], "cycle: j0 waits for j0"),
        ([(0, 1, AFTER, 0.0), (1, 2, AFTEROK, 0.0), (2, 0, AFTERANY, 0.0)], "cycle: j0 waits for j1 waits for j2 waits for j0"),
        ([(3, 0, AFTER, 0.0), (1, 2, AFTEROK, 0.0), (2, 1, AFTERANY, 0.0)], "cycle: j1 waits for j2 waits for j1"),
        ([(1, 0, AFTER, -1.0)], "delay that is negative"),
        ([(1, 0, 7, 0.0)], "unknown kind"),
    ],
)
def test_what_cannot_be_is_refused(edges: list[tuple[int, int, int, float]], message: str) -> None:
    with pytest.raises(InputError, match=message):
        replay(jobs(edges))


def test_parts_of_a_log_keep_the_dependencies_within_them() -> None:
    workload = jobs([(1, 0, AFTER, 0.0), (2, 1, AFTEROK, 3.0), (3, 2, AFTERANY, 0.0)])
    part = workload.take(slice(1, 3)).dependencies
    assert (part.job.tolist(), part.on.tolist(), part.kind.tolist(), part.delay.tolist()) == ([1], [0], [AFTEROK], [3.0])


def test_sorting_renumbers_dependencies() -> None:
    columns = {"runtime": np.ones(3), "num_tasks": np.ones(3, np.int32), "cpu_milli": np.full(3, 1000, np.int32)}
    workload = Workload.sorted(submit=np.array([5.0, 1.0, 3.0]), **columns, dependencies=Dependencies.of([(0, 1, AFTER, 0.0)]))
    assert (workload.dependencies.job.tolist(), workload.dependencies.on.tolist()) == ([2], [0])


def test_texts_of_dependencies() -> None:
    assert parse("afterok:12:13+60, after:7") == [(AFTEROK, "12", 0.0), (AFTEROK, "13", 60.0), (AFTER, "7", 0.0)]
    assert parse("12|13") == [(AFTERANY, "12", 0.0), (AFTERANY, "13", 0.0)]
    for bad, why in (("before:12", "is not one of"), ("after:", "has no job"), ("after:1+x", "'x'"), ("after:1+-3", "negative delay")):
        with pytest.raises(ValueError, match=why):
            parse(bad)


def test_the_id_of_an_array_means_all_its_tasks_and_what_cannot_be_read_is_counted() -> None:
    found, unknown, unreadable = resolve([None, None, "afterok:7", "12|99", "before:12"], ["7_1", "7_2", "8", "9", "12"])
    assert sorted(zip(found.job.tolist(), found.on.tolist(), strict=True)) == [(2, 0), (2, 1), (3, 4)]
    assert (unknown, unreadable) == (1, 1)


def test_files_keep_dependencies(tmp_path: Path) -> None:
    workload = jobs([(1, 0, AFTER, 0.0), (2, 1, AFTEROK, 3.5), (2, 0, AFTERANY, 0.0)])
    for name in ("jobs.csv", "jobs.parquet"):
        write_workload(workload, tmp_path / name)
        read = load_workload(tmp_path / name).workload.dependencies
        edges = zip(read.job.tolist(), read.on.tolist(), read.kind.tolist(), read.delay.tolist(), strict=True)
        assert sorted(edges) == [(1, 0, AFTER, 0.0), (2, 0, AFTERANY, 0.0), (2, 1, AFTEROK, 3.5)]


def test_swf_tells_the_job_before_and_the_time_to_think(tmp_path: Path) -> None:
    row = "{job} {submit} -1 10 1 -1 -1 1 10 -1 1 1 1 -1 1 -1 {previous} {think}"
    rows = [(1, 0, -1, -1), (2, 0, 1, 7), (3, 0, 1, -1), (4, 0, 77, 5)]
    text = "; Version: 2.2\n; MaxProcs: 4\n" + "\n".join(row.format(job=j, submit=s, previous=p, think=t) for j, s, p, t in rows) + "\n"
    (tmp_path / "log.swf").write_text(text, encoding="utf-8")
    loaded = load_workload(tmp_path / "log.swf")
    assert replay(loaded.workload).start.tolist() == [0.0, 17.0, 10.0, 0.0]
    assert any("1 dependencies on unknown or skipped jobs were omitted" in note for note in loaded.tally.notes)
