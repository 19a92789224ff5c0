"""The short version of benchmarks/soak.py, and the size of a large report: nothing is lost, and memory stays within its limits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PARTS = {
    "commands": ("--rounds", "12", "--seed", "0"),
    "resets": ("--times", "20000"),
    "simulations": ("--times", "1000"),
}


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", PARTS)
def test_a_short_soak_finds_nothing(part: str, repository: Path, tmp_path: Path) -> None:
    run_benchmark(repository, "soak.py", part, *PARTS[part], "--out", str(tmp_path / "soak"))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_report_of_a_million_jobs_stays_below_one_gibibyte(repository: Path, tmp_path: Path) -> None:
    run_benchmark(repository, "report_size.py", "--results", str(tmp_path))
    figures = json.loads((tmp_path / "report_size.json").read_text())
    assert figures["peak_memory_mib"] < 1024
    assert figures["cpu_s"] < 30  # below 20 on a machine that does nothing else


def run_benchmark(repository: Path, name: str, *arguments: str) -> None:
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, repository / "benchmarks" / name, *arguments],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
