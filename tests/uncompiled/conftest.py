"""Tests of single kernels and of every feature of the engine, in a process of its own in which nothing is compiled.

Kernels are compiled into the engine's entries and cannot be called from Python one by one; without the compiler they are plain functions.
tests/unit/sim/test_plain_kernels.py runs every file of this folder. By hand: NUMBA_DISABLE_JIT=1 python -m pytest tests/uncompiled/FILE.py
"""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True, scope="session")
def plain_kernels() -> None:
    if os.environ.get("NUMBA_DISABLE_JIT", "0") == "0":
        pytest.exit(
            "tests/uncompiled needs kernels in plain Python\nhint: NUMBA_DISABLE_JIT=1 python -m pytest tests/uncompiled/FILE.py", 2
        )
