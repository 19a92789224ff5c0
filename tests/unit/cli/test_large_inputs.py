"""Inputs that would need more memory than there is are refused before it is used, with what they need and the limit."""

from __future__ import annotations

import gzip
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fuzz.cases import GPU_LOG
from queuewise.cli import main

LIMIT = 8 << 30
ELASTIC = b"submit,runtime,gpus,num_tasks,min_tasks,max_tasks\n0,10,1,1,1,2147483647\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a log, on a machine with 8 GiB."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("queuewise.memory.memory_limit", lambda: LIMIT)
    (tmp_path / "log.csv").write_bytes(GPU_LOG)
    return tmp_path


def zstandard_bomb(size: int) -> bytes:
    """A frame of blocks that repeat one byte 128 Ki times (RFC 8878): its four bytes unpack to 128 KiB."""
    block = bytes([0x02, 0x00, 0x10]) + b"1"  # not the last, repeated, 1 << 17
    last = bytes([0x03, 0x00, 0x00]) + b"1"
    return b"\x28\xb5\x2f\xfd" + bytes([0x00, 0x70]) + block * (size >> 17) + last


REFUSED: dict[str, tuple[str, str]] = {  # what is typed -> error and hint (parts)
    "workload info bench --jobs 1000000000": ("1,000,000,000 jobs would need about 186.3 GiB of memory, but the limit is 8.0 GiB", ""),
    "simulate --workload log.csv --cluster 999999999x8:V100-16 --policy fcfs": (
        "999,999,999 nodes would need about 372.5 GiB of memory, but the limit is 8.0 GiB", "fewer large ones",
    ),
    "simulate --workload log.csv --cluster 20000000x8:V100-16 --policy fcfs": ("at most 10,000,000 are supported", "fewer large ones"),
    "simulate --workload log.csv --cluster 4x8:V100-16 --policy fcfs --elastic 1,1-1e9,linear": (
        "sizes would need about", "narrow the range of --elastic",
    ),
    "workload info elastic.csv": ("2,147,483,647 sizes would need about 1,000.0 GiB", "min_tasks and max_tasks"),
    "workload info bomb.zst": ("a file of up to 20,480 MiB would need about 400.0 GiB", "zstd -d"),
    "workload info long.gz": ("long.gz:2: this line is longer than 64 MiB", "is this the right file?"),
    "simulate --workload log.csv --cluster 2x4:V100-16 --policy mine.py:score": ("STATE_SIZE is 1000000000", "from 0 to 1,000,000"),
}  # fmt: skip


def test_a_small_frame_of_that_kind_is_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """So the bomb is refused for its size alone."""
    (folder / "small.zst").write_bytes(zstandard_bomb(1 << 20))
    assert main(["workload", "info", "small.zst"]) == 2
    assert "unknown format; the file starts with '111111" in capsys.readouterr().err


@pytest.mark.parametrize("typed", REFUSED)
def test_what_would_not_fit_is_refused(typed: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "elastic.csv").write_bytes(ELASTIC)
    (folder / "mine.py").write_text("STATE_SIZE = 1000000000\ndef score(job, state):\n    return state[0]\n")
    if "bomb.zst" in typed:
        (folder / "bomb.zst").write_bytes(zstandard_bomb(20 << 30))
    if "long.gz" in typed:
        (folder / "long.gz").write_bytes(gzip.compress(b"; MaxProcs: 4\n" + b"1" * (100 << 20), 1))
    code = main(typed.split())
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert code == 2
    assert REFUSED[typed][0] in error
    assert REFUSED[typed][1] in hint


def test_running_out_of_memory_is_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("queuewise.workload.load_workload", lambda *_, **__: np.empty(1 << 50))
    assert main(["workload", "info", "log.csv"]) == 2
    error, hint = capsys.readouterr().err.splitlines()
    assert error.startswith("error: out of memory: Unable to allocate 8.00 PiB")
    assert hint.startswith("hint: use fewer jobs")


def test_a_limit_of_the_process_counts() -> None:
    """As with `ulimit -v`."""
    done = subprocess.run(
        [sys.executable, "-m", "queuewise", "workload", "info", "bench", "--jobs", "50000000"],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "50,000,000 jobs would need about 9.3 GiB of memory, but the limit is 4.0 GiB" in done.stderr


CONDITIONS: dict[str, tuple[str, str]] = {  # conditions -> error and the line of the file
    "[failures]\nmtbf_h = 0.005\nmttr_h = 0.001": ("outages in this workload and the year after it; the limit is 500,000", ""),
    "[preemption]\nkind_factor = {'V100-16' = -1}": ("kind_factor.V100-16 = -1", ":2"),
    "[preemption]\nrestart_s = 1e30": ("restart_s = 1e+30: must be at most 1000000000000", ":2"),
    "[[outages]]\nnode = 0\nstart = 0\nend = 1e30": ("ends at 1e+30, which is after 1e+12; inf means never", ":1"),
    "[[maintenance]]\nnodes = [-1]\nstart = 0\nend = 9": ("nodes[0] = -1", ":2"),
}


@pytest.mark.parametrize("text", CONDITIONS)
def test_conditions_out_of_range_are_refused(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w.toml").write_text(text)
    code = main(["simulate", "--workload", "log.csv", "--cluster", "2x4:V100-16", "--policy", "fcfs", "--conditions", "w.toml"])
    error = capsys.readouterr().err.splitlines()[-2]
    assert code == 2
    assert CONDITIONS[text][0] in error
    assert CONDITIONS[text][1] in error


CLUSTERS = {  # lines of a cluster file -> error
    "[[nodes]]\ncount = 1\ngpus = 1\nkind = 'T4'\ncpus = 1e30": "more than 1,000,000,000 cores",
    "[[nodes]]\ncount = 1\ngpus = 1\nkind = 'T4'\n[speeds]\nT4 = 1e-300": "speeds must be positive numbers from",
    "[[nodes]]\ncount = 1\ngpus = 1\nkind = 'T4'\n[speeds]\nT4 = -1": "speeds must be positive numbers from",
    "node_penalty = 1e308\n[[nodes]]\ncount = 1\ngpus = 1\nkind = 'T4'": "penalties must be between 0 and 1,000,000",
    "x = " + "[" * 5000 + "]" * 5000: "nested too deeply",
    "x = " + "9" * 5000: "too many digits",
}


@pytest.mark.parametrize("text", CLUSTERS, ids=CLUSTERS.get)
def test_clusters_out_of_range_are_refused(text: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "c.toml").write_text(text)
    code = main(["simulate", "--workload", "log.csv", "--cluster", "c.toml", "--policy", "fcfs"])
    error = capsys.readouterr().err.splitlines()[-2]
    assert code == 2
    assert CLUSTERS[text] in error


def test_a_cluster_that_is_down_for_ever_is_explained(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w.toml").write_text("".join(f"[[outages]]\nnode = {n}\nstart = 100\nend = inf\n" for n in range(2)))
    code = main(["simulate", "--workload", "log.csv", "--cluster", "2x4:V100-16", "--policy", "fcfs", "--conditions", "w.toml"])
    err = capsys.readouterr().err
    assert code == 0
    assert "23 jobs unfinished: the nodes that could run them are down or drained for good" in err
    assert "hardly anybody waits" not in err
