"""Predictions of large logs, kept on disk: computing them takes seconds to minutes, and every command on a log would need them again.

A file is named by a digest of all that predictions depend on. What cannot be read or written is computed, as if there were no files.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np

from queuewise.runs import replacing
from queuewise.workload.jobs import Floats, Workload

COLUMNS = (
    "submit", "recorded_wait", "runtime", "requested", "size", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib", "user", "group",
    "job_name", "partition", "priority",
)  # fmt: skip
FEWEST_JOBS = 2_000  # of logs worth a file
MOST_FILES = 100  # the latest ones


def kept(workload: Workload, about: str, compute: Callable[[], Floats]) -> Floats:
    """What `compute` returns, one number per job, from a file if there is one. `about` says how it is computed, and by which version."""
    if len(workload) < FEWEST_JOBS:
        return compute()
    try:
        path = _folder() / f"{_digest(workload, about)}.npy"
    except RuntimeError:  # the user has no home, as in some containers
        return compute()
    with contextlib.suppress(OSError, ValueError, EOFError):
        with path.open("rb") as file:
            found: Floats = np.load(file, allow_pickle=False)
        if found.dtype == np.float64 and found.shape == (len(workload),) and not (found < 0).any():
            return found
    computed = compute()
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.save(file, computed, allow_pickle=False)
        for old in sorted(path.parent.glob("*.npy"), key=lambda other: other.stat().st_mtime)[:-MOST_FILES]:
            old.unlink(missing_ok=True)
    return computed


def _folder() -> Path:
    base = os.environ.get("QUEUEWISE_CACHE_DIR") or os.path.join(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "queuewise")
    return Path(base) / "predictions"


def _digest(workload: Workload, about: str) -> str:
    state = hashlib.sha256(f"{about} {workload.epoch}".encode())
    for name in COLUMNS:
        column = np.ascontiguousarray(getattr(workload, name))
        state.update(f"{name} {column.dtype.str}".encode())
        state.update(column.data)
    return state.hexdigest()[:32]
