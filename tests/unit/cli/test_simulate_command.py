"""`queuewise simulate` around the engine: what it passes on, prints, writes and refuses. The engine itself is replaced by a
machine of infinite patience: every job starts `delay` seconds after its submission; jobs of more than 4 tasks are rejected."""

from __future__ import annotations

import csv
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from queuewise.cli import main
from queuewise.cluster import Cluster
from queuewise.cluster.conditions import Conditions
from queuewise.errors import unknown_name
from queuewise.evaluation.cause_walk import CAUSES
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.policies import Policy
from queuewise.policies.budgets import USUAL_BUDGETS
from queuewise.runs import file_name
from queuewise.sim.core.schedule import DONE, NEVER, REJECTED, Schedule
from queuewise.workload.jobs import Workload

DELAYS = {"fcfs": 10.0, "sjf+easy/8": 5.0}
SWF = """; MaxProcs: 4
1 0 -1 100 1 -1 -1 1 200 -1 1 7 1 -1 -1 -1 -1 -1
2 50 -1 100 9 -1 -1 9 200 -1 1 8 1 -1 -1 -1 -1 -1
3 60 -1 30 2 -1 -1 2 40 -1 1 7 1 -1 -1 -1 -1 -1
"""


def parse_policy(name: str) -> Policy:
    if name not in DELAYS:
        raise unknown_name("policy", name, DELAYS)
    return Policy(name)


def patient_engine(workload: Workload, cluster: Cluster, policy: str, **options: Any) -> Schedule:
    runs = workload.num_tasks <= 4
    start = np.where(runs, workload.submit + DELAYS[policy], NEVER)
    end = np.where(runs, start + workload.runtime, NEVER)
    placed = np.flatnonzero(runs).astype(np.int32)
    return Schedule(
        workload=workload, cluster=cluster, policy=policy,
        dispatch=options["dispatch"], estimates=options["estimates"] or "requested", seed=options["seed"],
        estimate=workload.runtime, status=np.where(runs, DONE, REJECTED).astype(np.int8), start=start, end=end,
        preemptions=np.zeros(len(workload), np.int32),
        piece_job=placed, piece_node=np.zeros_like(placed), piece_tasks=workload.num_tasks[placed],
        piece_gpus=np.zeros(placed.size, np.int64), piece_start=start[placed], piece_end=end[placed], engine_s=0.001, decisions=3,
    )  # fmt: skip


