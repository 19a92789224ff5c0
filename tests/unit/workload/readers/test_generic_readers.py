"""Generic CSV and Parquet: our names, mapped names, dates, separators."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import effort
from queuewise.errors import InputError
from queuewise.workload import ReadOptions, load_workload
from reader_examples import ReadText


def test_panics_of_the_parquet_library_are_not_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Every second byte of a small file damaged in turn (with --slow every byte): errors or tables, and not a word on stderr."""
    path = tmp_path / "jobs.parquet"
    pl.DataFrame({"submit": [0.0, 5.0], "runtime": [1.0, 2.0], "gpus": [1, 2]}).write_parquet(path)
    content = path.read_bytes()
    messages = []
    for at in range(4, len(content) - 4, 1 if effort.thorough else 2):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        try:
            load_workload(path)
        except InputError as error:
            messages.append(str(error))
    assert messages
    assert all(message.isprintable() for message in messages)
    assert capfd.readouterr().err == ""


def test_columns_named_like_fields(read: ReadText) -> None:
    header = "submit,runtime,num_tasks,gpu_milli,cpu_milli,mem_mib,requested,kinds,partition,user,group,qos,"
    header += "priority,deadline,recorded_wait,job_id\n"
    workload = read(header + "5,60,2,2000,8000,1024,90,T4|A10,gpu,ann,lab,high,3,500,7,j1\n0,1,1,0,1000,0,,,,,,,,,,j0\n").workload
    assert workload.job_id.tolist() == ["j0", "j1"]
    assert (workload.num_tasks[1], workload.gpu_milli[1], workload.cpu_milli[1], workload.mem_mib[1]) == (2, 2000, 8000, 1024)
    assert (workload.requested[1], workload.priority[1], workload.deadline[1], workload.recorded_wait[1]) == (90, 3, 500, 7)
    assert workload.kind_sets[workload.kind_set[1]] == ("T4", "A10")
    assert (workload.partitions, workload.partition.tolist()) == (("gpu",), [-1, 0])
    assert (workload.users, workload.groups, workload.qos_names) == (("ann",), ("lab",), ("high",))
    assert np.isnan(workload.requested[0])


def test_mapped_columns_with_dates(read: ReadText) -> None:
    text = "when;began;done;cards;who\n2024-05-01 10:00:00;2024-05-01 10:01:00;2024-05-01 11:01:00;4;ann\n"
    columns = {"when": "submit", "began": "start", "done": "end", "cards": "gpus", "who": "user"}
    workload = read(text, format="csv", options=ReadOptions(columns=columns)).workload
    assert (workload.submit[0], workload.recorded_wait[0], workload.runtime[0]) == (0, 60, 3600)
    assert (workload.num_tasks[0], workload.gpu_milli[0]) == (4, 1000)
    assert datetime.fromtimestamp(workload.epoch).timestamp() == workload.epoch
    assert workload.epoch % 86_400 == 10 * 3600


@pytest.mark.parametrize(
    ("columns", "row", "shape"),
    [
        ("gpus", "0.5", (1, 500, 0)),
        ("gpus,cores", "4,8", (4, 1000, 2000)),
        ("cores", "8", (8, 0, 1000)),
        ("cores", "2.5", (3, 0, 834)),
        ("gpus,num_tasks", "8,2", (2, 4000, 0)),
        ("gpus,cores", "0,3", (3, 0, 1000)),
    ],
)
def test_whole_job_sizes_become_tasks(read: ReadText, columns: str, row: str, shape: tuple[int, int, int]) -> None:
    workload = read(f"submit,runtime,{columns}\n0,1,{row}\n").workload
    assert (workload.num_tasks[0], workload.gpu_milli[0], workload.cpu_milli[0]) == shape


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_separators(read: ReadText, separator: str) -> None:
    text = "submit,runtime,gpus\n0,1,2\n".replace(",", separator)
    assert read(text).workload.gpus.tolist() == [2]


def test_unix_times_are_not_shifted(read: ReadText) -> None:
    workload = read("submit,runtime,gpus\n1600000000,1,2\n").workload
    assert (workload.submit[0], workload.epoch) == (1_600_000_000, 0)


def test_missing_columns_say_what_was_found(read: ReadText) -> None:
    with pytest.raises(InputError, match=r"log\.txt:1: columns submit, runtime \(or end\) and .* found: time, length") as caught:
        read("time,length\n1,2\n", format="csv")
    assert "--map" in caught.value.hint


def test_map_errors_name_column_and_field(read: ReadText) -> None:
    with pytest.raises(InputError, match="did you mean 'runtime'"):
        read("a,b\n1,2\n", format="csv", options=ReadOptions(columns={"a": "runtim"}))
    with pytest.raises(InputError, match="no column 'z'; found: a, b"):
        read("a,b\n1,2\n", format="csv", options=ReadOptions(columns={"z": "runtime"}))


def test_parquet_with_dates_and_categories(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    table = pl.DataFrame(
        {"t": [datetime(2024, 5, 1, 10), datetime(2024, 5, 1, 9)], "runtime": [5, None], "cores": [2, 2], "user": ["a", "b"]}
    )
    table.with_columns(pl.col("user").cast(pl.Categorical)).write_parquet(path)
    loaded = load_workload(path, options=ReadOptions(columns={"t": "submit"}))
    assert (loaded.workload.users, loaded.workload.runtime.tolist(), loaded.tally.skipped) == (("a",), [5], {"no runtime": 1})
    assert loaded.workload.epoch % 86_400 == 10 * 3600


def test_damaged_parquet_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "jobs.parquet"
    path.write_bytes(b"PAR1 and nothing else")
    with pytest.raises(InputError, match="damaged Parquet"):
        load_workload(path)
