"""The short version of benchmarks/soak.py, and the size of a large report: nothing is lost, and memory stays within its limits."""

from __future__ import annotations

import importlib.util
import json
import mmap
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize(("leak", "noticed"), [(0, 0), (1, 0), (5, 1)])  # pages per call; 1,000 calls
def test_memory_that_grows_is_noticed(leak: int, noticed: int, repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak = load_soak(repository)
    monkeypatch.setattr(soak, "SAMPLED_EVERY_S", 0.0)
    held = mmap.mmap(-1, 5_000 * mmap.PAGESIZE)  # fresh pages: the heap of a long run may have room for all

    def work(number: int) -> int:
        for page in range(number * leak, (number + 1) * leak):
            held[page * mmap.PAGESIZE] = 1
        return 1

    assert soak.watch_memory("calls", 1_000, work) == noticed


@pytest.mark.parametrize(
    ("sizes", "rise", "highest"),
    [
        ([50.0] + [100.0] * 10, 0.0, 0.0),  # what grows in the first tenth does not count
        ([100.0 + step for step in range(11)], 9.0, 9.0),
        ([100.0] * 5 + [130.0] * 2 + [100.0] * 4, 0.0, 30.0),
    ],
)
def test_growth_by_hand(sizes: list[float], rise: float, highest: float, repository: Path) -> None:
    found = load_soak(repository).growth(list(enumerate(sizes)))
    assert found == pytest.approx((rise, highest), abs=1e-6)


def test_a_pause_does_not_count(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    soak = load_soak(repository)
    clock = iter([0.0, 0.5, 600.5, 601.0])
    monkeypatch.setattr(soak.time, "monotonic", lambda: next(clock))
    running = soak.RunningTime()
    assert [running() for _ in range(3)] == [0.5, 0.5 + soak.LONGEST_STEP_S, 1.0 + soak.LONGEST_STEP_S]


def load_soak(repository: Path) -> Any:
    spec = importlib.util.spec_from_file_location("soak", repository / "benchmarks" / "soak.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


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
