"""Alibaba PAI 2020: the task table without a header, with job, instance, group-tag and machine tables (--tables), and the sampled list.

A row of the task table (`inst_num` equal instances) becomes one job. With the job table, its submission is that of the PAI job, and its
recorded wait is the earliest start of the tasks minus the submission. Without it, the submission is the start of the task. Tables are
identified by their number of columns and their content.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from queuewise.errors import InputError
from queuewise.workload.jobs import WHOLE_GPU
from queuewise.workload.loaded import ClusterFacts, Loaded, ReadRequest, Tally
from queuewise.workload.readers.collector import Collector
from queuewise.workload.readers.delimited import batches
from queuewise.workload.readers.fields import NEVER_STARTED, NOT_FINISHED, UNKNOWN_STATE, kinds, number, one_gpu_tasks
from queuewise.workload.readers.machines import cluster_facts
from queuewise.workload.readers.source import FileHead, read_head

SUMMARY = "Alibaba PAI 2020 task table (job, instance, group-tag, machine tables with --tables), or the sampled list of tasks"

TABLES = {
    "job": ("job_name", "inst_id", "user", "status", "start_time", "end_time"),
    "task": (
        "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
    ),
    "instance": ("job_name", "task_name", "inst_name", "worker_name", "inst_id", "status", "start_time", "end_time", "machine"),
    "tag": ("inst_id", "user", "gpu_type_spec", "group", "workload"),
    "machine": ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu"),
}  # fmt: skip
SAMPLE = ("job_id", "arrival_s", "service_sec", "gpu_count")
_STATUSES = ("Terminated", "Failed", "Running", "Waiting")
_MACHINE_TYPES = {"CPU", "MISC", "T4", "P100", "V100", "V100M32", "V100M16"}
_UTC8 = 8 * 3600.0  # times keep the hour and weekday of UTC+8 with changed dates, so the clock starts at 08:00 local time
_SECONDS = {"start_time": pl.Float64, "end_time": pl.Float64}
HEADERS = (SAMPLE, TABLES["task"])
MACHINE_LISTS = (TABLES["machine"],)
MORE_FILES = 4


def sniff(head: FileHead) -> bool:
    return head.has_columns(*SAMPLE) or _role(head) in {"task", "job"}


def read(request: ReadRequest) -> Loaded:
    head = read_head(request.path)
    collect = Collector(request, "pai")
    if head.has_columns(*SAMPLE):
        return _read_sample(request, collect)
    tables = _by_role([request.path, *request.tables])
    if "task" not in tables:
        raise InputError(
            "this is the job table of PAI, which has no resource requests", where=str(request.path),
            hint="use pai_task_table.csv as the workload and add this file with --tables",
        )  # fmt: skip
    tasks = _tasks(tables, collect.tally)
    _add(tasks, collect)
    return collect.finish(epoch=_UTC8, cluster=_cluster(tables.get("machine"), collect.tally))


def _read_sample(request: ReadRequest, collect: Collector) -> Loaded:
    for batch in batches(request.path, collect.tally, required=SAMPLE):
        collect.add(
            batch, submit=number("arrival_s"), runtime=number("service_sec"), job_id=pl.col("job_id"), **one_gpu_tasks(number("gpu_count"))
        )
    machines = _by_role(request.tables).get("machine") if request.tables else None
    return collect.finish(epoch=_UTC8, cluster=_cluster(machines, collect.tally))


def _role(head: FileHead) -> str | None:
    """Which of the tables this is. A header line, which some copies have, is recognised as well."""
    for role, columns in TABLES.items():
        if head.has_columns(*columns):
            return role
    fields = head.first.split(",")
    role_of_width = {len(columns): role for role, columns in TABLES.items() if role not in {"tag", "machine"}}
    guess = role_of_width.get(len(fields))
    if guess and fields[TABLES[guess].index("status")] in _STATUSES:
        return guess
    if len(fields) == len(TABLES["machine"]):
        return "machine" if fields[1] in _MACHINE_TYPES and fields[4].isdigit() else "tag" if len(fields[0]) > 40 else None
    return None


def _by_role(paths: Sequence[Path]) -> dict[str, Path]:
    tables: dict[str, Path] = {}
    for path in paths:
        head = read_head(path)
        role = _role(head)
        if role is None:
            raise InputError(
                f"not a table of PAI; it starts with {head.first[:60]!r}", where=f"{path}:1", hint=f"known: {', '.join(TABLES)}"
            )
        if role in tables:
            raise InputError(f"a second {role} table", where=str(path), hint=f"the first is {tables[role]}")
        tables[role] = path
    return tables


def _scan(path: Path, role: str, tally: Tally, keep: Sequence[str]) -> pl.DataFrame:
    columns = TABLES[role]
    frames = []
    for batch in batches(path, tally, columns=columns, numbers=_SECONDS):
        header = pl.col(columns[0]) == columns[0]
        frames.append(batch.filter(~header.fill_null(False)).select("line", "skip", *keep))
    return pl.concat(frames) if frames else pl.DataFrame(schema=["line", "skip", *keep])


def _tasks(tables: dict[str, Path], tally: Tally) -> pl.DataFrame:
    """The task table with `submit`, `first_start` of the job, `user`, `inst_id` and the tags, if the tables contain them."""
    tasks = _scan(tables["task"], "task", tally, TABLES["task"])
    tasks = tasks.with_columns(pl.col("start_time").min().over("job_name").alias("first_start"))
    if "instance" in tables:
        spans = _scan(tables["instance"], "instance", tally, ("job_name", "task_name", "start_time", "end_time"))
        spans = spans.group_by("job_name", "task_name").agg(
            pl.col("start_time").min().alias("i_start"), pl.col("end_time").max().alias("i_end")
        )
        tasks = tasks.join(spans, on=["job_name", "task_name"], how="left", maintain_order="left")
    if "job" in tables:
        jobs = _scan(tables["job"], "job", tally, ("job_name", "inst_id", "user", "start_time")).drop("line", "skip")
        jobs = jobs.unique("job_name", keep="first", maintain_order=True).rename({"start_time": "submit"})
        tasks = tasks.join(jobs, on="job_name", how="left", maintain_order="left")
    if "tag" in tables and "inst_id" in tasks.columns:
        tags = _scan(tables["tag"], "tag", tally, ("inst_id", "gpu_type_spec", "group")).drop("line", "skip")
        tasks = tasks.join(tags.unique("inst_id", keep="first", maintain_order=True), on="inst_id", how="left", maintain_order="left")
    optional = {
        "submit": pl.Float64,
        "i_start": pl.Float64,
        "i_end": pl.Float64,
        "user": pl.String,
        "gpu_type_spec": pl.String,
        "group": pl.String,
    }
    return tasks.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in optional.items() if name not in tasks.columns)


def _add(tasks: pl.DataFrame, collect: Collector) -> None:
    start, end = pl.coalesce("start_time", "i_start"), pl.coalesce("end_time", "i_end")
    percent, plan_cpu = number("plan_gpu").fill_null(0.0), number("plan_cpu")
    whole_or_share = pl.when(percent > 100).then((percent / 100).ceil() * WHOLE_GPU).otherwise((percent * 10).round())
    nothing = (percent == 0) & plan_cpu.is_null() & number("plan_mem").is_null()
    collect.add(
        tasks,
        {
            "submit": (pl.col("submit").is_null(), "the start of the task if the job table has no submission"),
            "runtime": (pl.any_horizontal(pl.col("start_time", "end_time").is_null()), "from the instances if the task has no time"),
            "gpu_milli": ((percent > 100) & (percent % 100 != 0), "requests for more than one GPU were rounded up to whole GPUs"),
            "cpu_milli": (nothing, "one core if the plan is empty"),
        },
        skip=pl.when(start.is_null()).then(pl.lit(NEVER_STARTED)).when(end.is_null()).then(pl.lit(NOT_FINISHED))
        .when(~pl.col("status").is_in(_STATUSES)).then(pl.lit(UNKNOWN_STATE)),
        submit=pl.coalesce(pl.col("submit"), start), runtime=end - start, recorded_wait=pl.col("first_start") - pl.col("submit"),
        num_tasks=number("inst_num"), gpu_milli=whole_or_share, mem_mib=(number("plan_mem") * 1024).ceil(),
        cpu_milli=pl.when(nothing).then(1000.0).otherwise((plan_cpu * 10).ceil()),
        kinds=pl.when(percent > 0).then(kinds("gpu_type_spec")), user=pl.col("user"), job_name=pl.col("group"),
        job_id=pl.col("job_name") + "/" + pl.col("task_name"),
    )  # fmt: skip


def _cluster(path: Path | None, tally: Tally) -> ClusterFacts | None:
    if path is None:
        return None
    return cluster_facts(
        "pai", path, columns=TABLES["machine"], tally=tally,
        gpus=number("cap_gpu"), kind=pl.col("gpu_type"), cpus=number("cap_cpu"), mem_gib=number("cap_mem"),
    )  # fmt: skip
