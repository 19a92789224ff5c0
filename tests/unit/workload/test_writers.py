"""Round trips: what a format can hold comes back unchanged, what it cannot hold is said."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from queuewise.errors import InputError
from queuewise.workload import ClusterFacts, NodeFacts, ReadOptions, Workload, load_workload
from queuewise.workload.jobs import COLUMNS
from queuewise.workload.writers import WRITERS, write_workload

LABELLED = {"partition": "partitions", "user": "users", "group": "groups", "qos": "qos_names", "kind_set": "kind_sets"}
SECONDS = st.floats(0, 1e9) | st.integers(0, 10**9).map(float)
MAYBE_SECONDS = st.just(float("nan")) | SECONDS
LABELS = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=8)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    num = draw(st.integers(1, 12))

    def column(values: st.SearchStrategy[object], dtype: type) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=num, max_size=num)), dtype=dtype)

    labels = {
        name: tuple(draw(st.lists(LABELS, min_size=1, max_size=3, unique=True))) for name in ("partitions", "users", "groups", "qos_names")
    }
    return Workload.sorted(
        submit=column(SECONDS, np.float64), runtime=column(SECONDS, np.float64), num_tasks=column(st.integers(1, 2**31 - 1), np.int32),
        gpu_milli=column(st.integers(0, 1000) | st.integers(1, 63).map(lambda gpus: gpus * 1000), np.int32),
        cpu_milli=column(st.integers(1, 2**31 - 1), np.int32), mem_mib=column(st.integers(0, 2**31 - 1), np.int32),
        requested=column(MAYBE_SECONDS, np.float64), recorded_wait=column(MAYBE_SECONDS, np.float64),
        deadline=column(MAYBE_SECONDS, np.float64),
        priority=column(st.floats(-1e6, 1e6), np.float64), job_name=column(st.integers(-1, 4), np.int32),
        kind_set=column(st.integers(0, 1), np.int32), kind_sets=((), ("A10", "T4")),
        partition=column(st.integers(-1, len(labels["partitions"]) - 1), np.int32),
        user=column(st.integers(-1, len(labels["users"]) - 1), np.int32),
        group=column(st.integers(-1, len(labels["groups"]) - 1), np.int32),
        qos=column(st.integers(-1, len(labels["qos_names"]) - 1), np.int32),
        job_id=np.array(draw(st.lists(st.integers(0, 2**62), min_size=num, max_size=num))),
        name=draw(LABELS), epoch=draw(SECONDS), **labels,
    )  # fmt: skip


def meaning(workload: Workload) -> dict[str, list[object]]:
    """The columns with codes replaced by what they stand for; names of jobs by the first job of the same name."""
    columns: dict[str, list[object]] = {name: getattr(workload, name).tolist() for name in COLUMNS if name not in {*LABELLED, "job_name"}}
    for code, labels in LABELLED.items():
        columns[code] = [None if index < 0 else getattr(workload, labels)[index] for index in getattr(workload, code)]
    names = workload.job_name.tolist()
    columns["job_name"] = [-1 if name < 0 else names.index(name) for name in names]
    return columns


def assert_same(found: Workload, wanted: Workload) -> None:
    left, right = meaning(found), meaning(wanted)
    for name in COLUMNS:
        np.testing.assert_equal(left[name], right[name], err_msg=name)
    assert (found.name, found.epoch) == (wanted.name, wanted.epoch)


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "parquet"])
@settings(max_examples=40, deadline=None)
@given(workload=workloads())
def test_generic_formats_lose_nothing(suffix: str, workload: Workload) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"jobs.{suffix}"
        assert write_workload(workload, path) == []
        assert_same(load_workload(path).workload, workload)


def test_swf_round_trip_of_one_core_tasks(tmp_path: Path) -> None:
    workload = Workload(
        submit=np.array([0.0, 5.25]), runtime=np.array([10.0, 3.5]), num_tasks=np.array([4, 128], np.int32),
        cpu_milli=np.array([1000, 1000], np.int32),
        mem_mib=np.array([512, 0], np.int32), requested=np.array([60.0, np.nan]), recorded_wait=np.array([np.nan, 7.0]),
        job_id=np.array([11, 9]),
        user=np.array([1, 0], np.int32), users=("40", "2"), group=np.array([-1, 0], np.int32), groups=("7",),
        job_name=np.array([0, 1], np.int32),
        epoch=1e9, name="jobs",
    )  # fmt: skip
    facts = ClusterFacts("seth", (NodeFacts(2, cpus=64.0),))
    assert write_workload(workload, tmp_path / "jobs.swf.gz", cluster=facts) == []
    loaded = load_workload(tmp_path / "jobs.swf.gz", options=ReadOptions(memory=True))
    assert_same(loaded.workload, workload)
    assert loaded.cluster is not None
    assert (loaded.cluster.name, loaded.cluster.nodes[0].cpus) == ("seth", 128)


@pytest.mark.parametrize("name", ["HPC2N-2002-2.2-cln", "CTC-SP2-1996-3.1-cln", "SDSC-SP2_reconstructed", "lublin_256"])
def test_swf_logs_survive_a_round_trip(traces: Path, tmp_path: Path, name: str) -> None:
    first = load_workload(traces / "swf" / f"{name}.swf.gz")
    target = tmp_path / f"{name}.swf"
    assert write_workload(first.workload, target, cluster=first.cluster) == []
    second = load_workload(target)
    for column in COLUMNS:
        np.testing.assert_array_equal(getattr(second.workload, column), getattr(first.workload, column), err_msg=column)
    assert (second.workload.users, second.workload.epoch) == (first.workload.users, first.workload.epoch)


def test_swf_says_what_it_cannot_hold(tmp_path: Path) -> None:
    workload = Workload(
        submit=np.array([0.0]), runtime=np.array([1.0]), num_tasks=np.array([1], np.int32), gpu_milli=np.array([500], np.int32),
        kind_set=np.array([1], np.int32), kind_sets=((), ("T4",)), priority=np.array([2.0]), deadline=np.array([9.0]),
    )  # fmt: skip
    notes = write_workload(workload, tmp_path / "jobs.swf")
    told = " ".join(notes)
    assert all(word in told for word in ("rounded up", "GPU kinds", "priority", "deadline", "without their tasks"))
    assert load_workload(tmp_path / "jobs.swf").workload.num_tasks.tolist() == [1]


def test_unknown_output_format_and_unwritable_place(tmp_path: Path) -> None:
    workload = Workload(np.array([0.0]), np.array([1.0]), np.array([1], np.int32), cpu_milli=np.array([1000], np.int32))
    with pytest.raises(InputError, match="unknown output format 'xlsx'"):
        write_workload(workload, tmp_path / "jobs.xlsx")
    with pytest.raises(InputError, match="cannot be written"):
        write_workload(workload, tmp_path / "nowhere" / "jobs.csv")
    assert list(tmp_path.iterdir()) == []


def test_csv_keeps_name_and_epoch_in_a_comment(tmp_path: Path) -> None:
    workload = Workload(
        np.array([0.0]), np.array([1.0]), np.array([1], np.int32), cpu_milli=np.array([1000], np.int32), name="n", epoch=7.5
    )
    write_workload(workload, tmp_path / "jobs.csv")
    comment, header, *rows = (tmp_path / "jobs.csv").read_text().splitlines()
    assert json.loads(comment.removeprefix("# queuewise ")) == {"name": "n", "epoch": 7.5}
    assert header.startswith("submit,runtime,num_tasks")
    assert len(rows) == 1
    assert set(WRITERS) == {"swf", "parquet", "csv"}
