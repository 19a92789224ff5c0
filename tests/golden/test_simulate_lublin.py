"""The whole command on a real log: the numbers that AccaSim, HPCSim, pyss and CQSim agree on, from the file to the JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from queuewise.cli import main


@pytest.mark.parametrize(
    ("dispatch", "policy", "mean_wait_s", "bounded_slowdown"),
    [
        ("reorder", "fcfs", 2388443.7601, 66502.47552932303),
        ("reorder", "sjf", 275304.2226, None),
        ("commit", "sjf", 215314.9468, None),
        ("reorder", "fcfs+easy", 97155.9945, 590.0537772276801),
    ],
)
def test_lublin_256_through_the_command(
    traces: Path, capsys: pytest.CaptureFixture[str], dispatch: str, policy: str, mean_wait_s: float, bounded_slowdown: float | None
) -> None:
    log = str(traces / "swf" / "lublin_256.swf.gz")
    arguments = ["--workload", log, "--cluster", "flat:256", "--policy", policy, "--dispatch", dispatch, "--estimates", "oracle", "--json"]
    assert main(["simulate", *arguments]) == 0
    (summary,) = json.loads(capsys.readouterr().out)
    assert (summary["jobs"], summary["completed"], summary["rejected"]) == (10_000, 10_000, 0)
    assert summary["wait_s"]["mean"] == pytest.approx(mean_wait_s, abs=1e-4)
    if bounded_slowdown is not None:
        assert summary["bounded_slowdown"]["mean"] == pytest.approx(bounded_slowdown, rel=1e-12)
    if policy == "fcfs":
        assert summary["makespan_s"] == 12_482_549
