"""Slurm accounting: `sacct --parsable2` with a header and fields in any order, the XDMoD order without a header, and `sacct --json`.

Steps (job ids with a dot) are skipped. A job becomes one task per node, which share the cores, GPUs and memory of the allocation. Times are
the local times of the log. Slurm resets Submit when a job is requeued, so waits count from the last submission.
"""

from __future__ import annotations

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers import fields, slurm_json
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "Slurm sacct --parsable2 (with header, or XDMoD's order without) and sacct --json"

XDMOD = (
    "jobid", "jobidraw", "cluster", "partition", "qos", "account", "group", "gid", "user", "uid", "submit", "eligible", "start", "end",
    "elapsed", "exitcode", "state", "nnodes", "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "nodelist", "jobname",
)  # fmt: skip
REQUIRED = ("jobid", "submit", "start", "end")
_PER_CPU_FLAG = 2.0**31  # older Slurm prints "per CPU" as this bit of the number of MB
_MAX_NODE_MIB = 2.0**28  # 256 TiB: no node has more, so a larger request means no request
_USED = (*XDMOD, "elapsedraw", "timelimitraw")
_SIZE_TEXTS = ["nnodes", "ncpus", "reqcpus", "reqmem", "reqtres", "alloctres", "timelimit", "timelimitraw"]
_NAMES = {"job_id": "jobid", "user": "user", "group": "account", "partition": "partition", "qos": "qos", "job_name": "jobname"}
HEADERS = (REQUIRED,)


def sniff(head: FileHead) -> bool:
    names = {name.strip().lower() for name in head.first.split("|")}
    return slurm_json.sniff(head) or set(REQUIRED) <= names or _is_xdmod(head) or _is_human_readable(head)


def read(request: ReadRequest) -> Loaded:
    head = read_head(request.path)
    if _is_human_readable(head):
        raise InputError(
            "this is the human-readable output of sacct, which truncates fields", where=f"{request.path}:1", hint="run sacct --parsable2"
        )
    collect = Collector(request, "slurm")
    if slurm_json.sniff(head):
        _add(slurm_json.table(request.path), collect)
    else:
        columns = XDMOD if _is_xdmod(head) else None
        for batch in batches(request.path, collect.tally, columns=columns, required=REQUIRED, separator="|", quoted=False, fold_case=True):
            _add(batch, collect)
    return collect.finish()


def _is_human_readable(head: FileHead) -> bool:
    return head.first.split()[:1] == ["JobID"] and len(head.lines) > 1 and set(head.lines[1]) == {"-", " "}


def _is_xdmod(head: FileHead) -> bool:
    parts = head.first.split("|")
    return len(parts) == len(XDMOD) and parts[0][:1].isdigit() and parts[10][4:5] == "-"


def _add(batch: pl.DataFrame, collect: Collector) -> None:
    missing = [pl.lit(None, dtype=pl.String).alias(name) for name in _USED if name not in batch.columns]
    batch = batch.with_columns(missing).select(*_USED, *(name for name in ("line", "skip") if name in batch.columns))
    batch = _with_sizes(batch).with_columns(fields.timestamp(name).alias(name) for name in ("submit", "eligible", "start", "end"))
    submit, start, end, nodes, memory = (pl.col(name) for name in ("submit", "start", "end", "nodes", "memory"))
    unplaced = (pl.col("nodelist") == "None assigned") & (start == end)
    collect.tally.note_count(
        "jobs were cancelled before they got nodes; they are kept with a runtime of 0 s", batch.select(unplaced.sum()).item()
    )
    collect.add(
        batch,
        {"mem_mib": (memory > _MAX_NODE_MIB * nodes, "requests larger than any machine are treated as no request")},
        skip=pl.when(pl.col("jobid").str.contains(".", literal=True)).then(pl.lit("job step"))
        .otherwise(pl.coalesce(fields.unfit_slurm_state("state"), fields.not_run(start, end))),
        submit=submit,
        runtime=pl.coalesce(fields.number("elapsedraw"), fields.clock_duration("elapsed"), end - start),
        recorded_wait=pl.max_horizontal(start - submit, pl.lit(0.0)),
        requested=pl.col("requested"),
        **fields.node_tasks(nodes, pl.col("cores"), pl.col("gpus"), pl.when(memory <= _MAX_NODE_MIB * nodes).then(memory)),
        kinds=pl.col("kinds"),
        node_list=pl.when(pl.col("nodelist") != "None assigned").then(pl.col("nodelist")),
        recorded_kind=pl.col("given_kind"),
        eligible=pl.col("eligible"),
        **{field: pl.col(column) for field, column in _NAMES.items()},
    )  # fmt: skip


