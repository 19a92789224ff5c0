"""Expressions for fields that several formats share: times, durations, memory, resource lists, and the tasks of a job."""

from __future__ import annotations

from collections.abc import Sequence

import polars as pl

from queuewise.workload.jobs import WHOLE_GPU

NEVER_STARTED = "never started"
NOT_FINISHED = "not finished when the log was taken"
UNKNOWN_STATE = "unknown state"

SLURM_FINISHED = (
    "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
)  # fmt: skip
SLURM_UNFINISHED = ("PENDING", "RUNNING", "SUSPENDED", "CONFIGURING", "COMPLETING", "REQUEUED", "RESIZING")

# Spellings of GPU kinds in Alibaba and Slurm logs -> names in the catalogue of queuewise.cluster.gpus
KIND_NAMES = {
    "V100": "V100-16", "V100M16": "V100-16", "V100M32": "V100-32", "A100-SXM4-80GB": "A100-80", "A800-SXM4-80GB": "A800-80",
    "a100": "A100-40", "v100": "V100-16", "volta": "V100-32", "h100": "H100", "t4": "T4", "p100": "P100",
}  # fmt: skip


def number(name: str) -> pl.Expr:
    return pl.col(name).str.strip_chars().cast(pl.Float64, strict=False)


def positive(name: str) -> pl.Expr:
    """The number if it is above 0, otherwise null: many logs use 0 or -1 for unknown values."""
    return pl.when(number(name) > 0).then(number(name))


def label(name: str) -> pl.Expr:
    """The text, or null if it is -1 (a missing value)."""
    return pl.when(pl.col(name) != "-1").then(pl.col(name))


def not_run(start: pl.Expr, end: pl.Expr) -> pl.Expr:
    """The reason to skip a job without start or end, or null."""
    return pl.when(start.is_null()).then(pl.lit(NEVER_STARTED)).when(end.is_null()).then(pl.lit("no end time"))


def unfit_state(state: pl.Expr, finished: Sequence[str], unfinished: Sequence[str]) -> pl.Expr:
    """The reason to skip a job with an unfinished or unknown state; null for a finished or missing one."""
    undefined = ~state.is_in([*finished, *unfinished])
    return pl.when(undefined).then(pl.lit(UNKNOWN_STATE)).when(state.is_in(list(unfinished))).then(pl.lit(NOT_FINISHED))


def unfit_slurm_state(column: str) -> pl.Expr:
    """`unfit_state` for Slurm's states, which may have a suffix, as in `CANCELLED by 1000`."""
    word = pl.col(column).str.strip_chars().str.extract(r"^(\S+)")
    return unfit_state(word.str.strip_suffix("+"), SLURM_FINISHED, SLURM_UNFINISHED)


def timestamp(column: str | pl.Expr) -> pl.Expr:
    """Unix seconds from `2020-03-26 13:42:30` (with a space or T, optionally with a fraction and a time zone) or from plain seconds.

    Times without a time zone are used unchanged, so hours of the day are those of the log. Anything else becomes null.
    """
    text = (pl.col(column) if isinstance(column, str) else column).str.strip_chars()
    moment = text.str.slice(0, 19).str.replace("T", " ", literal=True).str.to_datetime("%Y-%m-%d %H:%M:%S", strict=False)
    rest = text.str.slice(19)
    fraction = rest.str.extract(r"^(\.\d{1,9})").cast(pl.Float64, strict=False).fill_null(0.0)
    zone = rest.str.extract_groups(r"([+-])(\d{2}):?(\d{2})$")
    offset = (zone.struct[1].cast(pl.Float64, strict=False) * 3600 + zone.struct[2].cast(pl.Float64, strict=False) * 60).fill_null(0.0)
    seconds = moment.dt.epoch("s").cast(pl.Float64) + fraction - pl.when(zone.struct[0] == "-").then(-offset).otherwise(offset)
    return pl.coalesce(seconds, text.cast(pl.Float64, strict=False))


def clock_duration(name: str) -> pl.Expr:
    """Seconds of Slurm's `[D-]HH:MM:SS[.mmm]` or `MM:SS`; null for UNLIMITED, Partition_Limit and similar values."""
    parts = pl.col(name).str.strip_chars().str.extract_groups(r"^(?:(\d{1,6})-)?(?:(\d{1,4}):)?(\d{1,4}):(\d{1,2}(?:\.\d+)?)$")
    days, hours, minutes, seconds = (parts.struct[index].cast(pl.Float64, strict=False) for index in range(4))
    return days.fill_null(0) * 86400 + hours.fill_null(0) * 3600 + minutes * 60 + seconds


def mebibytes(text: pl.Expr) -> pl.Expr:
    """MiB of `62.50G`, `24000M`, `4096K` or a plain number of MiB."""
    parts = text.str.strip_chars().str.extract_groups(r"^(\d+(?:\.\d+)?)\s*([KMGTP]?)i?B?$")
    scale = parts.struct[1].replace_strict({"K": 1 / 1024, "": 1.0, "M": 1.0, "G": 1024.0, "T": 1024.0**2, "P": 1024.0**3}, default=None)
    return parts.struct[0].cast(pl.Float64, strict=False) * scale


def kinds(column: str, separator: str = "|") -> pl.Expr:
    """The allowed GPU kinds by catalogue name, sorted, unique and joined by `|`; null if any kind is allowed."""
    named = pl.col(column).str.split(separator).list.eval(pl.element().str.strip_chars().replace(KIND_NAMES)).list.unique().list.sort()
    joined = named.list.join("|")
    return pl.when(joined != "").then(joined)


def one_gpu_tasks(gpus: pl.Expr, cores: pl.Expr | None = None) -> dict[str, pl.Expr]:
    """A job of n GPUs as n one-GPU tasks that share its cores; without GPUs, one task with all cores."""
    tasks = pl.when(gpus > 0).then(gpus).otherwise(1.0)
    fields = {
        "num_tasks": pl.when(gpus.is_not_null()).then(tasks),
        "gpu_milli": pl.when(gpus > 0).then(pl.lit(float(WHOLE_GPU))).otherwise(pl.when(gpus < 0).then(gpus).otherwise(0.0)),
    }
    return fields if cores is None else fields | {"cpu_milli": (cores.fill_null(0) * 1000 / tasks).ceil()}


def node_tasks(nodes: pl.Expr, cores: pl.Expr, gpus: pl.Expr, mem_mib: pl.Expr) -> dict[str, pl.Expr]:
    """A job on n nodes as n equal tasks, or as one-GPU tasks if the GPUs do not divide evenly."""
    nodes = pl.when(nodes >= 1).then(nodes).otherwise(1.0)
    gpus = gpus.fill_null(0.0)
    tasks = pl.when(gpus % nodes == 0).then(nodes).otherwise(gpus)
    return {
        "num_tasks": tasks,
        "gpu_milli": gpus / tasks * WHOLE_GPU,
        "cpu_milli": (cores.fill_null(0.0) * 1000 / tasks).ceil(),
        "mem_mib": (mem_mib.fill_null(0.0) / tasks).ceil(),
    }
