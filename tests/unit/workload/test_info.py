"""The figures of a workload, computed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from queuewise.workload import ClusterFacts, Loaded, NodeFacts, Tally, Workload, load_workload
from queuewise.workload.info import describe, offered_load, rhythm


def jobs(submit: list[float], runtime: list[float], gpus: list[int], **more: Any) -> Workload:
    return Workload(
        submit=np.array(submit),
        runtime=np.array(runtime),
        num_tasks=np.array(gpus, np.int32),
        gpu_milli=np.full(len(submit), 1000, np.int32),
        **more,
    )


def test_offered_load_is_work_over_capacity() -> None:
    workload = jobs([0, 50, 100], [100, 10, 20], [1, 2, 4])
    assert offered_load(workload, gpus=4, cores=0) == pytest.approx((100 + 20 + 80) / (4 * 100))


def test_offered_load_of_cpu_jobs_counts_cores() -> None:
    workload = jobs([0, 100], [50, 50], [1, 1]).replace(gpu_milli=np.zeros(2, np.int32), cpu_milli=np.full(2, 2000, np.int32))
    assert offered_load(workload, gpus=8, cores=4) == pytest.approx(2 * 2 * 50 / (4 * 100))


def test_offered_load_is_unknown_without_span_or_capacity() -> None:
    assert offered_load(jobs([5], [1], [1]), gpus=4, cores=0) is None
    assert (
        offered_load(jobs([0, 5], [1, 1], [1, 1]).replace(gpu_milli=np.zeros(2, np.int32), mem_mib=np.ones(2, np.int32)), 0, float("inf"))
        is None
    )


def test_description_has_the_promised_keys() -> None:
    facts = ClusterFacts("c", (NodeFacts(1, 4, "T4"),))
    tally = Tally(rows_read=4, kept=3, skipped={"no runtime": 1}, filled={"num_tasks": 2})
    figures = describe(Loaded(jobs([0, 50, 100], [100, 10, 20], [1, 2, 4]), facts, tally, "swf"))
    assert (figures["format"], figures["jobs"], figures["skipped"], figures["filled"]) == ("swf", 3, {"no runtime": 1}, {"num_tasks": 2})
    assert (figures["span_s"], figures["offered_load"]) == (100, 0.5)
    assert figures["gpus"] == {"p50": 2, "p90": pytest.approx(3.6), "max": 4}
    assert figures["runtime_s"] == {"p50": 20, "p90": pytest.approx(84), "p99": pytest.approx(98.4)}
    assert figures["recorded_wait_s"] == {"p50": None, "p90": None, "p99": None}
    json.dumps(figures, allow_nan=False)


def test_rhythm_uses_the_epoch() -> None:
    """2024-05-01 was a Wednesday; 23:30 and 00:30 of the next day."""
    hours, weekdays = rhythm(jobs([0, 3600], [1, 1], [1, 1], epoch=1_714_606_200.0))
    assert [hour for hour, count in enumerate(hours) if count] == [0, 23]
    assert weekdays == [0, 0, 1, 1, 0, 0, 0]


def test_openb_load_is_as_low_as_its_readme_says(traces: Path) -> None:
    loaded = load_workload(traces / "alibaba/openb_pod_list_default.csv", tables=[traces / "alibaba/openb_node_list_all_node.csv"])
    assert describe(loaded)["offered_load"] == pytest.approx(0.002, abs=0.0005)
