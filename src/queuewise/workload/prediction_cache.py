"""Predictions of large logs, kept on disk: computing them takes seconds to minutes, and every command on a log would need them again.

A file is named by a digest of all that predictions depend on. What cannot be read or written is computed, as if there were no files, and
so is what was damaged or could be written by others (`cache_folder`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from queuewise.cache_folder import UntrustedFileError, cache_folder, read_sealed, say_once, write_sealed
from queuewise.workload.jobs import Floats, Workload

FOLDER = "predictions"
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
    path = cache_folder(FOLDER) / _digest(workload, about)
    found = _read(path, len(workload))
    if found is not None:
        return found
    computed = compute()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        write_sealed(path, computed.tobytes())
        for old in sorted(path.parent.iterdir(), key=lambda other: other.stat().st_mtime)[:-MOST_FILES]:
            old.unlink(missing_ok=True)
    return computed


def _read(path: Path, num_jobs: int) -> Floats | None:
    """[J] what is in the file; None if there is nothing that can be trusted, which is then removed."""
    with suppress(OSError):
        try:
            content = read_sealed(path)
            if len(content) == num_jobs * np.dtype(np.float64).itemsize:
                return np.frombuffer(content).copy()
        except UntrustedFileError as error:
            say_once(f"predictions are computed again: {error}")
        path.unlink()
    return None


def _digest(workload: Workload, about: str) -> str:
    state = hashlib.sha256(f"{about} {workload.epoch}".encode())
    for name in COLUMNS:
        column = np.ascontiguousarray(getattr(workload, name))
        state.update(f"{name} {column.dtype.str}".encode())
        state.update(column.data)
    return state.hexdigest()[:32]
