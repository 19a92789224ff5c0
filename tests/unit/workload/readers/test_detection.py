"""Every format is recognised by its content, compressed or not, and never taken for another."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from queuewise.errors import InputError
from queuewise.workload import load_workload
from queuewise.workload.readers import READERS, detect, reader
from queuewise.workload.readers.source import FileHead
from reader_examples import EXAMPLES

CASES = [(name, example) for name in READERS for example in EXAMPLES[name]]


def test_every_reader_has_an_example_and_says_what_it_is() -> None:
    assert set(EXAMPLES) == set(READERS)
    assert all(reader(name).SUMMARY for name in READERS)


@pytest.mark.parametrize(("name", "example"), CASES)
def test_format_is_found_from_content(name: str, example: bytes, tmp_path: Path) -> None:
    assert detect(FileHead(tmp_path / "anything", example)) == name


@pytest.mark.parametrize(("name", "example"), CASES)
def test_example_gives_jobs_and_a_complete_tally(name: str, example: bytes, tmp_path: Path) -> None:
    path = tmp_path / "anything"
    path.write_bytes(example)
    loaded = load_workload(path)
    assert loaded.format == name
    assert len(loaded.workload) >= 1
    assert loaded.tally.kept == len(loaded.workload)
    assert loaded.tally.rows_read == loaded.tally.kept + sum(loaded.tally.skipped.values())


@pytest.mark.parametrize("squeeze", [gzip.compress, bz2.compress, lzma.compress], ids=["gzip", "bzip2", "xz"])
def test_compression_is_found_from_content_not_from_the_name(squeeze: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(squeeze(EXAMPLES["swf"][0]))
    assert load_workload(path).workload.submit.tolist() == [0.0, 5.0]


def test_zstandard_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    pl.DataFrame({"submit": [0, 5], "runtime": [1, 2], "gpus": [1, 2]}).lazy().sink_csv(path, compression="zstd", check_extension=False)
    assert path.read_bytes().startswith(b"\x28\xb5\x2f\xfd")
    assert load_workload(path).workload.gpus.tolist() == [1.0, 2.0]


def test_first_file_of_a_tar_archive_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pai_task_table.tar.gz"
    table = EXAMPLES["pai"][0]
    with tarfile.open(path, "w:gz") as archive:
        entry = tarfile.TarInfo("pai_task_table.csv")
        entry.size = len(table)
        archive.addfile(entry, io.BytesIO(table))
    loaded = load_workload(path)
    assert (loaded.format, len(loaded.workload)) == ("pai", 1)


@pytest.mark.parametrize("kept", [100, 600, 5_000, 90_000])  # bytes: in the header of the first file, and in its content
def test_an_archive_that_was_cut_is_damaged(tmp_path: Path, kept: int) -> None:
    path, whole = tmp_path / "log.tar", io.BytesIO()
    table = b"submit,runtime,gpus\n" + b"0,60,1\n" * 20_000
    with tarfile.open(fileobj=whole, mode="w") as archive:
        entry = tarfile.TarInfo("log.csv")
        entry.size = len(table)
        archive.addfile(entry, io.BytesIO(table))
    path.write_bytes(whole.getvalue()[:kept])
    with pytest.raises(InputError, match=r"log\.tar:\d+: "):
        load_workload(path)


def test_unknown_content_names_the_formats(tmp_path: Path) -> None:
    path = tmp_path / "letter.txt"
    path.write_text("Dear operator,\nplease run my jobs.\n")
    with pytest.raises(InputError, match=r"letter\.txt:1: unknown format; the file starts with 'Dear operator,'") as caught:
        load_workload(path)
    assert "slurm" in caught.value.hint


def test_unknown_format_suggests_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    path.write_bytes(EXAMPLES["slurm"][0])
    with pytest.raises(InputError, match="did you mean 'slurm'"):
        load_workload(path, format="slrum")


def test_format_overrides_detection(tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("arrival_time,runtime,gpus,priority\n0,1,4,0.5\n")
    one_gpu_tasks, one_worker = load_workload(path).workload, load_workload(path, format="spot").workload
    assert (one_gpu_tasks.num_tasks[0], one_gpu_tasks.gpu_milli[0]) == (4, 1000)
    assert (one_worker.num_tasks[0], one_worker.gpu_milli[0]) == (1, 4000)
