"""Whatever is read or replaced is a file: nothing waits for a named pipe without a writer, and nothing reads a device without end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from queuewise.cli import main
from queuewise.errors import InputError
from queuewise.policies.snapshot import Snapshot
from queuewise.regular_files import check_regular

STORED = Path(__file__).parent / "agents" / "stored_runs" / "ppo"
INPUTS = ("simulate", "--workload", "bursty", "--jobs", "10", "--cluster", "2x4:V100-16", "--policy")


def pipe(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("/dev/zero")


def test_files_and_names_of_nothing_pass(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link", "nothing"):
        check_regular(tmp_path / name)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("make", [pipe, endless])
@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((*INPUTS, "mine.py:score"), "mine.py"),
        ((*INPUTS, "multifactor+slurm:slurm.conf"), "slurm.conf"),
        (("learn", "bursty", "--cluster", "2x4:V100-16", "--export", "rule.py"), "rule.py"),
        (("predict", "bursty", "--cluster", "2x4:V100-16", "--plot", "figure.png"), "figure.png"),
        (("validate", "bursty", "--cluster", "2x4:V100-16", "--plot", "figure.png"), "figure.png"),
        (("plot", "run", "--out", "curves.svg"), "run/seed-0/metrics.jsonl"),
    ],
)
def test_pipes_and_devices_are_refused_at_once(
    arguments: tuple[str, ...],
    name: str,
    make: Callable[[Path], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    if name.startswith("run"):
        shutil.copytree(STORED, "run")
        Path(name).unlink()
    make(Path(name))
    assert main(arguments) == 2
    assert f"error: {name}: is not a regular file" in capsys.readouterr().err


@pytest.mark.timeout(60)
def test_a_snapshot_is_a_file(tmp_path: Path) -> None:
    pipe(tmp_path / "snapshot.json")
    with pytest.raises(InputError, match="is not a regular file"):
        Snapshot.load(tmp_path / "snapshot.json")
