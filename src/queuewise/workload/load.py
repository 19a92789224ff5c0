"""One way in: a path to a log of any known format, or the name of a model, becomes a workload."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from queuewise.errors import InputError, unknown_name
from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadOptions, Request, Tally
from queuewise.workload.readers import detect, reader
from queuewise.workload.readers.source import read_head

__all__ = ["ClusterFacts", "Loaded", "NodeFacts", "ReadOptions", "Tally", "load_workload"]


def load_workload(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    jobs: int | None = None,
    seed: int = 0,
    tables: Sequence[str | os.PathLike[str]] = (),
    options: ReadOptions | None = None,
) -> Loaded:
    """Read the log at `source`, or generate from the model of that name.

    `format` overrides the recognition by content. `jobs` limits a log to its first jobs and says how many a model makes.
    `seed` is for models only. `tables` are further files of the same log: machine lists, task tables.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}", hint="leave it out to take all jobs")
    path = Path(source)
    if format is None and _is_model(path):
        return _generate(str(source), jobs, seed)
    name = format or detect(read_head(path))
    loaded = reader(name).read(Request(path, tuple(Path(table) for table in tables), options or ReadOptions()))
    if jobs is not None and jobs < len(loaded.workload):
        loaded.tally.note(f"limited to the first {jobs} of {len(loaded.workload)} jobs")
        return dataclasses.replace(loaded, workload=loaded.workload.take(slice(0, jobs)))
    if jobs is not None and jobs > len(loaded.workload):
        loaded.tally.note(f"{jobs} jobs were asked for; the log has only {len(loaded.workload)}")
    return loaded


def _is_model(path: Path) -> bool:
    """A fitted model's TOML, or a registered name that no file of the same name hides."""
    from queuewise.workload import models

    if path.suffix == ".toml" or path.exists():
        return path.suffix == ".toml"
    if str(path) not in models.MODELS and not path.suffix and len(path.parts) == 1:
        raise unknown_name("workload (no such file, and no model of that name)", str(path), models.MODELS)
    return str(path) in models.MODELS


def _generate(name: str, jobs: int | None, seed: int) -> Loaded:
    from queuewise.workload import models

    workload = models.generate(name, jobs, seed)
    return Loaded(workload, None, Tally(rows_read=len(workload), kept=len(workload)), f"model:{name}")
