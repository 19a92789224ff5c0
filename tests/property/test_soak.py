"""The short version of benchmarks/soak.py, and the size of a large report: nothing is lost, and memory stays within its limits."""

from __future__ import annotations

import json
import mmap
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
    run_benchmark(repository, "soak.py", part, *PARTS[part], "--out", str(tmp_path / "soak"), "--results", str(tmp_path))
    figures = json.loads((tmp_path / "soak.json").read_text())[part]
    assert figures["rounds"] == 12 if part == "commands" else figures["times"] >= int(PARTS[part][1])


@pytest.fixture
def soak_modules(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(repository / "benchmarks")


@pytest.mark.usefixtures("soak_modules")
@pytest.mark.parametrize(("leak", "flat"), [(0, True), (1, True), (5, False)])  # pages per call; 1,000 calls
def test_memory_that_grows_is_noticed(leak: int, flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import soak_memory

    monkeypatch.setattr(soak_memory, "SAMPLED_EVERY_S", 0.0)
    held = mmap.mmap(-1, 5_000 * mmap.PAGESIZE)  # fresh pages: the heap of a long run may have room for all

    def work(number: int) -> int:
        for page in range(number * leak, (number + 1) * leak):
            held[page * mmap.PAGESIZE] = 1
        return 1

    assert soak_memory.watch_memory("calls", 1_000, work)["flat"] is flat


@pytest.mark.usefixtures("soak_modules")
@pytest.mark.parametrize(
    ("sizes", "rise", "highest"),
    [
        ([50.0] + [100.0] * 10, 0.0, 0.0),  # what grows in the first tenth does not count
        ([100.0 + step for step in range(11)], 9.0, 9.0),
        ([100.0] * 5 + [130.0] * 2 + [100.0] * 4, 0.0, 30.0),
    ],
)
def test_growth_by_hand(sizes: list[float], rise: float, highest: float) -> None:
    import soak_memory

    assert soak_memory.growth(list(enumerate(sizes))) == pytest.approx((rise, highest), abs=1e-6)


@pytest.mark.usefixtures("soak_modules")
def test_a_pause_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    import soak_processes

    clock = iter([0.0, 0.5, 600.5, 601.0])
    monkeypatch.setattr("soak_processes.time.monotonic", lambda: next(clock))
    running = soak_processes.RunningTime()
    assert [running() for _ in range(3)] == [0.5, 0.5 + soak_processes.LONGEST_STEP_S, 1.0 + soak_processes.LONGEST_STEP_S]


@pytest.mark.usefixtures("soak_modules")
def test_figures_of_one_part_leave_those_of_others(tmp_path: Path) -> None:
    import soak

    memory = {"command": "c", "memory_mib": 1.0, "rise_mib": 0.0, "flat": True}
    soak.write_figures(tmp_path, "resets", memory | {"times": 1})
    soak.write_figures(tmp_path, "commands", {"command": "c", "rounds": 2, "minutes": 1.0, "with_problems": 0})
    soak.write_figures(tmp_path, "resets", memory | {"times": 3})
    found = json.loads((tmp_path / "soak.json").read_text())
    assert {part: figures.get("times", figures.get("rounds")) for part, figures in found.items()} == {"commands": 2, "resets": 3}


@pytest.mark.usefixtures("soak_modules")
def test_the_figures_of_the_reliability_page_are_those_of_the_soak(repository: Path) -> None:
    import soak

    known = json.loads((repository / "benchmarks" / "results" / "soak.json").read_text())
    assert set(known) == {"commands", *soak.TIMES}
    assert known["commands"]["minutes"] >= 60
    assert known["commands"]["with_problems"] == 0
    assert all(known[part]["flat"] and known[part]["times"] >= times for part, times in soak.TIMES.items())
    assert soak.as_list(known) in (repository / "docs" / "reliability.md").read_text(encoding="utf-8")


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
