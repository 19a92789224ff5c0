"""The files of replays in a run folder.

A replay is a folder with `jobs.parquet`, `pieces.parquet` and `replay.json`. `replay.json` is written last: a replay without it was
interrupted and is repeated. A run with one replay per policy (`simulate`, protocol `replay`) keeps it in `<policy>/`, a run over windows in
`<policy>/w000/`, `<policy>/w001/`, … `cluster.json` and `config.toml` belong to the whole run.
"""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.cluster.gpus import GpuKind
from queuewise.cluster.spec import Cluster, Partition, VirtualCluster
from queuewise.config import parse_toml, validate
from queuewise.errors import InputError
from queuewise.evaluation.jobs_table import (
    CAUSE_COLUMNS,
    DERIVED_COLUMNS,
    causes_from,
    jobs_table,
    pieces_table,
    schedule_facts,
    schedule_from,
)
from queuewise.evaluation.stored_fields import ReplayFields, RunConfigFields, SummaryRow, ValidationFields
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.plain_text import printable
from queuewise.regular_files import check_regular
from queuewise.runs import LAST_FILE, create_folder, replacing, write_text
from queuewise.sim.core.schedule import Schedule

if TYPE_CHECKING:
    import polars as pl

REPLAY_FILE = "replay.json"
TABLES = JOBS_TABLE, PIECES_TABLE = "jobs.parquet", "pieces.parquet"
CLUSTER_FILE = "cluster.json"
CONFIG_FILE = "config.toml"
VALIDATION_FILE = "validation.json"  # written by `validate` alone


def write_replay(folder: Path, schedule: Schedule, causes: WaitCauses | None = None, **figures: Any) -> None:
    """Write a schedule, the causes of waits and the metrics computed from it."""
    create_folder(folder)
    for name, table in zip(TABLES, (jobs_table(schedule, causes), pieces_table(schedule)), strict=True):
        packed = io.BytesIO()  # Polars does not pass on every error of a disk
        table.write_parquet(packed)
        with replacing(folder / name) as temporary:
            temporary.write_bytes(packed.getbuffer())
    write_text(folder / REPLAY_FILE, to_json(schedule_facts(schedule) | figures))


def is_replay(folder: Path) -> bool:
    return (folder / REPLAY_FILE).exists()


def has_tables(folder: Path) -> bool:
    """Whether the tables of a replay are there and were not cut."""
    import polars as pl

    try:
        for name in TABLES:
            pl.read_parquet_schema(folder / name)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def read_facts(folder: Path) -> dict[str, Any]:
    """The content of a replay's `replay.json`."""
    facts = read_json(folder / REPLAY_FILE)
    if not isinstance(facts, dict) or "policy" not in facts:
        raise _corrupt(folder / REPLAY_FILE, "it does not describe a replay")
    validate(ReplayFields, facts, source=str(folder / REPLAY_FILE))
    return facts


