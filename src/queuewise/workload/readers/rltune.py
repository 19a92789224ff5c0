"""RLTune's traces: SWF-like, comma-separated, no header, 19 columns of which the last two are virtual cluster and GPU kind.

Some releases have a 20th column before those two. -1 = missing. The requested time is used as in the file (RLTune itself overwrites it with
the runtime).
"""

from __future__ import annotations

import polars as pl

from queuewise.plain_text import is_number
from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import label, number, one_gpu_tasks, positive
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "RLTune traces: 19 or 20 comma-separated columns without header"

_LEADING = (
    "job", "submit", "wait", "run", "gpus", "cpu_time", "mem", "req_cpus", "req_time", "req_mem", "status", "user", "group",
    "executable", "queue", "partition", "previous",
)  # fmt: skip
_TRAILING = ("vc", "gpu_type")
GPU_TYPES = {"0": "T4", "1": "MISC", "2": "P100", "3": "V100-16", "4": "V100-32"}


def sniff(head: FileHead) -> bool:
    fields = _first_row(head)
    return len(fields) in {19, 20} and all(is_number(field) for field in fields[1:])


def read(request: ReadRequest) -> Loaded:
    width = len(_first_row(read_head(request.path)))
    columns = (*_LEADING, *(("unused",) if width == 20 else ()), *_TRAILING)
    collect = Collector(request, "rltune")
    for batch in batches(request.path, collect.tally, columns=columns, comment=";"):
        run, kind = number("run"), pl.col("gpu_type").str.strip_chars()
        collect.add(
            batch,
            skip=pl.when(pl.col("gpu_type").is_null()).then(pl.lit("too few fields"))
            .when(run == -1).then(pl.lit("no runtime"))
            .when(~kind.is_in([*GPU_TYPES, "-1"])).then(pl.lit("unknown GPU type")),
            submit=number("submit"), runtime=run, requested=positive("req_time"),
            recorded_wait=pl.when(number("wait") != -1).then(number("wait")),
            **one_gpu_tasks(number("gpus")), kinds=kind.replace_strict(GPU_TYPES, default=None),
            user=label("user"), group=label("vc"), job_id=pl.col("job"),
            job_name=pl.col("job").str.extract(r"^([A-Za-z][A-Za-z0-9]*?)-"),
        )  # fmt: skip
    return collect.finish(epoch=0.0)


def _first_row(head: FileHead) -> list[str]:
    rows = [line for line in head.lines if not line.startswith(";")]
    return rows[0].split(",") if rows else []
