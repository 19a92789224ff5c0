"""A schedule as tables: one row per job (`jobs.parquet`) and one row per piece (`pieces.parquet`), and back.

Columns, units and formulas: docs/formats.md; a test compares it with what is written. Together with the cluster the two tables hold
the whole replay, so reports need neither the log nor the engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.cluster.conditions import Power
from queuewise.cluster.spec import Cluster
from queuewise.evaluation.cause_walk import CAUSES
from queuewise.evaluation.measure import bounded_slowdown, measure, service, wait
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.sim.core.schedule import NEVER, STATUS_NAMES, Schedule
from queuewise.workload.jobs import UNKNOWN, Workload

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Ints = NDArray[np.int32]

KINDS_JOINED_BY = "|"
CAUSE_COLUMNS = tuple(f"wait_{cause}_s" for cause in CAUSES)
DERIVED_COLUMNS = (  # not needed for reading a schedule
    "first_wait_s", "wait_s", "jct_s", "service_s", "slowdown", "bounded_slowdown", "num_nodes", "tasks_run", *CAUSE_COLUMNS,
)  # fmt: skip


def jobs_table(schedule: Schedule, causes: WaitCauses | None = None) -> pl.DataFrame:
    """One row per job, in order of submission. What never happened (the start of a rejected job, an unknown user) is null.

    With `causes`, the last columns are the seconds of the wait by cause.
    """
    import polars as pl

    workload = schedule.workload
    m = measure(schedule)
    seconds = _spread(service(m), m.rows, len(workload))
    with np.errstate(divide="ignore", invalid="ignore"):
        slowdown = np.where(seconds > 0, schedule.jct / seconds, np.nan)
    columns: dict[str, Any] = {
        "job_id": workload.job_id,
        "status": np.asarray(STATUS_NAMES)[schedule.status],
        "submit_s": workload.submit,
        "start_s": _finite(schedule.start),
        "end_s": _finite(schedule.end),
        "first_wait_s": _finite(schedule.first_wait),
        "wait_s": _spread(wait(m), m.rows, len(workload)),
        "jct_s": _finite(schedule.jct),
        "service_s": seconds,
        "slowdown": slowdown,
        "bounded_slowdown": _spread(bounded_slowdown(m), m.rows, len(workload)),
        "preemptions": schedule.preemptions,
        "num_nodes": _num_nodes(schedule),
        "runtime_s": workload.runtime,
        "estimate_s": schedule.estimate,
        "requested_s": workload.requested,
        "num_tasks": workload.num_tasks,
        "tasks_run": _tasks_run(schedule),
        "gpu_milli": workload.gpu_milli,
        "cpu_milli": workload.cpu_milli,
        "mem_mib": workload.mem_mib,
        "gpu_kinds": _named(workload.kind_set, tuple(KINDS_JOINED_BY.join(kinds) or None for kinds in workload.kind_sets)),
        "priority": workload.priority,
        "deadline_s": workload.deadline,
        "user": _named(workload.user, workload.users),
        "group": _named(workload.group, workload.groups),
        "qos": _named(workload.qos, workload.qos_names),
        "partition": _named(workload.partition, workload.partitions),
    }
    if causes is not None:
        columns |= dict(zip(CAUSE_COLUMNS, causes.seconds.T, strict=True))
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def causes_from(jobs: pl.DataFrame, workload: Workload) -> WaitCauses | None:
    """The causes of waits that were written, None if there are none."""
    if not set(CAUSE_COLUMNS) <= set(jobs.columns):
        return None
    return WaitCauses(workload, np.column_stack([jobs[name].fill_null(np.nan).to_numpy() for name in CAUSE_COLUMNS]))


def pieces_table(schedule: Schedule) -> pl.DataFrame:
    """One row per piece: the stay of some tasks of a job on one node."""
    import polars as pl

    return pl.DataFrame(
        {
            "job": schedule.piece_job,
            "node": schedule.piece_node,
            "tasks": schedule.piece_tasks,
            "gpus": schedule.piece_gpus,
            "start_s": schedule.piece_start,
            "end_s": _finite(schedule.piece_end),
        }
    ).with_columns(pl.col("end_s").fill_nan(None))


def schedule_from(jobs: pl.DataFrame, pieces: pl.DataFrame, cluster: Cluster, facts: dict[str, Any]) -> Schedule:
    """The schedule that was written; `facts` are what the tables do not hold (policy, dispatch, name of the workload, ...)."""

    def floats(table: pl.DataFrame, column: str, missing: float = np.nan) -> Floats:
        return table[column].fill_null(missing).to_numpy()

    def ints(table: pl.DataFrame, column: str) -> Ints:
        if table[column].null_count():
            raise ValueError(f"{column!r}, which has no value in some rows,")
        return table[column].to_numpy().astype(np.int32, copy=False)

    user, users = _codes(jobs["user"])
    group, groups = _codes(jobs["group"])
    qos, qos_names = _codes(jobs["qos"])
    partition, partitions = _codes(jobs["partition"])
    kinds, kind_names = _codes(jobs["gpu_kinds"])
    workload = Workload(
        submit=floats(jobs, "submit_s"),
        runtime=floats(jobs, "runtime_s"),
        num_tasks=ints(jobs, "num_tasks"),
        gpu_milli=ints(jobs, "gpu_milli"),
        cpu_milli=ints(jobs, "cpu_milli"),
        mem_mib=ints(jobs, "mem_mib"),
        requested=floats(jobs, "requested_s"),
        kind_set=kinds + 1,
        partition=partition,
        user=user,
        group=group,
        qos=qos,
        priority=floats(jobs, "priority"),
        deadline=floats(jobs, "deadline_s"),
        job_id=jobs["job_id"].to_numpy(),
        kind_sets=((), *(tuple(name.split(KINDS_JOINED_BY)) for name in kind_names)),
        partitions=partitions,
        users=users,
        groups=groups,
        qos_names=qos_names,
        name=facts["workload"],
        epoch=facts["epoch"],
    )
    status_code = {name: code for code, name in enumerate(STATUS_NAMES)}
    return Schedule(
        workload=workload,
        cluster=cluster,
        policy=facts["policy"],
        dispatch=facts["dispatch"],
        estimates=facts["estimates"],
        seed=facts["seed"],
        estimate=floats(jobs, "estimate_s"),
        status=jobs["status"].replace_strict(status_code).to_numpy().astype(np.int8),
        start=floats(jobs, "start_s", NEVER),
        end=floats(jobs, "end_s", NEVER),
        preemptions=ints(jobs, "preemptions"),
        piece_job=ints(pieces, "job"),
        piece_node=ints(pieces, "node"),
        piece_tasks=ints(pieces, "tasks"),
        piece_gpus=pieces["gpus"].to_numpy(),
        piece_start=floats(pieces, "start_s"),
        piece_end=floats(pieces, "end_s", NEVER),
        engine_s=facts["engine_s"],
        decisions=facts["decisions"],
        overstays=_from_sparse(facts.get("overstays"), len(workload)),
        power=Power(**facts.get("power", {})),
    )


def schedule_facts(schedule: Schedule) -> dict[str, Any]:
    """What `schedule_from` needs beside the tables."""
    return {
        "policy": schedule.policy,
        "dispatch": schedule.dispatch,
        "estimates": schedule.estimates,
        "seed": schedule.seed,
        "workload": schedule.workload.name,
        "epoch": schedule.workload.epoch,
        "engine_s": schedule.engine_s,
        "decisions": schedule.decisions,
        "overstays": _sparse(schedule.overstays),
        "power": schedule.power.model_dump(exclude_defaults=True),
    }


def _sparse(counts: Ints | None) -> dict[str, int] | None:
    """The rows with a count above 0: few, so that they need no column."""
    return None if counts is None else {str(row): int(counts[row]) for row in np.flatnonzero(counts)}


def _from_sparse(counts: dict[str, int] | None, num_jobs: int) -> Ints | None:
    if counts is None:
        return None
    column = np.zeros(num_jobs, np.int32)
    column[[int(row) for row in counts]] = list(counts.values())
    return column


def _finite(times: Floats) -> Floats:
    return np.where(np.isfinite(times), times, np.nan)


def _spread(values: Floats, rows: NDArray[np.int64], num_jobs: int) -> Floats:
    """Values of some jobs as a column of all, NaN elsewhere."""
    column = np.full(num_jobs, np.nan)
    column[rows] = values
    return column


def _num_nodes(schedule: Schedule) -> NDArray[np.int64]:
    """[J] different nodes that a job ever stood on."""
    pairs = np.unique(schedule.piece_job.astype(np.int64) * schedule.cluster.num_nodes + schedule.piece_node)
    return np.bincount(pairs // schedule.cluster.num_nodes, minlength=len(schedule.workload))


def _tasks_run(schedule: Schedule) -> NDArray[np.int64]:
    """[J] tasks of the last run, 0 if there was none."""
    begin = np.full(len(schedule.workload), -np.inf)
    np.maximum.at(begin, schedule.piece_job, schedule.piece_start)
    last = schedule.piece_start == begin[schedule.piece_job]
    tasks = np.zeros(len(schedule.workload), np.int64)
    np.add.at(tasks, schedule.piece_job[last], schedule.piece_tasks[last])
    return np.where(schedule.workload.is_elastic, tasks, np.minimum(tasks, schedule.workload.num_tasks))


def _named(codes: Ints, names: tuple[str | None, ...]) -> pl.Series:
    """The names behind codes; the bare code where the workload has no names, null where it is unknown (negative)."""
    import polars as pl

    if int(codes.max(initial=-1)) < 0:
        return pl.repeat(None, len(codes), dtype=pl.String, eager=True)
    known = names or tuple(str(code) for code in range(int(codes.max()) + 1))
    return pl.Series(values=(*known, None), dtype=pl.String).gather(pl.Series(np.where(codes < 0, len(known), codes)))


def _codes(names: pl.Series) -> tuple[Ints, tuple[str, ...]]:
    """Codes and names of a column of strings, names in order of first use; null becomes UNKNOWN."""
    known = names.drop_nulls().unique(maintain_order=True).to_list()
    if not known:
        return np.full(len(names), UNKNOWN, dtype=np.int32), ()
    code = names.replace_strict(known, range(len(known)), default=UNKNOWN)
    return code.to_numpy().astype(np.int32), tuple(known)
