"""What each job waited for, in cases that can be followed by hand; and how the causes are written, read and summed."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import queuewise
from queuewise.cluster.conditions import PERFECT, Conditions, Outage, Power
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import Cluster, NodeGroup, VirtualCluster, build
from queuewise.errors import InputError
from queuewise.evaluation.cause_walk import CAUSES, MEANINGS
from queuewise.evaluation.jobs_table import CAUSE_COLUMNS, causes_from, jobs_table
from queuewise.evaluation.wait_causes import _adding_up_to, in_words, wait_causes
from queuewise.policies import simulate
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.dependencies import AFTERANY, Dependencies
from queuewise.workload.jobs import Workload

CORES = build("four cores", [NodeGroup(1, cpus=4.0, mem_gib=8.0)])
PAIRS = build("two nodes of two GPUs", [NodeGroup(2, gpus=2, kind="T4")])
Row = tuple[float, float, int, int, int, int]  # submit, runtime, tasks, GPUs, cores and GiB of a task


def jobs(*rows: Row, **columns: Any) -> Workload:
    submit, runtime, tasks, gpus, cores, gib = (np.array(column) for column in zip(*rows, strict=True))
    num_tasks, gpu_milli, cpu_milli, mem_mib = (x.astype(np.int32) for x in (tasks, 1000 * gpus, 1000 * cores, 1024 * gib))
    return Workload(submit.astype(float), runtime.astype(float), num_tasks, gpu_milli, cpu_milli, mem_mib, **columns)


def cores(*rows: tuple[float, float, int]) -> Workload:
    """Jobs of so many one-core tasks."""
    return jobs(*((submit, runtime, tasks, 0, 1, 0) for submit, runtime, tasks in rows))


def gpus(*rows: tuple[float, float, int], **columns: Any) -> Workload:
    """Jobs of one task of so many GPUs."""
    return jobs(*((submit, runtime, 1, number, 0, 0) for submit, runtime, number in rows), **columns)


def causes_of(workload: Workload, cluster: Cluster, policy: str, conditions: Conditions = PERFECT) -> list[dict[str, float]]:
    """What each job waited for."""
    found = wait_causes(simulate(workload, cluster, policy, estimates="oracle", conditions=conditions))
    return [{cause: part for cause, part in zip(CAUSES, row, strict=True) if part} for row in found.seconds.tolist()]


def test_too_few_cores() -> None:
    assert causes_of(cores((0, 10, 3), (1, 5, 2)), CORES, "fcfs") == [{}, {"cores": 9}]


def test_too_few_gpus() -> None:
    assert causes_of(gpus((0, 10, 2), (0, 6, 2), (1, 5, 1)), PAIRS, "fcfs") == [{}, {}, {"gpus": 5}]


def test_too_little_memory() -> None:
    assert causes_of(jobs((0, 10, 1, 0, 1, 6), (2, 5, 1, 0, 1, 4)), CORES, "fcfs") == [{}, {"memory": 8}]


def test_what_is_shortest_of_what_it_asks_for_is_the_cause() -> None:
    """One of two cores is free, and 2 of 6 GiB."""
    assert causes_of(jobs((0, 10, 1, 0, 3, 6), (2, 5, 1, 0, 2, 6)), CORES, "fcfs") == [{}, {"memory": 8}]


def test_equal_shortages_count_for_gpus_then_cores() -> None:
    node = build("node", [NodeGroup(1, gpus=2, kind="T4", cpus=4.0, mem_gib=8.0)])
    assert causes_of(jobs((0, 3, 1, 2, 4, 8), (0, 4, 1, 1, 1, 1)), node, "fcfs") == [{}, {"gpus": 3}]
    assert causes_of(jobs((0, 3, 1, 0, 4, 8), (0, 4, 1, 0, 1, 1)), node, "fcfs") == [{}, {"cores": 3}]


def test_enough_in_all_but_not_on_one_node() -> None:
    """One GPU of each node is free until job 0 ends; job 2 needs two of one node."""
    assert causes_of(gpus((0, 10, 1), (0, 20, 1), (1, 5, 2)), PAIRS, "fcfs@spread") == [{}, {}, {"fragmentation": 9}]


def test_enough_in_all_but_only_parts_of_gpus() -> None:
    shares = gpus((0, 10, 1), (0, 10, 1), (1, 5, 1)).replace(gpu_milli=np.array([500, 500, 1000], np.int32))
    assert causes_of(shares, build("node", [NodeGroup(1, gpus=2, kind="T4")]), "fcfs@spread") == [{}, {}, {"fragmentation": 9}]


def test_more_nodes_than_the_placement_rule_allows() -> None:
    """From 2 on, one GPU of each node is free."""
    workload = jobs(*((0, length, 1, 1, 0, 0) for length in (2, 20, 2, 20)), (3, 5, 2, 1, 0, 0))
    assert causes_of(workload, PAIRS, "fcfs@pack:0")[4] == {"fragmentation": 17}
    assert causes_of(workload, PAIRS, "fcfs@pack:1")[4] == {}


def test_others_go_first_without_backfill() -> None:
    """Job 2 fits from 2 to 10, and not while job 1 runs."""
    assert causes_of(cores((0, 10, 3), (1, 5, 4), (2, 20, 1)), CORES, "fcfs") == [{}, {"cores": 9}, {"cores": 5, "priority": 8}]


def test_the_backfill_rule_keeps_the_room_for_the_head() -> None:
    """Job 2 is too long for EASY. Job 3 is not, and takes the core from 3 to 6."""
    workload = cores((0, 10, 3), (1, 5, 4), (2, 20, 1), (3, 3, 1))
    assert causes_of(workload, CORES, "fcfs+easy") == [{}, {"cores": 9}, {"cores": 8, "reservation": 5}, {}]
    assert causes_of(workload, CORES, "fcfs+conservative") == [{}, {"cores": 9}, {"cores": 8, "reservation": 5}, {}]


def test_a_candidate_beyond_the_depth_waits_for_the_backfill_rule() -> None:
    workload = cores((0, 10, 3), (1, 5, 4), (2, 5, 4), (3, 7, 1))
    assert causes_of(workload, CORES, "fcfs+greedy/1")[3] == {"cores": 10, "reservation": 7}
    assert causes_of(workload, CORES, "fcfs+greedy")[3] == {}


def test_slurm_tries_candidates_only_every_so_often() -> None:
    workload = cores((0, 100, 3), (1, 5, 4), (2, 10, 1))
    assert causes_of(workload, CORES, "fcfs+slurm") == [{}, {"cores": 99}, {"reservation": 29}]


def test_an_overdue_job_goes_first() -> None:
    """Job 1 is overdue from 3 on; the reservation before that is one of EASY."""
    workload = cores((0, 10, 3), (1, 5, 4), (2, 20, 1))
    assert causes_of(workload, CORES, "fcfs+easy~2s") == [{}, {"cores": 9}, {"cores": 5, "reservation": 1, "bound": 7}]
    assert causes_of(workload, CORES, "fcfs+greedy~2s")[2] == {}


def test_max_wait_is_known_though_the_name_has_no_bound() -> None:
    workload = cores((0, 10, 3), (1, 5, 4), (2, 20, 1))
    schedule = simulate(workload, CORES, "fcfs+easy", estimates="oracle", max_wait="2s")
    assert wait_causes(schedule).seconds[2].tolist() == [{"cores": 5, "reservation": 1, "bound": 7}.get(cause, 0) for cause in CAUSES]


def test_the_quota_of_a_virtual_cluster() -> None:
    cluster = dataclasses.replace(PAIRS, virtual_clusters=(VirtualCluster("a", 1, 1),))
    workload = gpus((0, 10, 1), (1, 5, 1), group=np.zeros(2, np.int32), groups=("a",))
    assert causes_of(workload, cluster, "fcfs", Conditions(quotas=True)) == [{}, {"quota": 9}]


def test_other_jobs_that_it_depends_on() -> None:
    """Job 1 is released 2 s after the end of job 0, and then waits for job 2."""
    workload = cores((0, 10, 3), (1, 5, 3), (11, 4, 4)).replace(dependencies=Dependencies.of([(1, 0, AFTERANY, 2.0)]))
    assert causes_of(workload, CORES, "fcfs", Conditions(dependencies=True)) == [{}, {"dependency": 11, "cores": 3}, {}]


def test_nodes_that_are_down_or_drained() -> None:
    """Job 1 would fit on node 1, which is closed until 4, and again from 6 on; in between job 2 is there."""
    closed = (Outage(node=1, start=0, end=4, kind="drain"), Outage(node=1, start=6, end=9))
    workload = gpus((0, 10, 2), (1, 5, 2), (4, 2, 2)).replace(priority=np.array([0.0, 0.0, 1.0]))
    assert causes_of(workload, PAIRS, "priority", Conditions(outages=closed)) == [{}, {"closed": 6, "gpus": 2}, {}]


def test_a_node_that_is_in_use_again() -> None:
    """From 4 on job 2 would fit on node 1, but job 1, which needs both nodes, is before it."""
    drained = Conditions(outages=(Outage(node=1, start=0, end=4, kind="drain"),))
    workload = jobs((0, 10, 1, 2, 0, 0), (1, 5, 2, 2, 0, 0), (1, 5, 1, 2, 0, 0))
    assert causes_of(workload, PAIRS, "fcfs", drained) == [{}, {"gpus": 9}, {"closed": 3, "gpus": 5, "priority": 6}]


def test_a_stopped_job_waits_again() -> None:
    failure = Conditions(outages=(Outage(node=0, start=5, end=8),))
    node = build("node", [NodeGroup(1, gpus=2, kind="T4")])
    assert causes_of(gpus((0, 10, 2), (1, 3, 2)), node, "fcfs", failure) == [{"closed": 3}, {"closed": 3, "gpus": 14}]


def test_nodes_that_are_reserved_for_others() -> None:
    held = Reservation(nodes=(1,), start=5, end=20, users=("ann",))
    workload = gpus((0, 30, 2), (1, 10, 2), user=np.array([1, 1], np.int32), users=("ann", "bob"))
    assert causes_of(workload, PAIRS, "fcfs", Conditions(reservations=(held,))) == [{}, {"closed": 19}]


def test_a_power_cap() -> None:
    active = PAIRS.kinds[0].peak_watts - PAIRS.kinds[0].idle_watts
    capped = Conditions(power=Power(cap_watts=float(PAIRS.idle_draw.sum()) + 2.5 * active))
    assert causes_of(gpus((0, 10, 2), (1, 5, 1)), PAIRS, "fcfs", capped) == [{}, {"power": 9}]


def test_nodes_that_wake_up() -> None:
    drowsy = Conditions(power=Power(sleep_after_s=1.0, wake_s=3.0))
    assert causes_of(gpus((0, 10, 1), (5, 5, 2)), PAIRS, "fcfs", drowsy) == [{}, {"waking": 3}]


# --- sums


def test_rounding_errors_go_to_the_largest_cause() -> None:
    exact = _adding_up_to(np.array([0.3, 1.0, 0.0]), np.array([[0.1, 0.1, 0.1], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 0.0]]))
    assert [sum(row) for row in exact.tolist()] == [0.3, 1.0, 0.0]
    assert exact == pytest.approx(np.array([[0.1, 0.1, 0.1], [1 / 3, 2 / 3, 0.0], [0.0, 0.0, 0.0]]), abs=1e-15)


@pytest.fixture(scope="module")
def schedule() -> Schedule:
    """Four jobs of two partitions; one can never run."""
    workload = cores((0, 10, 3), (1, 5, 4), (2, 20, 1), (3, 5, 9))
    named = workload.replace(group=np.array([0, 0, 1, 1], np.int32), groups=("red", "blue"), user=np.zeros(4, np.int32), users=("ann",))
    return simulate(named, CORES, "fcfs", estimates="oracle")


def test_means_shares_and_sums_by_account(schedule: Schedule) -> None:
    found = wait_causes(schedule)
    assert found.means() == dict.fromkeys(CAUSES, 0.0) | {"cores": 14 / 3, "priority": 22 / 3 - 14 / 3}
    assert found.shares() == {"cores": 14 / 22, "priority": 8 / 22}
    rows = {row.key: row for row in found.by("group")}
    assert list(rows) == ["blue", "red"]
    assert (rows["blue"].jobs, rows["blue"].wait_s, rows["blue"].shares) == (1, 13, {"priority": 8 / 13, "cores": 5 / 13})
    assert (rows["red"].jobs, rows["red"].wait_s, rows["red"].shares) == (2, 9, {"cores": 1.0})
    with pytest.raises(InputError, match="unknown breakdown 'account'"):
        found.by("account")


def test_shares_in_words() -> None:
    assert in_words({"cores": 0.612, "priority": 0.385, "bound": 0.003}) == "61 % cores, 38 % priority"
    assert in_words({"gpus": 1.0}) == "100 % GPUs"


def test_without_a_finished_job_there_are_no_means() -> None:
    never = wait_causes(simulate(cores((0, 1, 9)), CORES, "fcfs", estimates="oracle"))
    assert never.means() == dict.fromkeys(CAUSES)
    assert never.shares() == {}
    assert never.by("user") == []


def test_causes_are_columns_of_the_table_of_jobs_and_can_be_read_again(schedule: Schedule) -> None:
    found = queuewise.wait_causes(schedule)
    table = jobs_table(schedule, found)
    assert table.columns == [*jobs_table(schedule).columns, *CAUSE_COLUMNS]
    assert table["wait_cores_s"].to_list() == [0.0, 9.0, 5.0, None]
    assert table.select(pl.sum_horizontal(CAUSE_COLUMNS)).to_series()[:3].to_list() == table["wait_s"].to_list()[:3]
    again = causes_from(table, schedule.workload)
    assert again is not None
    np.testing.assert_array_equal(again.seconds, found.seconds)
    assert causes_from(jobs_table(schedule), schedule.workload) is None


def test_a_schedule_that_was_read_cannot_be_asked(schedule: Schedule) -> None:
    with pytest.raises(InputError, match=r"was read from files.*hint: use the schedule that simulate returns"):
        wait_causes(dataclasses.replace(schedule, origin=None))


def test_a_schedule_with_another_cluster_is_refused(schedule: Schedule) -> None:
    with pytest.raises(InputError, match=r"jobs ran that can never run on this cluster"):
        wait_causes(dataclasses.replace(schedule, cluster=build("two cores", [NodeGroup(1, cpus=2.0)])))


@pytest.mark.parametrize(("page", "heading", "names"), [("metrics.md", "Causes of waits", CAUSES), ("formats.md", "Causes", CAUSE_COLUMNS)])
def test_the_docs_name_all_causes_in_order(repository: Path, page: str, heading: str, names: tuple[str, ...]) -> None:
    text = (repository / "docs" / page).read_text(encoding="utf-8")
    section = re.search(rf"^#+ {re.escape(heading)}$(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"docs/{page} has no section {heading}"
    assert tuple(re.findall(r"^\| `(\w+)` \|", section[1], re.MULTILINE)) == names


def test_every_cause_has_a_meaning() -> None:
    assert all(meaning for meaning in MEANINGS.values())
    assert len(CAUSES) == len(set(CAUSES)) == 12
