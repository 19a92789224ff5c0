"""Partitions that share nodes, and jobs that name several: the engine and the independent reference make identical schedules."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agreement import assert_same_schedule
from effort import tries
from queuewise.cluster.spec import NodeGroup, build
from queuewise.workload.jobs import ANY_PARTITION
from strategies import BACKFILLS, BOUNDS, DISPATCHES, KINDS, MEMBERSHIPS, PREEMPTIVE, SLURM, Case, cases, column

RULES = tuple(f"+{rule}" for rule in (*(rule for rule in BACKFILLS if rule not in SLURM), *SLURM))


@st.composite
def overlapping_cases(draw: st.DrawFn) -> Case:
    """Two to four nodes, with and without GPUs, most of which share a partition with another one."""
    case = draw(cases(max_jobs=14))
    groups = []
    for _ in range(draw(st.integers(2, 4))):
        gpus = draw(st.sampled_from((0, 1, 2)))
        kind = draw(st.sampled_from(KINDS)) if gpus else ""
        cores = draw(st.sampled_from((2.0, 4.0)))
        groups.append(NodeGroup(1, gpus=gpus, kind=kind, cpus=cores, mem_gib=4.0, partitions=draw(st.sampled_from(MEMBERSHIPS))))
    names = ("north", "south", "east", "north,east", "south, east", "east,nowhere")
    choices = (0, 1, 2, 2, 3, 3, 4, 5) + ((ANY_PARTITION,) if draw(st.booleans()) else ())
    partition = column(draw, len(case.workload), choices, np.int32)
    workload = case.workload.replace(partition=partition, partitions=names)
    return dataclasses.replace(case, workload=workload, cluster=build("overlapping", groups))


@pytest.mark.parametrize("rule", RULES)
@tries(100)
@given(overlapping_cases(), st.sampled_from(("fcfs", "sjf", "hrrn", "drf")), st.sampled_from(BOUNDS), st.sampled_from(DISPATCHES))
def test_backfill(rule: str, case: Case, order: str, bound: str, dispatch: str) -> None:
    assert_same_schedule(case, f"{order}{rule}{bound}", dispatch)


@tries(100)
@given(overlapping_cases(), st.sampled_from(PREEMPTIVE))
def test_preemption_and_migration(case: Case, policy: str) -> None:
    assert_same_schedule(case, policy)
