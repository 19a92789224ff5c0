"""The short version of benchmarks/soak.py: disturbed commands lose nothing, and memory stays flat."""

from __future__ import annotations

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
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(
        [sys.executable, repository / "benchmarks" / "soak.py", part, *PARTS[part], "--out", tmp_path / "soak"],
        env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
