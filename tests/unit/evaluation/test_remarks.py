"""Remarks: nobody waits, all tie, estimates that say nothing, placements that cannot matter, and why jobs were rejected."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from queuewise.agents.scenario import load_scenario
from queuewise.agents.train_settings import TrainSettings
from queuewise.cli import main
from queuewise.cluster import NodeGroup, load_cluster
from queuewise.cluster.spec import build
from queuewise.evaluation import remarks
from queuewise.evaluation.suite import SuiteTask, run_suite
from queuewise.workload.jobs import Workload

FLAT = load_cluster("flat:8")


def jobs(number: int = 4, **columns: object) -> Workload:
    given = {"submit": np.arange(number) * 100.0, "runtime": np.full(number, 10.0), "num_tasks": np.ones(number, np.int32)}
    return Workload(**given | {"cpu_milli": np.full(number, 1000, np.int32)} | columns)  # type: ignore[arg-type]


def test_constant_estimates() -> None:
    (remark,) = remarks.before(jobs(), FLAT, ["sjf"], np.full(4, 86_400.0), "requested")
    equal = "are 86400 s, so orders that sort by runtime equal fcfs"
    assert remark == f"all estimates (requested) {equal}; try --estimates predicted"
    assert remarks.equal_estimates(np.full(4, 86_400.0), "predicted") == [f"all estimates (predicted) {equal}"]
    assert remarks.before(jobs(), FLAT, ["sjf"], np.arange(4.0), "requested") == []


def log_with_equal_requests(folder: Path) -> Path:
    """Forty jobs of different lengths, each of which asks for a day."""
    rows = [f"{j + 1} {60 * j} {j % 7} {30 + 17 * (j % 11)} 2 -1 -1 2 86400 -1 1 1 1 -1 -1 -1 -1 -1" for j in range(40)]
    path = folder / "equal.swf"
    path.write_text("; MaxProcs: 8\n" + "\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["simulate", "--policy", "sjf", "--workload"], 0),
        (["evaluate", "--policy", "sjf", "--workload"], 0),
        (["validate"], 0),
        (["size", "--target", "mean wait < 1d"], 0),
        (["learn"], 2),  # too few jobs to learn from
    ],
    ids=lambda value: value[0] if isinstance(value, list) else None,
)
def test_every_command_says_that_estimates_are_constant(
    arguments: list[str], code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert (main([*arguments, str(log_with_equal_requests(tmp_path)), "--cluster", "flat:8"]) or 0) == code
    assert capsys.readouterr().err.count("all estimates (requested) are 86400 s, so orders that sort by runtime equal fcfs") == 1


@pytest.mark.parametrize(("workload", "estimates"), [(["{log}"], "requested"), (["lublin", "--jobs", "60"], "oracle")])
def test_tables_say_what_policies_know(workload: list[str], estimates: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [part.format(log=log_with_equal_requests(tmp_path)) for part in workload]
    for command in ("simulate", "evaluate"):
        protocol = ["--protocol", "replay"] if command == "evaluate" else []
        assert main([command, "--policy", "sjf", "--cluster", "flat:256", "--workload", *arguments, *protocol]) == 0
        assert f", estimates {estimates}\n" in capsys.readouterr().out


def test_training_and_the_suite_say_that_estimates_are_constant(tmp_path: Path) -> None:
    path, told = log_with_equal_requests(tmp_path), list[str]()
    load_scenario(TrainSettings(workload=str(path), cluster="flat:8"), told.append)
    assert [line for line in told if line.startswith("all estimates (requested) are 86400 s")]
    found = run_suite(["sjf+easy"], traces=tmp_path, tasks=[SuiteTask("log", "flat:8", path=path.name, shakes=1)])
    assert [line.partition(",")[0] for line in found.remarks] == ["log: all estimates (requested) are 86400 s"]


def test_a_placement_on_one_node() -> None:
    (remark,) = remarks.before(jobs(), FLAT, ["fcfs@spread"], np.arange(4.0), "requested")
    assert remark == "flat:8 is one node, so placements such as @spread change nothing"
    assert remarks.before(jobs(), load_cluster("2x4:V100-16"), ["fcfs@spread"], np.arange(4.0), "requested") == []


def test_nobody_waits() -> None:
    (remark,) = remarks.after(jobs(), FLAT, [0.0, 0.2], [1.0, 1.0])
    assert remark.startswith("hardly anybody waits, whatever the policy (the jobs ask for 2% of the cores): use a smaller cluster")
    assert remarks.after(jobs(), FLAT, [0.0, 20.0], [1.0, 3.0]) == []
    (crowded,) = remarks.after(jobs(runtime=np.full(4, 900.0)), load_cluster("flat:1"), [0.0], [1.0])
    assert crowded.startswith("hardly anybody waits, whatever the policy: ")


def test_all_policies_tie() -> None:
    (remark,) = remarks.after(jobs(), FLAT, [50.0, 50.0], [625.11, 625.43])
    assert remark.startswith("all policies tie (the jobs ask for 2% of the cores): their scores lie between 625.1 and 625.4")
    assert remarks.after(jobs(), FLAT, [50.0], [625.11]) == []


def test_the_load_is_that_of_what_the_jobs_compete_for() -> None:
    """Two GPUs on one of two nodes, of which one job in forty takes one: what matters are the cores."""
    cluster = build("mixed", [NodeGroup(1, gpus=2, kind="V100-16", cpus=8), NodeGroup(1, cpus=8)])
    workload = jobs(
        40, gpu_milli=np.array([1000, *[0] * 39], np.int32), num_tasks=np.ones(40, np.int32), cpu_milli=np.full(40, 1000, np.int32)
    )
    (remark,) = remarks.after(workload, cluster, [50.0, 50.0], [625.11, 625.43])
    assert "of the cores)" in remark


def test_reasons_of_rejections() -> None:
    groups = [NodeGroup(2, gpus=4, kind="V100-16", cpus=8, partition="red"), NodeGroup(1, cpus=8, partition="blue")]
    cluster = build("mixed", groups)
    workload = jobs(
        5,
        gpu_milli=np.array([0, 1000, 8000, 1000, 1000], np.int32),
        cpu_milli=np.array([1000, 1000, 1000, 99_000, 1000], np.int32),
        num_tasks=np.array([1, 1, 1, 1, 99], np.int32),
        kind_set=np.array([0, 1, 0, 0, 0], np.int32),
        kind_sets=((), ("A100-40",)),
        partition=np.array([0, -1, -1, -1, -1], np.int32),
        partitions=("black",),
    )
    assert sorted(remarks.rejections(workload, cluster, np.full(5, True))) == sorted(
        [
            "1 job rejected: partition 'black' is not in the cluster (has: red, blue) (id 0)",
            "1 job rejected: they ask for A100-40, which the nodes they may use do not have (id 1)",
            "1 job rejected: a task needs more GPUs than any node has that it may use (id 2)",
            "1 job rejected: a task needs more cores than any node has that it may use (id 3)",
            "1 job rejected: all their tasks together need more than the cluster has (id 4)",
        ]
    )


@pytest.mark.parametrize(("flags", "code"), [((), 3), (("--allow-rejected",), 0), (("--protocol", "windows"), 3)])
def test_evaluate_says_that_no_job_can_run(flags: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 6000} 0 100 16 -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 60)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    windows = ["--windows", "1", "--window-jobs", "20"] if flags[:1] == ("--protocol",) else []
    assert main(["evaluate", "--workload", str(log), "--cluster", "flat:8", "--policy", "fcfs", "--json", *flags, *windows]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out) == []
    assert "no job that counts can run on flat:8" in printed.err
    assert "jobs rejected: all their tasks together need more than the cluster has (id " in printed.err


@pytest.mark.parametrize(("cores", "flags", "code"), [(8, (), 3), (8, ("--allow-rejected",), 0), (64, (), 0)])
def test_most_jobs_rejected_ends_with_code_3(
    cores: int, flags: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 60} 0 100 {16 if j % 3 else 1} -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 60)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    arguments = ["--workload", str(log), "--cluster", f"flat:{cores}", "--policy", "fcfs", "--json", *flags]
    assert main(["simulate", *arguments]) == code
    printed = capsys.readouterr()
    assert json.loads(printed.out)[0]["rejected"] == (40 if cores == 8 else 0)
    assert ("40 jobs rejected: all their tasks together need more than the cluster has (id 1, 2, 4, 5, 7, …)" in printed.err) == (
        cores == 8
    )


def test_evaluate_gives_the_reasons_of_rejections(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 6000} 0 100 {16 if j % 9 == 0 else 1} -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 60)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    arguments = ["--workload", str(log), "--cluster", "flat:8", "--policy", "fcfs", "--shakes", "2"]
    assert main(["evaluate", *arguments]) == 0
    line = "6 jobs rejected: all their tasks together need more than the cluster has (id 9, 18, 27, 36, 45, …) (in one of the replays)"
    assert capsys.readouterr().err.splitlines().count(line) == 1


@pytest.mark.parametrize("command", ["simulate", "evaluate"])
def test_a_bound_that_does_not_apply_is_mentioned(command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 6000} 0 100 1 -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 60)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    policies = ["--policy", "fcfs", "--policy", "sjf~5d", "--policy", "wise"]
    assert main([command, "--workload", str(log), "--cluster", "flat:8", *policies, "--max-wait", "2h"]) == 0
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("--max-wait")]
    assert lines == [
        "--max-wait 2h does not apply to sjf~5d, which has a bound of its own: 5.0 d",
        "--max-wait 2h does not apply to wise, which has a bound of its own: 3.0 d",
    ]


def test_warm_windows_of_a_log_with_equal_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j % 50} {j * 60} 0 1000 4 -1 -1 -1 2000 -1 1 1 1 1 1 1 -1 -1" for j in range(200)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    arguments = ["--workload", str(log), "--cluster", "flat:64", "--policy", "fcfs", "--windows", "2", "--window-jobs", "60", "--json"]
    assert main(["evaluate", *arguments]) == 0
    assert len(json.loads(capsys.readouterr().out)[0]["per_window"]) == 2


@pytest.mark.parametrize(("flags", "code"), [((), 3), (("--allow-rejected",), 0)])
def test_validate_of_a_log_that_hardly_fits_ends_with_code_3(
    flags: tuple[str, ...], code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.swf"
    rows = [f"{j} {j * 60} 0 100 {16 if j % 3 else 1} -1 -1 -1 200 -1 1 1 1 1 1 1 -1 -1" for j in range(1, 60)]
    log.write_text("\n".join(rows) + "\n", encoding="utf-8")
    assert main(["validate", str(log), "--cluster", "flat:8", *flags]) == code
    assert "40 jobs rejected: all their tasks together need more than the cluster has" in capsys.readouterr().err