def _with_sizes(batch: pl.DataFrame) -> pl.DataFrame:
    """Parse the text columns of sizes and limits. This is slow and values repeat, so each combination is parsed once."""
    sizes = batch.select(_SIZE_TEXTS).unique().with_columns(
        nodes=pl.coalesce(fields.number("nnodes"), _tres("node"), pl.lit(1.0)),
        cores=pl.coalesce(_tres("cpu"), fields.number("ncpus"), fields.number("reqcpus")),
        gpus=_gpus(),
        requested=pl.coalesce(fields.number("timelimitraw") * 60, fields.clock_duration("timelimit")),
        given_kind=_only_kind("alloctres"),
        kinds=pl.col("reqtres").str.extract(r"gres/gpu:([^=,]+)=").str.to_lowercase().replace_strict(fields.KIND_NAMES, default=None),
    )  # fmt: skip
    sizes = sizes.with_columns(memory=_memory(pl.col("nodes"), pl.col("cores")))
    return batch.join(sizes, on=_SIZE_TEXTS, how="left", nulls_equal=True, maintain_order="left")


def _tres(name: str) -> pl.Expr:
    """A number of the allocation, or of the request if nothing was allocated."""
    found = (pl.col(column).str.extract(rf"(?:^|,){name}=(\d+)(?:,|$)") for column in ("alloctres", "reqtres"))
    return pl.coalesce(*found).cast(pl.Float64, strict=False)


def _only_kind(column: str) -> pl.Expr:
    """The kind of the GPUs, if all are of one that is named."""
    named = pl.col(column).str.extract_all(r"gres/gpu:[^=,]+=").list.unique()
    return pl.when(named.list.len() == 1).then(named.list.first().str.extract(r"gres/gpu:([^=]+)="))


def _gpus() -> pl.Expr:
    """`gres/gpu=N`, or otherwise the sum of `gres/gpu:type=N`; both refer to the same GPUs."""
    typed = (pl.col(column).str.extract_all(r"gres/gpu:[^=,]+=\d+") for column in ("alloctres", "reqtres"))
    sums = (pl.when(found.list.len() > 0).then(found.list.eval(_after_equals()).list.sum()) for found in typed)
    return pl.coalesce(_tres("gres/gpu"), *sums)


def _after_equals() -> pl.Expr:
    return pl.element().str.extract(r"=(\d+)$").cast(pl.Float64, strict=False)


def _memory(nodes: pl.Expr, cores: pl.Expr) -> pl.Expr:
    """MiB of the whole job, from the allocation or from ReqMem: `31000Mn` per node, `4Gc` per core, `16G` in total."""
    listed = pl.coalesce(*(fields.mebibytes(pl.col(column).str.extract(r"(?:^|,)mem=([^,]+)")) for column in ("alloctres", "reqtres")))
    parts = pl.col("reqmem").str.extract_groups(r"^(.*?)([nc]?)$")
    amount, per = fields.mebibytes(parts.struct[0]), parts.struct[1]
    flagged = (amount > _PER_CPU_FLAG) & (amount < 2 * _PER_CPU_FLAG)
    amount = pl.when(flagged).then(amount - _PER_CPU_FLAG).otherwise(amount)
    return pl.coalesce(listed, amount * pl.when(flagged | (per == "c")).then(cores).when(per == "n").then(nodes).otherwise(1.0))
