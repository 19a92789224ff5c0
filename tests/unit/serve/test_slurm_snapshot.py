"""A snapshot of Slurm: what jobs ask of nodes, which are left alone, and what is free."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fake_slurm import NOW, node, row
from queuewise.serve.slurm_records import read_jobs, read_nodes
from queuewise.serve.slurm_snapshot import MOST_ARRAY_TASKS, Manner, SlurmState, take_snapshot, tasks_of
from queuewise.serve.snapshot_cluster import NODE_SET

BIG: dict[str, Any] = {"cpus": 32, "gres": "gpu:a100:8"}
PLACES = Manner(places=True)


def state(*rows: dict[str, Any], nodes: tuple[dict[str, Any], ...] = (node("n1"), node("n2")), **options: Any) -> SlurmState:
    machines = read_nodes(json.dumps({"nodes": list(nodes)}))
    return take_snapshot(read_jobs(json.dumps({"jobs": list(rows)})), machines, float(NOW), **{"manner": PLACES, **options})


def sizes(found: SlurmState) -> list[tuple[int, int, int, int]]:
    jobs = [one.job for one in found.snapshot.queue]
    return [(job.num_tasks, job.gpu_milli // 1000, job.cpu_milli // 1000, job.mem_mib) for job in jobs]


def test_an_exclusive_job_has_the_size_of_real_nodes() -> None:
    nodes = (node("c1", cpus=64, gres=""), node("c2", cpus=64, gres=""), node("g1", **BIG))
    found = state(row(1, shared="none", tres_per_node="", node_count=2, max_nodes=2), row(2, shared="none"), nodes=nodes)
    assert sizes(found) == [(2, 0, 64, 0), (1, 8, 32, 0)]
    none = state(row(1, shared="none", tres_per_node="", node_count=3, max_nodes=3), nodes=nodes)
    assert none.left_alone == {"1": "no kind of node has 3 that are large enough for it alone"}


def test_gpus_of_a_job_that_fit_on_no_node_are_left_to_slurm() -> None:
    sixteen = row(1, tres_per_node="", tres_per_job="gres:gpu:16", max_nodes=0)
    nodes = (node("g1", **BIG), node("g2", **BIG))
    assert state(sixteen, nodes=nodes).left_alone == {"1": "Slurm divides its GPUs among nodes"}
    assert sizes(state(sixteen, nodes=nodes, manner=Manner())) == [(2, 8, 1, 100)]  # for predictions


def test_parts_that_must_be_apart_are_left_to_slurm_unless_they_cannot_share() -> None:
    small, large = (row(k, node_count=2, max_nodes=2, tres_per_node=f"gres:gpu:{k}") for k in (2, 3))
    found = state(small, large)
    assert found.left_alone == {"2": "its parts must be on different nodes"}
    assert sizes(found) == [(2, 3, 1, 100)]


def test_no_memory_means_all_of_it_where_memory_counts() -> None:
    manner = Manner(places=True, memory_counts=True)
    assert sizes(state(row(1, memory_per_node=0), manner=manner)) == [(1, 1, 1, 64_000)]
    assert sizes(state(row(1, memory_per_node=0))) == [(1, 1, 1, 0)]
    nodes = (node("n1"), node("n2", real_memory=128_000))
    assert "names no memory" in state(row(1, memory_per_node=0), manner=manner, nodes=nodes).left_alone["1"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"tres_per_node": "gres:gpu:a100:1,gres:gpu:v100:1"}, "GPUs of several types"),
        ({"tres_per_node": "gres:shard:2"}, "shard is not understood"),
        ({"admin_comment": "queuewise released", "state_reason": "Priority"}, "given back"),
        ({"state_reason": "JobHeldUser", "priority": 0}, "held"),
        ({"state_reason": "QOSMaxJobsPerUserLimit"}, "Slurm says QOSMax"),
        ({"admin_comment": ""}, "begin time"),
    ],
)
def test_jobs_that_are_not_understood_are_left_alone(fields: dict[str, Any], reason: str) -> None:
    assert reason in state(row(1, **fields)).left_alone["1"]


def test_jobs_with_a_type_use_no_node_with_several() -> None:
    nodes = (node("n1", gres="gpu:a100:2,gpu:v100:2"), node("n2"))
    found = state(row(1, tres_per_node="gres:gpu:a100:1"), row(2), nodes=nodes)
    assert list(found.node_sets.values()) == [("n2",)]


def test_sets_of_nodes_keep_their_names() -> None:
    wanted = row(9, required_nodes="n2")
    alone, beside = state(wanted), state(row(1, required_nodes="n1"), wanted)
    names = [next(one.job.partition for one in found.snapshot.queue if one.job.job_id == "9") for found in (alone, beside)]
    assert names[0] == names[1]
    assert str(names[0]).startswith(NODE_SET)


def test_what_is_promised_comes_on_top_of_what_is_in_use() -> None:
    nodes = (node("n1", alloc_cpus=10, alloc_memory=1000), node("n2"))
    free = state(row(1, cpus=4), nodes=nodes, promised={"1": {"n1": 1}}).snapshot.nodes[0]
    assert (free.free_cpu_milli, free.free_mem_mib, len(free.free_gpus)) == (2000, 62_900, 3)


def test_a_core_with_two_threads_is_not_shared() -> None:
    assert sizes(state(row(1, cpus=3), nodes=(node("n1", threads=2),))) == [(1, 1, 4, 100)]


def test_a_job_that_completes_holds_its_node_until_now() -> None:
    held = {"nodes": "n1", "allocated_nodes": [{"nodename": "n1", "sockets": {"0": {"cores": {"0": "allocated"}}}}]}
    found = state(row(1, job_state=["COMPLETED", "COMPLETING"], nodes="n1", job_resources=held, start_time=NOW - 30))
    assert [one.expected_end for one in found.snapshot.running] == [found.snapshot.now]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"memory_per_node": 2**40}, "it has cpu_milli 1000 and mem_mib 1099511627776"),
        ({"memory_per_node": -5}, "it has cpu_milli 1000 and mem_mib -5"),
        ({"cpus": 2**40}, "it has cpu_milli"),
        ({"tres_per_node": "gres:gpu:99999999"}, "it has gpu_milli 99999999000"),
    ],
)
def test_jobs_that_ask_for_more_than_can_be_counted_are_left_alone(fields: dict[str, Any], reason: str) -> None:
    found = state(row(1, **fields), row(2))
    assert found.left_alone["1"].startswith(reason)
    assert [one.job.job_id for one in found.snapshot.queue] == ["2"]
    assert "1" not in found.jobs


@pytest.mark.parametrize("tasks", ["1-999999999", "1-9:0", "1-" + "9" * 5000])
def test_arrays_are_looked_at_as_far_as_they_count(tasks: str) -> None:
    [job] = read_jobs(json.dumps({"jobs": [row(7, array_job_id=7, array_task_string=tasks)]}))
    assert 1 <= len(tasks_of(job, 0)) <= MOST_ARRAY_TASKS