def read_schedule(run: Path, replay: Path) -> Schedule:
    """The schedule in `replay`, a folder of the run."""
    import polars as pl

    cluster, facts = read_cluster(run), read_facts(replay)
    jobs = _read_table(replay / JOBS_TABLE, lambda column: column not in DERIVED_COLUMNS)
    pieces = _read_table(replay / PIECES_TABLE)
    try:
        schedule = schedule_from(jobs, pieces, cluster, facts)
    except InputError as error:  # jobs that contradict themselves
        raise _corrupt(replay / JOBS_TABLE, error.message) from None
    except (KeyError, IndexError, TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        why = f"column or fact {printable(str(error))} is missing or has another type"
        raise _corrupt(replay, why) from None
    for name, column, end in (("job", schedule.piece_job, len(jobs)), ("node", schedule.piece_node, cluster.num_nodes)):
        if len(column) and not (column.min() >= 0 and column.max() < end):
            raise _corrupt(replay / PIECES_TABLE, f"column {name!r} has numbers outside of 0 to {end - 1}")
    return schedule


def read_causes(replay: Path, schedule: Schedule) -> WaitCauses | None:
    """The causes of waits in `replay`, the folder that the schedule was read from; None if they were not written."""
    return causes_from(_read_table(replay / JOBS_TABLE, CAUSE_COLUMNS.__contains__), schedule.workload)


def _read_table(path: Path, wanted: Callable[[str], bool] = lambda column: True) -> pl.DataFrame:
    """The wanted columns of a table: it may have a million rows."""
    import polars as pl

    try:
        return pl.read_parquet(path, columns=[column for column in pl.read_parquet_schema(path) if wanted(column)])
    except FileNotFoundError:
        raise InputError("is missing", where=str(path), hint="the run folder is incomplete; run the command again") from None
    except (pl.exceptions.PolarsError, OSError) as error:
        raise _corrupt(path, printable((str(error).splitlines() or ["unreadable"])[0])) from None


def find_replays(run: Path) -> Iterator[Path]:
    """The folders of all finished replays of a run, sorted by name."""
    check_run(run)
    yield from sorted(path.parent for path in run.rglob(REPLAY_FILE))


def check_run(run: Path) -> dict[str, Any]:
    """The configuration of a finished run. Raises an InputError for any other folder."""
    if not run.is_dir():
        raise InputError("no such run folder", where=str(run), hint="use a folder that a command wrote with --out")
    if not (run / CONFIG_FILE).exists():
        raise InputError(
            f"is not a run folder: it has no {CONFIG_FILE}", where=str(run), hint="use a folder that a command wrote with --out"
        )
    if not (run / LAST_FILE).exists():
        raise InputError(f"is an unfinished run: {LAST_FILE} is missing", where=str(run), hint="run the same command again to resume it")
    config = parse_toml(run / CONFIG_FILE)
    validate(RunConfigFields, config, source=str(run / CONFIG_FILE))
    return config


def conditions_of(run: Path) -> dict[str, Any] | None:
    """What a finished evaluation was measured under; None for runs of other commands, in which `conditions` is the name of a file."""
    found = check_run(run).get("conditions")
    return found if isinstance(found, dict) else None


def read_summary(run: Path) -> list[dict[str, Any]]:
    """One row per policy."""
    check_run(run)
    rows = read_json(run / LAST_FILE)
    if not isinstance(rows, list):
        raise _corrupt(run / LAST_FILE, "it is not a list with a row per policy")
    for number, row in enumerate(rows):
        validate(SummaryRow, row, source=f"{run / LAST_FILE} (row {number})")
    return rows


def read_validation(run: Path) -> dict[str, Any] | None:
    """The content of `validation.json`, which `validate` alone writes."""
    path = run / VALIDATION_FILE
    if not path.exists():
        return None
    found = read_json(path)
    validate(ValidationFields, found, source=str(path))
    return dict(found)


def write_cluster(run: Path, cluster: Cluster) -> None:
    plain = {field.name: getattr(cluster, field.name) for field in dataclasses.fields(cluster)}
    for name, value in plain.items():
        if isinstance(value, np.ndarray):
            plain[name] = value.tolist()
    for name in ("kinds", "partitions", "virtual_clusters"):
        plain[name] = [dataclasses.asdict(entry) for entry in plain[name]]
    write_text(run / CLUSTER_FILE, json.dumps(plain))  # max_gpus of a virtual cluster may be inf, which Python writes to JSON


def read_cluster(run: Path) -> Cluster:
    path = run / CLUSTER_FILE
    plain = read_json(path)
    try:
        arrays = {f.name: f.type for f in dataclasses.fields(Cluster) if str(f.type).startswith("NDArray")}
        for name, kind in arrays.items():
            plain[name] = np.asarray(plain[name], next(one for one in (np.int64, np.bool_, np.float64) if one.__name__ in str(kind)))
        plain["kinds"] = tuple(GpuKind(**kind) for kind in plain["kinds"])
        plain["partitions"] = tuple(Partition(**partition) for partition in plain["partitions"])
        plain["virtual_clusters"] = tuple(VirtualCluster(**tenant) for tenant in plain["virtual_clusters"])
        cluster = Cluster(**{**plain, "node_names": tuple(plain["node_names"])})
        _check_nodes(cluster)
        return cluster
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise _corrupt(path, f"it does not describe a cluster ({printable(str(error))})") from None


def _check_nodes(cluster: Cluster) -> None:
    """Raise a ValueError unless all columns fit each other."""
    num_nodes = len(cluster.node_names)
    for field in dataclasses.fields(cluster):
        value = getattr(cluster, field.name)
        if isinstance(value, np.ndarray):
            expected = {"speed": (len(cluster.kinds),), "node_partitions": (num_nodes, len(cluster.partitions))}.get(
                field.name, (num_nodes,)
            )
            if value.shape != expected:
                raise ValueError(f"{field.name} has shape {value.shape} instead of {expected}")
    names = [cluster.name, cluster.notes, *cluster.node_names, *(kind.name for kind in cluster.kinds)]
    if not num_nodes or not all(isinstance(name, str) for name in names):
        raise ValueError("it has no nodes, or names that are no text")
    if not (cluster.node_kind < len(cluster.kinds)).all() or (cluster.node_gpus < 0).any():
        raise ValueError("node_kind or node_gpus has numbers out of range")


def to_json(data: Any) -> str:
    return json.dumps(data, indent=2, allow_nan=False)


def read_json(path: Path) -> Any:
    check_regular(path, "the run folder is damaged; run the command again")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError("is missing", where=str(path), hint="the run folder is incomplete; run the command again") from None
    except PermissionError:
        raise InputError("cannot be read: permission denied", where=str(path), hint="check the permissions of the file") from None
    except (OSError, ValueError, RecursionError) as error:
        raise _corrupt(path, printable(str(error))) from None


def _corrupt(path: Path, why: str) -> InputError:
    return InputError(f"is corrupted: {why}", where=str(path), hint="remove it and run the command again; intact files are kept")
