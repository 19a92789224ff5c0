"""DRL_Scheduler's list of Google's jobs: three columns in microseconds, and no sizes."""

from __future__ import annotations

from pathlib import Path

from queuewise.workload import load_workload

ROWS = [(600, 630, 0), (601, 700, 1), (601, 660, 2), (605, 606, 3), (610, 640, 0), (620, 610, 1), (630, 730, 2), (640, 650, 3),
        (650, 651, 0), (660, 960, 1)]  # fmt: skip


def written(path: Path, header: str, more: str = "") -> Path:
    lines = [f"{begin * 1_000_000},{end * 1_000_000},{level}{more}" for begin, end, level in ROWS]
    path.write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    return path


def test_ten_rows(tmp_path: Path) -> None:
    loaded = load_workload(written(tmp_path / "google.csv", "submit_time,finish_time,scheduling_class"))
    jobs = loaded.workload
    assert loaded.format == "drl_google"
    assert len(jobs) == 9  # one finishes before it is submitted
    assert jobs.runtime.tolist() == [30, 99, 59, 1, 30, 100, 10, 1, 300]
    assert jobs.priority.tolist() == [0, 1, 2, 3, 0, 2, 3, 0, 1]
    assert set(jobs.gpus.tolist()) == {1.0}
    said = " ".join(loaded.tally.remarks())
    assert "one GPU per job" in said
    assert "finishes before it is submitted" in said


def test_sizes_are_used_where_there_are_some(tmp_path: Path) -> None:
    loaded = load_workload(written(tmp_path / "google.csv", "submit_time,finish_time,scheduling_class,gpus", ",4"))
    assert set(loaded.workload.gpus.tolist()) == {4.0}
    assert "one GPU per job" not in " ".join(loaded.tally.remarks())
