"""The GPU logs Venus and Philly with default settings: a smaller cluster tells policies apart; on their own, nobody waits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from queuewise.cli import main

LOGS = {
    "venus": ("helios/venus_gpu_jobs_2020-03-18_to_07-31.csv.gz", "80x8:V100-16"),
    "philly": ("philly/philly_jobs_2017-09_to_10.csv.gz", "80x8:P100"),
}
NOBODY = "hardly anybody waits, whatever the policy (the jobs ask for "


def evaluate(
    traces: Path, log: str, cluster: str, capsys: pytest.CaptureFixture[str], *flags: str
) -> tuple[dict[str, dict[str, Any]], str]:
    arguments = ["--workload", str(traces / LOGS[log][0]), "--cluster", cluster, "--policy", "fcfs+easy", "--policy", "sjf+easy"]
    assert main(["evaluate", *arguments, "--json", *flags]) == 0
    printed = capsys.readouterr()
    return {row["policy"]: row for row in json.loads(printed.out)}, printed.err


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS)
def test_on_a_smaller_cluster_policies_are_told_apart(log: str, traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, told = evaluate(traces, log, LOGS[log][1], capsys)
    best, plain = rows["sjf+easy"], rows["fcfs+easy"]
    assert NOBODY not in told
    assert "all policies tie" not in told
    assert min(row["wait_s"] for row in rows.values()) > 1800
    assert best["geometric_mean"] < 0.75 * plain["geometric_mean"]
    assert best["mean"] < plain["mean"]


@pytest.mark.slow
@pytest.mark.parametrize("log", LOGS)
def test_on_its_own_cluster_nobody_waits_and_that_is_said(log: str, traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, told = evaluate(traces, log, log, capsys, "--shakes", "1")
    (line,) = [line for line in told.splitlines() if line.startswith(NOBODY)]
    assert line.endswith("use a smaller cluster, or --load-factor 2 to submit the same jobs in half the time")
