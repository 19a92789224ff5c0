"""Replays on disk: nothing lost, nothing half-written, every defect named; documented columns are the written ones."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from queuewise.errors import InputError
from queuewise.evaluation.jobs_table import jobs_table, pieces_table
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.replay_files import check_run, find_replays, read_facts, read_schedule, read_summary, write_cluster, write_replay
from queuewise.runs import write_text
from queuewise.sim.core.schedule import Schedule


@pytest.fixture
def run(tmp_path: Path, ten_jobs: Schedule) -> Path:
    """A finished run of one replay."""
    write_cluster(tmp_path, ten_jobs.cluster)
    write_replay(tmp_path / "by-hand", ten_jobs, figures={"wait": 1.0})
    write_text(tmp_path / "config.toml", 'command = "simulate"\n')
    write_text(tmp_path / "summary.json", "[]")
    return tmp_path


def test_a_schedule_comes_back_as_it_was(run: Path, ten_jobs: Schedule) -> None:
    again = read_schedule(run, run / "by-hand")
    assert all_metrics(measure(again)) == all_metrics(measure(ten_jobs))
    for field in dataclasses.fields(Schedule):
        was, now = getattr(ten_jobs, field.name), getattr(again, field.name)
        if isinstance(was, np.ndarray):
            assert np.array_equal(was, now, equal_nan=True), field.name
            assert was.dtype == now.dtype, field.name
        elif isinstance(was, (str, int, float)):
            assert was == now
    for column in ("submit", "user", "priority", "deadline", "kind_set", "partition", "group", "gpu_milli", "job_id"):
        assert np.array_equal(getattr(ten_jobs.workload, column), getattr(again.workload, column), equal_nan=True), column
    assert again.workload.users == ("a", "b", "c")


def test_names_and_kinds_come_back(tmp_path: Path, ten_jobs: Schedule) -> None:
    codes = np.array([-1, 0, 1, 1, 0, -1, 0, 0, 1, 0], dtype=np.int32)
    workload = ten_jobs.workload.replace(
        group=codes, groups=("x", "y"), qos=codes, qos_names=("low", "high"), kind_set=codes + 1, kind_sets=((), ("T4",), ("T4", "P100"))
    )
    write_cluster(tmp_path, ten_jobs.cluster)
    write_replay(tmp_path / "p", dataclasses.replace(ten_jobs, workload=workload))
    again = read_schedule(tmp_path, tmp_path / "p").workload
    assert [again.groups[c] if c >= 0 else None for c in again.group] == [None, "x", "y", "y", "x", None, "x", "x", "y", "x"]
    assert [again.kind_sets[c] for c in again.kind_set] == [workload.kind_sets[c] for c in workload.kind_set]


def test_job_rows_by_hand(ten_jobs: Schedule) -> None:
    rows = jobs_table(ten_jobs).to_dicts()
    six = rows[6]
    assert (six["status"], six["slowdown"], six["num_nodes"]) == ("done", 2.6, 2)
    assert (six["first_wait_s"], six["wait_s"], six["jct_s"], six["service_s"]) == (50, 80, 130, 50)
    assert (rows[9]["status"], rows[9]["first_wait_s"], rows[9]["wait_s"]) == ("running", 100, None)
    assert rows[2]["bounded_slowdown"] == 1.0
    assert (rows[7]["slowdown"], rows[7]["bounded_slowdown"]) == (None, 1.0)
    assert (rows[8]["status"], rows[8]["start_s"], rows[8]["num_nodes"]) == ("rejected", None, 0)
    assert (rows[9]["status"], rows[9]["start_s"], rows[9]["end_s"], rows[9]["jct_s"]) == ("running", 180.0, None, None)


@pytest.mark.parametrize(("heading", "table"), [("jobs.parquet", jobs_table), ("pieces.parquet", pieces_table)])
def test_documented_columns_are_the_written_ones(repository: Path, run: Path, ten_jobs: Schedule, heading: str, table: object) -> None:
    text = (repository / "docs" / "formats.md").read_text(encoding="utf-8")
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/formats.md has no section {heading}"
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", section[1], re.MULTILINE)
    written = pl.read_parquet(run / "by-hand" / heading)
    assert [name for name, _ in rows] == written.columns
    assert written.columns == table(ten_jobs).columns  # type: ignore[operator]
    kinds = {"float": pl.Float64, "string": pl.String}
    for name, kind in rows:
        kind = kind.strip()
        if kind in kinds:
            assert written.schema[name] == kinds[kind], name
        elif kind == "int":
            assert written.schema[name].is_integer(), name
        else:
            assert kind == "as in the log"


def test_unfinished_and_foreign_folders_are_named(run: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert [path.name for path in find_replays(run)] == ["by-hand"]
    (run / "summary.json").unlink()
    with pytest.raises(InputError, match=r"unfinished run: summary.json is missing.*to resume it"):
        check_run(run)
    with pytest.raises(InputError, match="is not a run folder"):
        check_run(tmp_path_factory.mktemp("empty"))
    with pytest.raises(InputError, match="no such run folder"):
        check_run(run / "absent")


@pytest.mark.parametrize("name", ["by-hand/jobs.parquet", "by-hand/pieces.parquet", "by-hand/replay.json", "cluster.json"])
def test_a_truncated_file_is_named(run: Path, name: str) -> None:
    path = run / name
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError, match=rf"{re.escape(str(path))}: is corrupted"):
        read_schedule(run, run / "by-hand")


@pytest.mark.parametrize("name", ["by-hand/jobs.parquet", "by-hand/replay.json", "cluster.json"])
def test_a_missing_file_is_named(run: Path, name: str) -> None:
    (run / name).unlink()
    with pytest.raises(InputError, match=rf"{re.escape(str(run / name))}: is missing"):
        read_schedule(run, run / "by-hand")


def test_files_of_another_shape_are_named(run: Path) -> None:
    write_text(run / "cluster.json", '{"name": "x"}')
    with pytest.raises(InputError, match="does not describe a cluster"):
        read_schedule(run, run / "by-hand")
    write_text(run / "by-hand" / "replay.json", "[]")
    with pytest.raises(InputError, match="does not describe a replay"):
        read_facts(run / "by-hand")
    write_text(run / "summary.json", "{")
    with pytest.raises(InputError, match=r"summary\.json: is corrupted"):
        read_summary(run)


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, ten_jobs: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*_: object, **__: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(pl.DataFrame, "write_parquet", full_disk)
    with pytest.raises(OSError, match="no space left"):
        write_replay(tmp_path / "p", ten_jobs)
    assert list((tmp_path / "p").iterdir()) == []
