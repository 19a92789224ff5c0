"""Load a workload from a log in any known format, or generate it from a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from queuewise.errors import InputError, did_you_mean
from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadOptions, ReadRequest, Tally
from queuewise.workload.readers import READERS, detect, more_files, reader
from queuewise.workload.readers.source import read_head

GENERIC = ("csv", "parquet")
SWF_ONLY = ("memory", "processors", "clean")  # options for which other logs have no fields

__all__ = ["ClusterFacts", "Loaded", "NodeFacts", "ReadOptions", "Tally", "load_workload"]


def load_workload(
    source: str | os.PathLike[str],
    *,
    format: str | None = None,
    jobs: int | None = None,
    seed: int = 0,
    tables: Sequence[str | os.PathLike[str]] = (),
    options: ReadOptions | None = None,
    args: Mapping[str, Any] | None = None,
) -> Loaded:
    """Read the log at `source`, or generate jobs from the model of that name.

    `format` overrides detection by content. `jobs` limits a log to its first jobs, or sets the number of jobs of a model. `seed` is only
    for models, as are `args`, their parameters. `tables` are additional files of the same log, such as machine lists and task tables.
    """
    if jobs is not None and jobs < 1:
        raise InputError(f"jobs must be at least 1, not {jobs}", hint="omit it to use all jobs")
    if not isinstance(source, str | os.PathLike):
        raise InputError(f"source is {type(source).__name__} {source!r:.60}", hint="pass the path of a log, or the name of a model")
    path = Path(source)
    request = ReadRequest(path, tuple(Path(table) for table in tables), options or ReadOptions())
    if format is None and _is_model(path):
        unused = [flag for flag, given in {"--tables": tables, "--map": request.options.columns}.items() if given]
        if unused := [*unused, *_swf_flags(request)]:
            raise InputError(f"{source} is a model, not a log; {' and '.join(unused)} cannot be used", hint="omit them")
        return _generate(str(source), jobs, seed, args or {})
    if args:
        raise InputError(f"{source} is a log, which has no parameters such as {next(iter(args))}", hint="they are for workload models")
    name = format or _detect(request)
    _check_unused(name, request)
    loaded = reader(name).read(request)
    if jobs is not None and jobs < len(loaded.workload):
        loaded.tally.note(f"using the first {jobs:,} of {len(loaded.workload):,} jobs")
        return loaded.take(slice(0, jobs))
    if jobs is not None and jobs > len(loaded.workload):
        loaded.tally.note(f"{jobs} jobs were requested, but the log has only {len(loaded.workload)}")
    return loaded


def _detect(request: ReadRequest) -> str:
    """The format, detected by content. A table with --map is a generic one."""
    head = read_head(request.path)
    if request.options.columns:
        return "parquet" if reader("parquet").sniff(head) else "csv"
    return detect(head)


def _check_unused(name: str, request: ReadRequest) -> None:
    """Raise an error for options that the format does not support, instead of ignoring them."""
    most = more_files(name)
    if len(request.tables) > most:
        takers = ", ".join(other for other in READERS if more_files(other))
        text = f"{name} supports {most or 'no'} additional file{'s' if most != 1 else ''}, not {len(request.tables)}"
        raise InputError(text, where=str(request.path), hint=f"formats that support --tables: {takers}")
    if request.options.columns and name not in GENERIC:
        raise InputError(f"--map does not apply to {name}", where=str(request.path), hint=f"use it with {' and '.join(GENERIC)}")
    if name != "swf" and (flags := _swf_flags(request)):
        raise InputError(f"{' and '.join(flags)} cannot be used with {name}", where=str(request.path), hint="use it with swf")


def _swf_flags(request: ReadRequest) -> list[str]:
    return [f"--{option}" for option in SWF_ONLY if getattr(request.options, option)]


def _is_model(path: Path) -> bool:
    """Whether this is the TOML file of a fitted model, or the name of a model and not an existing file."""
    from queuewise.workload import models

    if path.suffix == ".toml" or os.path.exists(path):  # Path.exists raises errors for long names
        return path.suffix == ".toml"
    if str(path) not in models.MODELS and not path.suffix and len(path.parts) == 1:
        files = (entry.name for entry in Path().iterdir())
        hint = f"{did_you_mean(str(path), [*models.MODELS, *files])}models: {', '.join(models.MODELS)}"
        raise InputError(f"no file or model named {str(path)!r}", hint=hint)
    return str(path) in models.MODELS


def _generate(name: str, jobs: int | None, seed: int, args: Mapping[str, Any]) -> Loaded:
    from queuewise.workload import models

    workload = models.generate(name, jobs, seed, **args)
    return Loaded(workload, None, Tally(rows_read=len(workload), kept=len(workload)), f"model:{name}")
