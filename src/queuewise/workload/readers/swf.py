"""Standard Workload Format 2.2: `;` header lines, then 18 fields per job, separated by spaces; -1 = missing.

A job of n processors becomes n one-core tasks. Times are used as in the file. The format is defined by the Parallel Workloads Archive.
Simulators write files with three fields more, of which the first 18 are read.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import polars as pl

from queuewise.workload.jobs import MAX_SECONDS
from queuewise.workload.loaded import ClusterFacts, Loaded, NodeFacts, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import label
from queuewise.workload.readers.source import FileHead, read_head


class _SizeField(NamedTuple):
    column: str
    field: int  # as SWF counts them


SUMMARY = "Standard Workload Format (Parallel Workloads Archive), 18 or 21 fields separated by spaces"

COLUMNS = (
    "job", "submit", "wait", "run", "procs", "cpu_time", "used_mem", "req_procs", "req_time", "req_mem", "status", "user", "group",
    "executable", "queue", "partition", "previous", "think_time",
)  # fmt: skip
_MORE_COLUMNS = ("field_19", "field_20", "field_21")
_NUMBERS = dict.fromkeys(("submit", "wait", "run", "procs", "used_mem", "req_procs", "req_time", "req_mem"), pl.Float64)
_SIZES = {"allocated": _SizeField("procs", 5), "requested": _SizeField("req_procs", 8)}
_HEADER = re.compile(r"^\s*;\s*(\w+)\s*:\s*(.*?)\s*$")
_FIRST_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_SHOWN = 40  # characters of a header's value in a note


def sniff(head: FileHead) -> bool:
    if not _first_row(head):
        return any(_HEADER.match(line) for line in head.lines)
    return "," not in _first_row(head) and len(_first_row(head).split()) in (len(COLUMNS), len(COLUMNS + _MORE_COLUMNS))


def _first_row(head: FileHead) -> str:
    return next((line for line in head.lines if not line.lstrip().startswith(";")), "")


def read(request: ReadRequest) -> Loaded:
    head = read_head(request.path)
    header = _header(head)
    collect = Collector(request, "swf")
    epoch, cluster = _number(header, "UnixStartTime", collect.tally) or 0.0, _cluster(header, request, collect.tally)
    machine = _machine_procs(cluster, request, collect.tally)
    columns: tuple[str, ...] = COLUMNS
    if len(_first_row(head).split()) > len(COLUMNS):
        columns += _MORE_COLUMNS
        collect.tally.note(f"fields {len(COLUMNS) + 1} to {len(columns)} are not part of SWF 2.2 and are not used")
    for batch in batches(
        request.path, collect.tally, columns=columns, separator=" ", comment=";", quoted=False, numbers=_NUMBERS, prepare=_single_blanks
    ):
        _add(batch, collect, machine)
    return collect.finish(epoch=epoch, cluster=cluster)


def _add(batch: pl.DataFrame, collect: Collector, machine: float) -> None:
    options = collect.request.options
    wanted, other = ("requested", "allocated") if options.processors == "requested" else ("allocated", "requested")
    known, stand_in = (_known(_SIZES[kind].column, above=0) for kind in (wanted, other))
    procs = pl.coalesce(known, stand_in).ceil()
    filled = {"num_tasks": (known.is_null(), f"{other} processors (field {_SIZES[other].field}) if field {_SIZES[wanted].field} has none")}
    skip = (
        pl.when(pl.col("think_time").is_null()).then(pl.lit("too few fields"))
        .when(pl.col("run").is_null() | (pl.col("run") == -1)).then(pl.lit("no runtime"))
        .when(procs.is_null()).then(pl.lit("no processors"))
    )  # fmt: skip
    run, request_s = pl.col("run"), pl.col("req_time")
    if options.clean:
        skip = (
            skip.when(run <= 0).then(pl.lit("runtime of 0 s (--clean)"))
            .when((request_s <= 0) | request_s.is_null()).then(pl.lit("no requested time (--clean)"))
            .when(procs > machine).then(pl.lit("more processors than the machine (--clean)"))
        )  # fmt: skip
        filled["runtime"] = (run > request_s, "runs longer than requested are cut to the request (--clean)")
        run = pl.min_horizontal(run, request_s)
    kib = pl.coalesce(_known("req_mem", above=0), _known("used_mem", above=0))
    collect.add(
        batch, filled, skip=skip, submit=pl.col("submit"), runtime=run, num_tasks=procs, cpu_milli=pl.lit(1000),
        mem_mib=(kib / 1024).ceil() if options.memory else pl.lit(0),
        requested=_known("req_time"), recorded_wait=_known("wait"),
        user=label("user"), group=label("group"), job_name=label("executable"), partition=label("queue"), job_id=pl.col("job"),
        depends_on=_depends_on(),
    )  # fmt: skip


def _machine_procs(cluster: ClusterFacts | None, request: ReadRequest, tally: Tally) -> float:
    """The processors above which --clean drops a job: those of the given cluster, otherwise those of the header."""
    if request.options.machine_procs is not None:
        return request.options.machine_procs
    if cluster is not None:
        return cluster.nodes[0].cpus
    if request.options.clean:
        tally.note("the header has no MaxProcs, so --clean drops no job for its size")
    return float("inf")


def _depends_on() -> pl.Expr:
    """Fields 17 and 18: the preceding job, whose end it waits for, and the think time of the user after it."""
    previous, think = pl.col("previous").cast(pl.Int64, strict=False), pl.col("think_time").cast(pl.Float64, strict=False)
    return pl.when(previous > 0).then(pl.format("afterany:{}+{}", previous, pl.when(think > 0).then(think).otherwise(0.0)))


def _single_blanks(block: bytes) -> bytes:
    """Reduce separators to one space between fields and none before the first, as the CSV parser of Polars needs it."""
    text = np.frombuffer(block.replace(b"\t", b" "), dtype=np.uint8)
    blank = text == ord(" ")
    after_gap = np.empty_like(blank)
    after_gap[0] = True
    after_gap[1:] = blank[:-1] | (text[:-1] == ord("\n"))
    kept: bytes = text[~(blank & after_gap)].tobytes()
    return kept


def _known(name: str, above: float = -1) -> pl.Expr:
    """The column, or null if it is -1 (missing) or, for sizes, 0."""
    return pl.when(pl.col(name) > above).then(pl.col(name))


def _header(head: FileHead) -> dict[str, str]:
    found = (_HEADER.match(line) for line in head.lines)
    return {match[1]: match[2] for match in reversed([match for match in found if match])}  # the first entry with a name wins


def _number(header: dict[str, str], name: str, tally: Tally) -> float | None:
    """A number in the header, or None if it is missing, 0, -1 or invalid. An invalid one is noted."""
    text = header.get(name, "")
    match = _FIRST_NUMBER.match(text)
    if text and (match is None or float(match[0]) >= MAX_SECONDS):
        tally.note(f"{name} in the header is not a valid number: {text[:_SHOWN]!r}")
        return None
    return float(match[0]) if match and float(match[0]) > 0 else None


def _cluster(header: dict[str, str], request: ReadRequest, tally: Tally) -> ClusterFacts | None:
    """One node with all processors, because SWF does not describe the machines."""
    procs = _number(header, "MaxProcs", tally) or _number(header, "MaxNodes", tally)
    if procs is None:
        return None
    nodes = (NodeFacts(1, cpus=procs, name="flat"),)
    return ClusterFacts(header.get("Computer", request.path.name), nodes, "all processors as one node, from the header")
