"""Kernels one by one, and every feature of the engine, without the compiler: each file of tests/uncompiled in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "uncompiled"
SHARED = ("conftest.py", "simulation.py")
FILES = sorted(path.name for path in FOLDER.glob("*.py") if path.name not in SHARED)


@pytest.mark.parametrize("file", FILES)
def test_without_the_compiler(file: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--no-header", "--tb=short", str(FOLDER / file)]
    done = subprocess.run(command, env=os.environ | {"NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
