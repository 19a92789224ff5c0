"""IBM LSF `lsb.acct`: JOB_FINISH records, one per line, separated by spaces, with strings in quotes.

A job of n slots becomes n one-core tasks. A job with GPUs (`ngpus_physical` per host) becomes one task per host. Memory is what
`rusage[mem=...]` reserves on each host. Run = end - start, wait = start - submission; start 0 = never dispatched.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import polars as pl

from queuewise.workload.loaded import Loaded, ReadRequest
from queuewise.workload.plain_numbers import whole_number
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.fields import NEVER_STARTED, mebibytes, node_tasks
from queuewise.workload.readers.source import FileHead, blocks

SUMMARY = "LSF lsb.acct, JOB_FINISH records"

# The record's fields in order, up to each of its lists (IBM's description of lsb.acct)
_TO_ASKED_HOSTS = (
    "event_type", "version_number", "event_time", "job_id", "user_id", "options", "num_processors", "submit_time", "begin_time",
    "term_time", "start_time", "user_name", "queue", "res_req", "depend_cond", "pre_exec_cmd", "from_host", "cwd", "in_file", "out_file",
    "err_file", "job_file", "num_asked_hosts",
)  # fmt: skip
_TO_SUBMIT_EXT = (
    "j_status", "host_factor", "job_name", "command", "ru_utime", "ru_stime", "ru_maxrss", "ru_ixrss", "ru_ismrss", "ru_idrss", "ru_isrss",
    "ru_minflt", "ru_majflt", "ru_nswap", "ru_inblock", "ru_oublock", "ru_ioch", "ru_msgsnd", "ru_msgrcv", "ru_nsignals", "ru_nvcsw",
    "ru_nivcsw", "ru_exutime", "mail_user", "project_name", "exit_status", "max_num_processors", "login_shell", "time_event", "idx",
    "max_rmem", "max_rswap", "in_file_spool", "command_spool", "rsv_id", "sla", "except_mask", "additional_info", "exit_info",
    "warning_action", "warning_time_period", "charged_saap", "license_project", "app", "post_exec_cmd", "runtime_estimation",
    "job_group_name", "requeue_evalues", "options2", "resize_notify_cmd", "last_resize_time", "rsv_id_2", "job_description",
    "submit_ext_num",
)  # fmt: skip
_NEEDED = _TO_SUBMIT_EXT.index("max_rswap") + 1  # number of fields after the host lists in all versions
_TOKEN = re.compile(r'"((?:[^"]|"")*)"|(\S+)')
_HOST = re.compile(r"^(?:\d+\*)?(.*)$")
_TOKENS_PER_HOST = 6  # host rusage: name, memory, swap, user time, system time, number of extensions (0)
_BATCH_ROWS = 100_000
_ROW = {
    "line": pl.UInt32, "skip": pl.String, "job_id": pl.String, "slots": pl.Float64, "submit": pl.Float64, "start": pl.Float64,
    "end": pl.Float64, "run_limit": pl.Float64, "hosts": pl.Float64, "user": pl.String, "project": pl.String, "queue": pl.String,
    "job_name": pl.String, "res_req": pl.String, "node_list": pl.String,
}  # fmt: skip


class MalformedRecord(ValueError):
    """The line is not a complete JOB_FINISH record."""


def sniff(head: FileHead) -> bool:
    return any(line.startswith('"JOB_') and re.match(r'^"[A-Z_]+" "[\d.]+" \d+', line) for line in head.lines[:50])


def read(request: ReadRequest) -> Loaded:
    collect = Collector(request, "lsf")
    rows: list[tuple[Any, ...]] = []
    for row in _rows(request, collect):
        rows.append(row)
        if len(rows) == _BATCH_ROWS:
            _add(rows, collect)
            rows.clear()
    if rows:
        _add(rows, collect)
    return collect.finish()


def parse_record(line: str) -> dict[str, Any]:
    """The fields of a record by name, host lists without repeats, `run_limit` (or None) and the `rest` in order."""
    tokens = [quoted.replace('""', '"') if quoted or not bare else bare for quoted, bare in _TOKEN.findall(line)]
    record: dict[str, Any] = dict(zip(_TO_ASKED_HOSTS, tokens, strict=False))
    position = len(_TO_ASKED_HOSTS)
    record["asked_hosts"], position = _hosts(tokens, position, record.get("num_asked_hosts", ""))
    record["num_ex_hosts"] = tokens[position] if position < len(tokens) else ""
    record["exec_hosts"], position = _hosts(tokens, position + 1, record["num_ex_hosts"])
    record["num_ex_hosts"] = str(len(record["exec_hosts"]))
    if len(tokens) < position + _NEEDED:
        raise MalformedRecord("the record ends early")
    record |= dict(zip(_TO_SUBMIT_EXT, tokens[position:], strict=False))
    record["rest"] = tokens[position + len(_TO_SUBMIT_EXT) :]
    record["run_limit"] = _run_limit(record["rest"], record.get("submit_ext_num", ""))
    return record


def _hosts(tokens: list[str], position: int, count: str) -> tuple[list[str], int]:
    number = whole_number(count)
    if number is None or position + number > len(tokens):
        raise MalformedRecord("a list of hosts is not complete")
    end = position + number
    named = (_HOST.match(token) for token in tokens[position:end])
    return list(dict.fromkeys(match[1] for match in named if match)), end


def _run_limit(rest: list[str], extensions: str) -> float | None:
    """The number after the extensions (pairs) and the resource usage of each host."""
    pairs = whole_number(extensions)
    hosts = whole_number(rest[2 * pairs]) if pairs is not None and 2 * pairs < len(rest) else None
    if pairs is None or hosts is None:
        return None
    at = 2 * pairs + 1 + _TOKENS_PER_HOST * hosts
    limit = whole_number(rest[at]) if at < len(rest) else None
    return float(limit) if limit else None


def _rows(request: ReadRequest, collect: Collector) -> Iterator[tuple[Any, ...]]:
    for first_line, block in blocks(request.path):
        for line, text in enumerate(block.decode("utf-8", errors="replace").split("\n"), first_line):
            if not text.strip():
                continue
            if not text.startswith('"JOB_FINISH"'):
                yield line, "not a JOB_FINISH record", *[None] * (len(_ROW) - 2)
                continue
            try:
                yield _row(line, parse_record(text))
            except MalformedRecord as error:
                yield line, str(error), *[None] * (len(_ROW) - 2)


def _row(line: int, record: dict[str, Any]) -> tuple[Any, ...]:
    index = record.get("idx", "0")
    name = f"{record['job_id']}[{index}]" if index not in {"", "0"} else record["job_id"]
    numbers = (_float(record[key]) for key in ("num_processors", "submit_time", "start_time", "event_time"))
    hosts = float(len(record["exec_hosts"]))
    labels = (record["user_name"], record.get("project_name"), record["queue"], record["job_name"] or None, record["res_req"])
    return line, None, name, *numbers, record["run_limit"], hosts, *labels, ",".join(record["exec_hosts"]) or None


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _add(rows: list[tuple[Any, ...]], collect: Collector) -> None:
    slots, hosts, submit, start = pl.col("slots"), pl.col("hosts"), pl.col("submit"), pl.col("start")
    reserved = mebibytes(pl.col("res_req").str.extract(r"rusage\[[^\]]*\bmem\s*=\s*(\d+(?:\.\d+)?[KMGT]?)")) * hosts
    gpus = pl.col("res_req").str.extract(r"ngpus_physical\s*=\s*(\d+)").cast(pl.Float64, strict=False).fill_null(0) * hosts
    shape = node_tasks(pl.when(gpus > 0).then(hosts).otherwise(slots), slots, gpus, reserved)
    collect.add(
        pl.DataFrame(rows, schema=_ROW, orient="row"),
        skip=pl.when(start == 0).then(pl.lit(NEVER_STARTED)).when(~(slots >= 1)).then(pl.lit("no slots")),
        submit=submit, runtime=pl.col("end") - start, recorded_wait=start - submit, requested=pl.col("run_limit"), **shape,
        user=pl.col("user"), group=pl.col("project"), partition=pl.col("queue"), job_name=pl.col("job_name"), job_id=pl.col("job_id"),
        node_list=pl.col("node_list"),
    )  # fmt: skip
