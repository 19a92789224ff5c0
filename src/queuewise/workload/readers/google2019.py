"""Google ClusterData2019: CollectionEvents and InstanceEvents as CSV with named columns or JSON lines; the other table with --tables.

Event types are numbers or names. InstanceEvents contain sizes (`resource_request`, nested or as dotted columns). With CollectionEvents
alone, every job is one task of one core. Alloc sets (collection_type 1) are reservations, not jobs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import number
from queuewise.workload.readers.google_events import END, OTHER, SCHEDULE, SUBMIT, add_jobs, lean, seconds
from queuewise.workload.readers.source import FileHead, blocks, read_head

SUMMARY = "Google 2019 collection_events or instance_events, CSV or JSON lines (the other table with --tables)"

REQUIRED = ("time", "type", "collection_id")
_OPTIONAL = ("instance_index", "user", "collection_logical_name", "priority", "collection_type", "resource_request", "cpus", "memory")
_TYPES = ("SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST", "UPDATE_PENDING", "UPDATE_RUNNING")
_PHASE_OF = {"SUBMIT": SUBMIT, "SCHEDULE": SCHEDULE} | dict.fromkeys(("EVICT", "FAIL", "FINISH", "KILL", "LOST"), END)
_PHASES = {spelling: _PHASE_OF.get(name, OTHER) for code, name in enumerate(_TYPES) for spelling in (name, str(code))}
_ALLOC_SET = ["1", "ALLOC_SET", "alloc_set"]
HEADERS = (REQUIRED,)
MORE_FILES = 1_000


def sniff(head: FileHead) -> bool:
    return head.has_columns(*REQUIRED) or _is_json(head)


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "google2019")
    frames = [lean(_events(batch, collect.tally)) for path in (request.path, *request.tables) for batch in _batches(path, collect.tally)]
    add_jobs(pl.concat(frames), collect)
    return collect.finish(epoch=0.0)


def _is_json(head: FileHead) -> bool:
    return head.first.startswith("{") and '"collection_id"' in head.first


def _batches(path: Path, tally: Tally) -> Iterator[pl.DataFrame]:
    if not _is_json(read_head(path)):
        for batch in batches(path, tally, required=REQUIRED):
            short = {name: name.rsplit(".", 1)[-1] for name in batch.columns if name.startswith("resource_request.")}
            yield batch.filter(pl.col("skip").is_null()).rename(short)
        return
    for _, block in blocks(path):
        rows = [_json_row(line) for line in block.decode("utf-8", errors="replace").splitlines() if line.strip()]
        tally.note_count("lines are not JSON objects and were skipped", sum(row is None for row in rows))
        columns = (*REQUIRED, *_OPTIONAL)
        yield pl.DataFrame([row for row in rows if row is not None], schema=dict.fromkeys(columns, pl.String), orient="row")


def _json_row(line: str) -> tuple[str | None, ...] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(entry, dict):
        return None
    request: Any = entry.get("resource_request")
    flat = entry | (request if isinstance(request, dict) else {}) | {"resource_request": None}
    values = (flat.get(name) for name in (*REQUIRED, *_OPTIONAL))
    return tuple(str(value) if isinstance(value, str | int | float) else None for value in values)


def _events(batch: pl.DataFrame, tally: Tally) -> pl.DataFrame:
    batch = batch.with_columns(pl.lit(None, dtype=pl.String).alias(name) for name in _OPTIONAL if name not in batch.columns)
    alloc_sets = pl.col("collection_type").is_in(_ALLOC_SET).fill_null(False)
    tally.note_count("events of alloc sets were skipped", batch.filter(alloc_sets).height)
    return batch.filter(~alloc_sets).select(
        seconds(number("time")).alias("time"),
        pl.col("collection_id").alias("job"),
        pl.col("instance_index").alias("task"),
        pl.col("type").str.to_uppercase().replace_strict(_PHASES, default=None, return_dtype=pl.Int8).alias("phase"),
        pl.coalesce(number("cpus"), _in_request("cpus")).alias("cpu"),
        pl.coalesce(number("memory"), _in_request("memory")).alias("mem"),
        pl.col("user"),
        pl.col("collection_logical_name").alias("name"),
        number("priority").alias("priority"),
    )


def _in_request(name: str) -> pl.Expr:
    """From a request in text form, e.g. {'cpus': 0.02, 'memory': 0.01}."""
    return pl.col("resource_request").str.extract(rf"{name}['\"]?\s*[:=]\s*([0-9.eE+-]+)").cast(pl.Float64, strict=False)
