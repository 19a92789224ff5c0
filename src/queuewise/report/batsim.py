"""A replay in the format of Batsim's `jobs.csv`, so that existing analysis scripts can be used.

The columns follow Batsim's output documentation (batsim.readthedocs.io, "Output files: jobs"). The resources are the cluster's GPUs,
numbered consecutively over all nodes. On a cluster without GPUs they are the nodes.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from queuewise.evaluation.measure import measure, service
from queuewise.plain_text import table_cell
from queuewise.runs import replacing
from queuewise.sim.core.schedule import DONE, KILLED, Schedule

if TYPE_CHECKING:
    import polars as pl

    from queuewise.workload.jobs import Workload

FINAL_STATES = {
    "pending": "NOT_SUBMITTED",
    "queued": "SUBMITTED",
    "running": "RUNNING",
    "done": "COMPLETED_SUCCESSFULLY",
    "rejected": "REJECTED",
    "killed": "COMPLETED_WALLTIME_REACHED",
    "cancelled": "COMPLETED_KILLED",
    "failed": "COMPLETED_FAILED",
}


def _ids(workload: Workload) -> pl.Series:
    import polars as pl

    ids = workload.job_id
    return pl.Series(ids if ids.dtype.kind in "iu" else [table_cell(str(job)) for job in ids.tolist()]).cast(pl.String)


def write_batsim_jobs(schedule: Schedule, path: Path) -> None:
    import polars as pl

    workload = schedule.workload
    ran = np.isin(schedule.status, (DONE, KILLED))
    m = measure(schedule)
    seconds = np.full(len(workload), np.nan)
    seconds[m.rows] = service(m)
    jct = np.where(ran, schedule.jct, np.nan)
    with np.errstate(divide="ignore", invalid="ignore"):
        stretch = np.where(seconds > 0, jct / seconds, np.nan)
    states = pl.Series(list(FINAL_STATES.values())).gather(schedule.status.astype(np.int64))
    table = pl.DataFrame(
        {
            "job_id": _ids(workload),
            "workload_name": pl.repeat(table_cell(workload.name), len(workload), eager=True),
            "profile": pl.repeat("delay", len(workload), eager=True),
            "submission_time": workload.submit,
            "requested_number_of_resources": np.ceil(workload.size).astype(np.int64),
            "requested_time": np.where(np.isnan(workload.requested), -1.0, workload.requested),
            "success": (schedule.status == DONE).astype(np.int64),
            "final_state": states,
            "starting_time": np.where(ran, schedule.start, np.nan),
            "execution_time": seconds,
            "finish_time": np.where(ran, schedule.end, np.nan),
            "waiting_time": np.where(ran, schedule.first_wait, np.nan),
            "turnaround_time": jct,
            "stretch": stretch,
            "allocated_resources": _resources(schedule),
            "consumed_energy": pl.repeat(-1, len(workload), eager=True),  # Batsim's value for "not measured per job"
        }
    )
    with replacing(path) as temporary:
        table.with_columns(pl.col(pl.Float64).fill_nan(None)).write_csv(temporary)


def _resources(schedule: Schedule) -> pl.Series:
    """[J] intervals of resource numbers such as `0-3 8`. Each distinct set of GPUs is formatted once, because there are few of them."""
    import polars as pl

    cluster, num_jobs = schedule.cluster, len(schedule.workload)
    first_gpu = np.concatenate(([0], np.cumsum(cluster.node_gpus)))
    masks, mask = np.unique(schedule.piece_gpus, return_inverse=True)
    sets, place = np.unique(schedule.piece_node.astype(np.int64) * len(masks) + mask.ravel(), return_inverse=True)
    names = [
        _intervals(int(masks[which % len(masks)]), int(first_gpu[which // len(masks)])) if cluster.num_gpus else str(which // len(masks))
        for which in sets.tolist()
    ]
    several = np.bincount(schedule.piece_job, minlength=num_jobs)[schedule.piece_job] > 1
    joined = (
        pl.DataFrame({"job": schedule.piece_job[several], "name": pl.Series(names, dtype=pl.String).gather(place.ravel()[several])})
        .unique(maintain_order=True)
        .filter(pl.col("name") != "")
        .group_by("job", maintain_order=True)
        .agg(pl.col("name").str.join(" "))
    )
    code = np.full(num_jobs, len(names))  # of the jobs that had no resources
    code[schedule.piece_job] = place.ravel()
    code[joined["job"].to_numpy()] = len(names) + 1 + np.arange(len(joined))
    return pl.concat([pl.Series([*names, ""], dtype=pl.String), joined["name"]]).gather(code)


def _intervals(mask: int, offset: int) -> str:
    """The bits of a mask as intervals: 0b1011 with offset 8 is `8-9 11`."""
    parts, gpu = [], 0
    while mask >> gpu:
        if (mask >> gpu) & 1:
            last = gpu
            while (mask >> (last + 1)) & 1:
                last += 1
            parts.append(f"{offset + gpu}-{offset + last}" if last > gpu else f"{offset + gpu}")
            gpu = last
        gpu += 1
    return " ".join(parts)
