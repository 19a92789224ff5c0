"""`queuewise evaluate`, `compare` and `report` as a user meets them, on the stand-in scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import queuewise.evaluation.planning
import queuewise.policies
from queuewise.cli import main
from stand_in import line_up

BASE = ["evaluate", "--workload", "bursty", "--jobs", "400", "--cluster", "2x8:V100-16", "--windows", "3", "--window-jobs", "100"]


@pytest.fixture(autouse=True)
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queuewise.policies, "simulate", line_up)
    for module in (queuewise.policies, queuewise.evaluation.planning):
        monkeypatch.setattr(module, "parse_policy", queuewise.policies.Policy)


def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_evaluate_prints_a_ranking_and_keeps_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = [*BASE, "--policy", "line-600", "--policy", "line", "--score", "wait", "--out", str(run)]
    assert main([*arguments, "--json"]) == 0
    rows = printed(capsys)
    assert [(row["policy"], row["rank"]) for row in rows] == [("line", 1), ("line-600", 2)]
    assert rows == json.loads((run / "summary.json").read_text())
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert "line-600" in captured.out
    assert "3 windows, 300 distinct jobs, seed 0" in captured.err
    assert "lower bound for any policy" in captured.err


def test_explicit_starts_are_the_windows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--policy", "line", "--starts", "5,50,300", "--json"]) == 0
    captured = capsys.readouterr()
    assert "5, 50, 300" in captured.err
    assert len(json.loads(captured.out)[0]["per_window"]) == 3


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        (["--starts", "5,x"], "is not a list of job numbers"),
        (["--starts", "301", "--windows", "1"], "exceeds the log"),
        (["--window-jobs", "401"], "does not fit into the 400 jobs"),
        (["--score", "speed"], "unknown score"),
        (["--warmup", "0.6", "--cooldown", "0.4"], "leave no jobs to count"),
        (["--starts", "5,50"], "--starts names 2 windows, not the 3 of --windows"),
        (["--report"], "--report needs a run folder"),
        (["--seed", "-1"], "is negative"),
    ],
)
def test_what_cannot_be_measured_is_explained(extra: list[str], problem: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--policy", "line", *extra]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert "hint: " in error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("protocol", "refused"),
    [
        ("days", ("--windows 3", "--window-jobs 9", "--starts 0,9", "--overlap", "--start warm", "--warmup 0.1", "--cooldown 0.1")),
        ("windows", ("--block val", "--split 0.4,0.3,0.3", "--warm 14d", "--shakes 2")),
        ("blocks", ("--starts 0,9", "--warm 14d", "--shakes 2")),
        ("replay", ("--windows 3", "--window-jobs 9", "--starts 0,9", "--overlap", "--start warm", "--block val", "--split 0.4,0.3,0.3")),
        ("rlscheduler", ("--windows 3", "--window-jobs 9", "--overlap", "--start warm", "--block val", "--shakes 2")),
        ("packing", ("--window-jobs 9", "--starts 0,9", "--overlap", "--start empty", "--block report", "--warm 1d")),
    ],
)
def test_options_that_a_protocol_does_not_have_are_refused(
    protocol: str, refused: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "log.csv"
    log.write_text("submit,runtime,gpus\n" + "".join(f"{10 * j},5,1\n" for j in range(9)))
    for option in refused:
        arguments = ["--cluster", "2x8:V100-16", "--policy", "line", "--protocol", protocol, *option.split()]
        assert main(["evaluate", "--workload", str(log), *arguments]) == 2
        assert f"protocol {protocol} has no {option.split()[0]}\nhint: use --protocol " in capsys.readouterr().err


@pytest.mark.parametrize(("protocol", "option"), [("windows", "--start warm"), ("blocks", "--split 0.4,0.3,0.3"), ("blocks", "--overlap")])
def test_options_that_are_for_logs_are_refused_for_models(protocol: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--policy", "line", "--protocol", protocol, *option.split()]) == 2
    assert f"protocol {protocol} has no {option.split(maxsplit=1)[0]} for a workload model such as bursty" in capsys.readouterr().err


def test_fairness_between_users_that_the_log_does_not_name_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "log.csv"
    log.write_text("submit,runtime,gpus\n" + "".join(f"{10 * j},5,1\n" for j in range(9)))
    arguments = ["--cluster", "2x8:V100-16", "--policy", "line", "--protocol", "replay", "--score", "fairness"]
    assert main(["evaluate", "--workload", str(log), *arguments]) == 2
    assert "the log names no users" in capsys.readouterr().err


@pytest.mark.parametrize("policy", ["line", "by-request"])
def test_estimates_that_the_log_does_not_have_are_refused_before_the_plan(
    policy: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parsed = {"line": queuewise.policies.Policy("line"), "by-request": queuewise.policies.Policy("line", estimates="requested")}
    for module in (queuewise.policies, queuewise.evaluation.planning):
        monkeypatch.setattr(module, "parse_policy", parsed.__getitem__)
    estimates = ["--estimates", "requested"] if policy == "line" else []
    assert main([*BASE, "--policy", policy, *estimates]) == 2
    error = capsys.readouterr().err
    assert "has a requested time" in error
    assert "distinct jobs" not in error


def test_rlscheduler_rules_are_fixed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--workload", "bursty", "--jobs", "2000", "--cluster", "2x8:V100-16", "--policy", "line"]
    assert main([*arguments, "--protocol", "rlscheduler", "--starts", "0,900", "--dispatch", "reorder"]) == 2
    assert "fixes --dispatch to commit" in capsys.readouterr().err


def test_a_models_blocks_are_drawn_anew(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [word for word in BASE if word not in ("--jobs", "400")]
    assert main([*arguments, "--policy", "line", "--protocol", "blocks", "--block", "val", "--json"]) == 0
    captured = capsys.readouterr()
    assert "seed 2000000, seed 2000001, seed 2000002" in captured.err
    assert len(set(json.loads(captured.out)[0]["per_window"])) == 3


def test_compare_joins_and_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, policy, extra in (("a", "line", []), ("b", "line-60", []), ("c", "line", ["--windows", "4"])):
        assert main([*BASE, "--policy", policy, "--out", str(tmp_path / name), *extra]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--score", "jct", "--json"]) == 0
    assert [row["policy"] for row in printed(capsys)] == ["line", "line-60"]
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "c")]) == 2
    assert "was not measured on the same windows" in capsys.readouterr().err
    assert main(["compare", str(tmp_path / "absent")]) == 2
    assert "no such run folder" in capsys.readouterr().err


def test_same_means_the_same_in_every_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    arguments = [*BASE, "--policy", "line", "--policy", "line-600", "--score", "jct", "--out", str(run)]
    assert main([*arguments, "--same", "90%", "--json"]) == 0
    assert [(row["policy"], row["same"], row["same_below_percent"]) for row in printed(capsys)] == [
        ("line", True, 90),
        ("line-600", True, 90),
    ]
    assert main(["report", str(run), "--no-figures", "--exports", "none"]) == 0
    assert "| same |" in (run / "tables" / "scores.md").read_text(encoding="utf-8")
    for same, expected in (("0%", [True, False]), ("90%", [True, True])):
        capsys.readouterr()
        assert main(["compare", str(run), "--score", "jct", "--same", same, "--json"]) == 0
        assert [row["same"] for row in printed(capsys)] == expected


def test_report_of_a_simulation(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the causes of waits need a schedule of the engine
    run = tmp_path / "run"
    simulate = ["simulate", "--workload", "bursty", "--jobs", "200", "--cluster", "2x8:V100-16", "--policy", "fcfs", "--out", str(run)]
    assert main(simulate) == 0
    assert main(["report", str(run), "--no-figures", "--exports", "none"]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")
    assert "200 jobs of" in (run / "report.html").read_text(encoding="utf-8")
    (run / "fcfs" / "jobs.parquet").write_bytes(b"PAR1")
    assert main(["report", str(run)]) == 2
    assert "jobs.parquet: is corrupted" in capsys.readouterr().err


def test_jobs_of_a_model_without_effect_on_its_blocks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*BASE, "--policy", "line", "--protocol", "blocks"]) == 2
    assert "--jobs has no effect\nhint: use --window-jobs\n" in capsys.readouterr().err
