from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.workload import prediction_cache
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models import generate
from queuewise.workload.prediction_cache import kept

JOBS = generate("lublin", 50, 1)


class Counter:
    """Something that takes long to compute."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> Floats:
        self.calls += 1
        return np.arange(len(JOBS), dtype=np.float64)


@pytest.fixture(autouse=True)
def small_logs_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(prediction_cache, "FEWEST_JOBS", 10)
    monkeypatch.setenv("QUEUEWISE_CACHE_DIR", str(tmp_path))


def files(folder: Path) -> list[Path]:
    return sorted((folder / "predictions").glob("*"))


def test_computed_once(tmp_path: Path) -> None:
    compute = Counter()
    first, second = kept(JOBS, "a", compute), kept(JOBS, "a", compute)
    assert compute.calls == 1
    assert first.tolist() == second.tolist()
    assert len(files(tmp_path)) == 1


def changed(name: str) -> Workload:
    column = getattr(JOBS, name).copy()
    column[-1] += 1
    return JOBS.replace(**{name: column})


@pytest.mark.parametrize("other", [changed("runtime"), changed("user"), changed("submit"), changed("cpu_milli")])
def test_other_jobs_are_computed_anew(other: Workload) -> None:
    compute = Counter()
    kept(JOBS, "a", compute)
    kept(other, "a", compute)
    kept(JOBS, "b", compute)
    assert compute.calls == 3


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_damaged_files_are_replaced(tmp_path: Path, damage: bytes | None) -> None:
    compute = Counter()
    kept(JOBS, "a", compute)
    (file,) = files(tmp_path)
    if damage is None:
        np.save(file, np.zeros(3))  # of another number of jobs
    else:
        file.write_bytes(damage)
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert compute.calls == 2


def test_a_folder_that_cannot_be_written_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("QUEUEWISE_CACHE_DIR", str(tmp_path / "file"))
    compute = Counter()
    assert kept(JOBS, "a", compute).tolist() == list(range(50))


def test_only_the_latest_files_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prediction_cache, "MOST_FILES", 2)
    for about in "abcd":
        kept(JOBS, about, Counter())
    assert len(files(tmp_path)) == 2


def test_a_user_without_a_home_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("QUEUEWISE_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)
    assert kept(JOBS, "a", Counter()).tolist() == list(range(50))
