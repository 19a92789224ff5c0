"""A schedule as a table of one row a job: what `jobs.parquet` holds. Columns, units and formulas: docs/formats.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.sim.schedule import STATUS_NAMES, Schedule

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray


def jobs_table(schedule: Schedule) -> pl.DataFrame:
    """One row a job, in order of submission. What never happened (the start of a rejected job, an unknown user) is null."""
    import polars as pl

    workload = schedule.workload
    columns: dict[str, Any] = {
        "job_id": workload.job_id,
        "status": np.asarray(STATUS_NAMES)[schedule.status],
        "submit_s": workload.submit,
        "start_s": _finite(schedule.start),
        "end_s": _finite(schedule.end),
        "wait_s": _finite(schedule.wait),
        "jct_s": _finite(schedule.jct),
        "runtime_s": workload.runtime,
        "estimate_s": schedule.estimate,
        "num_tasks": workload.num_tasks,
        "gpu_milli": workload.gpu_milli,
        "cpu_milli": workload.cpu_milli,
        "mem_mib": workload.mem_mib,
        "num_nodes": _num_nodes(schedule),
        "preemptions": schedule.preemptions,
        "priority": workload.priority,
        "user": _named(workload.user, workload.users),
        "group": _named(workload.group, workload.groups),
        "partition": _named(workload.partition, workload.partitions),
    }
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def _finite(times: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.where(np.isfinite(times), times, np.nan)


def _num_nodes(schedule: Schedule) -> NDArray[np.int64]:
    """[J] different nodes that a job ever stood on."""
    pairs = np.unique(np.stack([schedule.piece_job, schedule.piece_node]), axis=1)
    return np.bincount(pairs[0], minlength=len(schedule.workload))


def _named(codes: NDArray[np.int32], names: tuple[str, ...]) -> pl.Series:
    """The names behind codes; the bare code where the workload has no names, null where it is unknown (negative)."""
    import polars as pl

    known = names or tuple(str(code) for code in range(int(codes.max(initial=-1)) + 1))
    table = pl.Series(values=[*known, None], dtype=pl.String)
    return table.gather(pl.Series(np.where(codes < 0, len(known), codes)))
