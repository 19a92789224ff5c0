from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from queuewise.cache_folder import cache_home, say_once, write_sealed
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
def small_logs_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(prediction_cache, "FEWEST_JOBS", 10)
    monkeypatch.setenv("QUEUEWISE_CACHE_DIR", str(tmp_path))
    for function in (say_once, cache_home):
        function.cache_clear()
    yield
    for function in (say_once, cache_home):
        function.cache_clear()


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


def flip_a_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-3] ^= 1
    file.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-1]),
    "changed": flip_a_bit,
    "without a digest": lambda file: file.write_bytes(np.zeros(50).tobytes()),
    "of another number of jobs": lambda file: write_sealed(file, np.zeros(3).tobytes()),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_files_are_replaced(tmp_path: Path, damage: str) -> None:
    compute = Counter()
    kept(JOBS, "a", compute)
    (file,) = files(tmp_path)
    DAMAGES[damage](file)
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert compute.calls == 2


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_files_that_others_can_write_are_not_believed(tmp_path: Path, mode: int, capsys: pytest.CaptureFixture[str]) -> None:
    compute = Counter()
    kept(JOBS, "a", compute)
    (file,) = files(tmp_path)
    write_sealed(file, np.full(50, 7.0).tobytes())
    file.chmod(mode)
    os.chown(file, -1, 54321 if os.getuid() == 0 else -1)  # a group that is not the user's own
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert "predictions are computed again" in capsys.readouterr().err
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert compute.calls == 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_files_and_folders_of_another_user_are_not_believed(tmp_path: Path, what: str) -> None:
    compute = Counter()
    kept(JOBS, "a", compute)
    (file,) = files(tmp_path)
    write_sealed(file, np.full(50, 7.0).tobytes())
    os.chown(file if what == "file" else file.parent, 12345, 12345)
    assert kept(JOBS, "a", compute).tolist() == list(range(50))
    assert compute.calls == 2


def test_whatever_the_umask_is_others_cannot_write(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        kept(JOBS, "a", Counter())
    finally:
        os.umask(before)
    (file,) = files(tmp_path)
    assert (file.stat().st_mode & 0o022, file.parent.stat().st_mode & 0o022) == (0, 0)


def test_a_full_disk_is_no_problem(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        assert kept(JOBS, "a", Counter()).tolist() == list(range(50))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert files(tmp_path) == []


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
