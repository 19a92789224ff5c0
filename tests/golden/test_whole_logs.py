"""Whole logs, read as the literature reads them: mean bounded slowdowns that other simulators publish, through the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuewise.cli import main


@pytest.mark.parametrize(
    ("log", "cluster", "jobs", "policy", "bounded_slowdown"),
    [
        ("KTH-SP2-1996-2", "flat:100", 28_481, "fcfs+easy", 71.7224),
        ("CTC-SP2-1996-3.1-cln", "flat:338", 77_199, "fcfs+easy", 37.1654),
        ("CTC-SP2-1996-3.1-cln", "flat:338", 77_199, "fcfs+easy:sjf", 17.5717),
    ],
)
def test_whole_logs_as_in_the_literature(
    traces: Path, capsys: pytest.CaptureFixture[str], log: str, cluster: str, jobs: int, policy: str, bounded_slowdown: float
) -> None:
    reading = ["--workload", str(traces / "swf" / f"{log}.swf.gz"), "--processors", "requested", "--clean"]
    assert main(["simulate", *reading, "--cluster", cluster, "--policy", policy, "--estimates", "oracle", "--json"]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert (summary["jobs"], summary["completed"]) == (jobs, jobs)
    assert summary["bounded_slowdown"]["mean"] == pytest.approx(bounded_slowdown, abs=5e-5)