def patient_causes(schedule: Schedule) -> WaitCauses:
    """The policy alone makes jobs wait."""
    seconds = np.zeros((len(schedule.workload), len(CAUSES)))
    seconds[:, CAUSES.index("priority")] = DELAYS[schedule.policy]
    seconds[~schedule.finished] = np.nan
    return WaitCauses(schedule.workload, seconds)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Put the patient engine in place of the real one; returns the options it was called with."""
    seen: list[dict[str, Any]] = []

    def simulate(workload: Workload, cluster: Cluster, policy: str, **options: Any) -> Schedule:
        seen.append({"cluster": cluster.name, "policy": policy, **options})
        return patient_engine(workload, cluster, policy, **options)

    monkeypatch.setattr("queuewise.policies.simulate", simulate)
    monkeypatch.setattr("queuewise.policies.parse_policy", parse_policy)
    monkeypatch.setattr("queuewise.evaluation.wait_causes.wait_causes", patient_causes)
    monkeypatch.setattr("queuewise.sim.core.compilation.cache_is_warm", lambda *entry: bool(seen))
    return seen


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "three.swf"
    path.write_text(SWF, encoding="utf-8")
    return str(path)


def test_json_has_one_object_a_policy_with_the_documented_keys(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--policy", "sjf+easy/8", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    spread = {"mean", "p50", "p90", "p95", "p99", "max"}
    for row, (policy, delay) in zip(rows, DELAYS.items(), strict=True):
        assert set(row) == {
            "policy", "jobs", "completed", "killed", "rejected", "cancelled", "failed", "unfinished", "preemptions", "makespan_s",
            "wait_s", "first_wait_s", "jct_s", "slowdown", "bounded_slowdown",
            "gpu_utilisation", "cpu_utilisation", "flops_utilisation", "load_imbalance", "completion_rate", "jain_index", "energy_kwh",
            "energy_cost", "engine_s", "jobs_per_s", "decisions", "decision_us", "wait_causes", "by_priority",
        }  # fmt: skip
        assert (row["policy"], row["jobs"], row["completed"], row["rejected"]) == (policy, 3, 2, 1)
        assert (row["killed"], row["cancelled"], row["failed"], row["unfinished"]) == (0, 0, 0, 0)
        assert all(set(row[key]) == spread for key in ("wait_s", "first_wait_s", "jct_s", "slowdown", "bounded_slowdown"))
        assert row["wait_s"] == dict.fromkeys(spread, delay)
        assert row["jct_s"]["mean"] == delay + 65
        assert tuple(row["wait_causes"]) == CAUSES
        assert row["wait_causes"]["priority"] == delay
        assert sum(row["wait_causes"].values()) == delay


def test_options_reach_the_engine(calls: list[Any], log: str) -> None:
    options = ["--dispatch", "commit", "--estimates", "noisy:0.5", "--kill-at-limit", "--max-wait", "2d", "--seed", "7", "--json"]
    assert main(["simulate", "--workload", log, "--cluster", "2x4:T4", "--policy", "fcfs", *options]) == 0
    assert calls[0].pop("conditions") == Conditions()
    assert calls == [
        {
            "cluster": "2x4:T4",
            "policy": "fcfs",
            "dispatch": "commit",
            "estimates": "noisy:0.5",
            "seed": 7,
            "kill_at_limit": True,
            "max_wait": "2d",
            "budgets": USUAL_BUDGETS,
        }
    ]


def test_repeated_policy_runs_once_and_jobs_limits_the_log(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--policy", "fcfs", "--jobs", "1", "--json"]
    assert main(arguments) == 0
    assert [row["jobs"] for row in json.loads(capsys.readouterr().out)] == [1]


def test_the_logs_own_cluster_is_the_default(calls: list[Any], log: str) -> None:
    assert main(["simulate", "--workload", log, "--policy", "fcfs", "--json"]) == 0
    assert calls[0]["cluster"]


def test_partitions_of_the_log_bind_jobs_only_when_asked(calls: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "queues.swf"
    path.write_text("1 0 -1 100 1 -1 -1 1 200 -1 1 7 1 -1 3 -1 -1 -1\n")
    arguments = ["simulate", "--workload", str(path), "--cluster", "flat:4", "--policy", "fcfs", "--json", "--out"]
    bound = []
    for name, option in (("free", []), ("bound", ["--partitions"])):
        assert main([*arguments, str(tmp_path / name), *option]) == 0
        bound.append(pl.read_parquet(tmp_path / name / "fcfs" / "jobs.parquet")["partition"].to_list())
    assert bound == [[None], ["3"]]


def test_a_model_needs_a_cluster(calls: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", "bursty", "--policy", "fcfs"]) == 2
    assert "bursty does not describe its cluster\nhint: add --cluster" in capsys.readouterr().err


def test_table_on_stdout_notes_on_stderr(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs"]) == 0
    out, err = capsys.readouterr()
    assert "fcfs" in out
    assert "mean wait" in out
    assert "10.0 s" in out
    assert "compiling the engine (once" in err
    assert "1 job rejected: all their tasks together need more than the cluster has (id 2)" in err


def test_a_line_says_where_the_waiting_came_from(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs"]
    assert main(command) == 0
    assert "\nwaiting: 100 % priority\n" in capsys.readouterr().out
    assert main([*command, "--policy", "sjf+easy/8"]) == 0
    assert "\nwaiting under fcfs: 100 % priority\nwaiting under sjf+easy/8: 100 % priority\n" in capsys.readouterr().out


def test_no_line_about_waiting_if_nobody_waits(
    calls: list[Any], log: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(DELAYS, "fcfs", 0.0)
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs"]) == 0
    assert "waiting" not in capsys.readouterr().out


def test_compile_message_comes_only_once(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--policy", "sjf+easy/8"]) == 0
    assert capsys.readouterr().err.count("compiling the engine") == 1


def test_rejected_jobs_are_listed_once_for_all_policies(calls: list[Any], log: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--policy", "sjf+easy/8"]) == 0
    assert capsys.readouterr().err.count("rejected") == 1


def test_logs_of_several_tables_and_mapped_columns_can_be_replayed(calls: list[Any], tmp_path: Path, capsys: Any) -> None:
    jobs, machines = tmp_path / "cluster_job_log", tmp_path / "cluster_machine_list"
    job = {"jobid": "a", "vc": "v", "user": "u", "submitted_time": "2017-10-01 00:00:00", "status": "Pass"}
    attempt = {"start_time": "2017-10-01 00:01:00", "end_time": "2017-10-01 00:02:00", "detail": [{"ip": "m1", "gpus": ["g0", "g1"]}]}
    jobs.write_text(json.dumps([job | {"attempts": [attempt]}]))
    machines.write_text("machineId,number of GPUs,single GPU mem\nm1,2,24GB\n")
    assert main(["simulate", "--workload", str(jobs), "--tables", str(machines), "--policy", "fcfs", "--json"]) == 0
    assert calls[-1]["cluster"] == "philly"
    table = tmp_path / "mine.csv"
    table.write_text("came,took,n\n0,5,2\n7,5,1\n")
    mapped = ["--map", "came=submit", "took=runtime", "n=gpus", "--format", "csv"]
    capsys.readouterr()
    assert main(["simulate", "--workload", str(table), *mapped, "--cluster", "1x2:T4", "--policy", "fcfs", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["jobs"] == 2


def test_run_folder_holds_what_the_docs_say(calls: list[Any], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "a"
    assert (
        main(
            [
                "simulate",
                "--workload",
                log,
                "--cluster",
                "flat:4",
                "--policy",
                "fcfs",
                "--policy",
                "sjf+easy/8",
                "--json",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    files = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    replays = [
        f"{policy}/{name}" for policy in ("fcfs", file_name("sjf+easy/8")) for name in ("jobs.parquet", "pieces.parquet", "replay.json")
    ]
    assert files == ["cluster.json", "config.toml", *replays, "summary.csv", "summary.json"]
    assert json.loads((out / "summary.json").read_text()) == json.loads(capsys.readouterr().out)
    config = tomllib.loads((out / "config.toml").read_text())
    assert (config["command"], config["policy"], config["seed"], config["dispatch"]) == ("simulate", ["fcfs", "sjf+easy/8"], 0, "reorder")
    rows = list(csv.DictReader((out / "summary.csv").read_text().splitlines()))
    assert [(row["policy"], float(row["wait_s.mean"])) for row in rows] == list(DELAYS.items())
    jobs = pl.read_parquet(out / "fcfs" / "jobs.parquet")
    assert jobs["status"].to_list() == ["done", "rejected", "done"]
    assert jobs["wait_priority_s"].to_list() == [10.0, None, 10.0]
    assert jobs["start_s"].to_list() == [10.0, None, 70.0]
    assert jobs["num_nodes"].to_list() == [1, 0, 1]


def test_a_wrong_policy_is_found_before_the_first_replay(calls: list[Any], log: str) -> None:
    assert main(["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--policy", "fcsf"]) == 2
    assert calls == []


def test_finished_run_folder_is_refused_before_any_work(
    calls: list[Any], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["simulate", "--workload", log, "--cluster", "flat:4", "--policy", "fcfs", "--out", str(tmp_path / "run")]
    assert main(arguments) == 0
    calls.clear()
    assert main(arguments) == 2
    assert calls == []
    assert "already contains a finished run" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "error", "hint"),
    [
        (["--workload", "absent.swf", "--cluster", "flat:4", "--policy", "fcfs"], "absent.swf", "hint: "),
        (["--workload", "LOG", "--cluster", "flat:4", "--policy", "fcsf"], "unknown policy 'fcsf'", "did you mean 'fcfs'?"),
        (["--workload", "LOG", "--cluster", "phily", "--policy", "fcfs"], "unknown cluster 'phily'", "did you mean 'philly'?"),
        (["--workload", "LOG", "--cluster", "EMPTY", "--policy", "fcfs"], "has no nodes", "add a [[nodes]] table"),
        (["--workload", "LOG", "--cluster", "flat:4"], "no policy given", "add --policy"),
        (["--workload", "LOG", "--cluster", "flat:4", "--policy", "fcfs", "--jobs", "0"], "--jobs 0 is too few", "use 1 or more"),
        (["--workload", "LOG", "--cluster", "flat:4", "--policy", "fcfs", "--seed", "-1"], "--seed -1 is negative", "use 0 or more"),
        (["--workload", "LOG", "--cluster", "flat:4", "--policy", "fcfs", "--out", "LOG/x"], "cannot be created", "choose another folder"),
    ],
)
def test_wrong_input_is_one_line_a_hint_and_exit_code_2(
    calls: list[Any], log: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], error: str, hint: str
) -> None:
    (tmp_path / "empty.toml").write_text("notes = 'nothing here'")
    known = {"EMPTY": str(tmp_path / "empty.toml")}
    assert main(["simulate", *(known.get(a, a.replace("LOG", log)) for a in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line for line in err.splitlines() if not line.startswith("compiling")]
    assert any(line.startswith("error: ") and error in line for line in lines)
    assert lines[-1].startswith("hint: ")
    assert hint in lines[-1]
    assert "Traceback" not in err
