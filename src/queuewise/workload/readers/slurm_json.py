"""`sacct --json` as the same table of text that `sacct --parsable2` gives.

Numbers are plain in older Slurm and `{"set": true, "infinite": false, "number": 5}` in newer Slurm. Times are Unix times, time limits are
in minutes. The document is read as a whole.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.readers.source import FileHead, one_line, read_all

_COLUMNS = (
    "jobid", "submit", "start", "end", "elapsedraw", "state", "nnodes", "timelimitraw", "alloctres", "reqtres", "partition", "qos",
    "account", "user", "jobname", "nodelist", "eligible",
)  # fmt: skip


def sniff(head: FileHead) -> bool:
    """An object that starts with "jobs", or with "meta" and the name of Slurm."""
    start = head.start[:8192].lstrip()
    return start.startswith(b"{") and (b'"jobs"' in start or (b'"meta"' in start and b"lurm" in start))


def table(path: Path) -> pl.DataFrame:
    try:
        document = json.loads(read_all(path))
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        raise InputError(f"not valid JSON: {one_line(error)}", where=f"{path}:{line}", hint="expected the output of sacct --json") from None
    jobs = document.get("jobs") if isinstance(document, dict) else None
    if not isinstance(jobs, list):
        raise InputError('no list "jobs" in the JSON', where=f"{path}:1", hint="expected the output of sacct --json")
    rows = [_row(job if isinstance(job, dict) else {}) for job in jobs]
    return pl.DataFrame(rows, schema=dict.fromkeys(_COLUMNS, pl.String), orient="row")


def _row(job: dict[str, Any]) -> tuple[str | None, ...]:
    time, tres, state = _dict(job.get("time")), _dict(job.get("tres")), _dict(job.get("state")).get("current", job.get("state"))
    start, end, eligible = (_moment(time.get(key)) for key in ("start", "end", "eligible"))
    nodes = job.get("nodes")
    return (
        _number(job.get("job_id")),
        _number(time.get("submission")),
        start,
        end,
        _number(time.get("elapsed")),
        _text(state[0] if isinstance(state, list) and state else state),
        _number(job.get("allocation_nodes")),
        _number(time.get("limit")),
        _tres(tres.get("allocated")),
        _tres(tres.get("requested")),
        *(_text(job.get(key)) for key in ("partition", "qos", "account", "user", "name")),
        _text(nodes),
        eligible,
    )


def _dict(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _moment(value: object) -> str | None:
    """A Unix time; Slurm writes 0 for one that has not come."""
    number = unwrap(value)
    return str(number) if number else None


def _number(value: object) -> str | None:
    number = unwrap(value)
    return None if number is None else str(number)


def unwrap(value: object) -> int | float | None:
    """A plain number, or the number in Slurm's object if it is set and finite."""
    if isinstance(value, dict):
        value = value.get("number") if value.get("set") is True and value.get("infinite") is not True else None
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def _tres(entries: object) -> str | None:
    """`[{"type": "gres", "name": "gpu:v100", "count": 2}]` as `gres/gpu:v100=2`."""
    if not isinstance(entries, list):
        return None
    parts = []
    for entry in entries:
        fields = _dict(entry)
        kind, name, count = _text(fields.get("type")), _text(fields.get("name")), _number(fields.get("count"))
        if kind and count:
            parts.append(f"{kind}/{name}={count}" if name else f"{kind}={count}")
    return ",".join(parts) or None
