"""The cluster that the jobs of a log had, by hand."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

import queuewise
from queuewise.cluster import load_cluster
from queuewise.cluster.from_log import cluster_of_log, describe_log, peak_use
from queuewise.errors import InputError
from queuewise.workload import Loaded, ReadOptions, load_workload

HEADER = "JobID|Partition|Submit|Eligible|Start|End|NNodes|AllocTRES|ReqTRES|NodeList|State"
# job: partition, start and end (minutes), what it has, on which nodes
JOBS = [
    ("a", 0, 10, "cpu=8,mem=8G,node=2", "n[1-2]"),  # 4 cores and 4 GiB on each
    ("a", 5, 15, "cpu=2,mem=1G,node=1", "n1"),  # beside it: n1 has 6 cores and 5 GiB in use
    ("a", 10, 20, "cpu=4,mem=2G,node=1", "n2"),  # begins when the first ends
    ("a", 0, 0, "cpu=64,mem=1G,node=1", "n2"),  # ran for 0 s: used nothing
    ("b", 0, 10, "cpu=16,mem=64G,node=1,gres/gpu:a100=2,gres/gpu=2", "gpu1"),
    ("b", 2, 4, "cpu=1,mem=1G,node=1,gres/gpu:a100=1,gres/gpu=1", "gpu1"),
]


def row(number: int, partition: str, start: int, end: int, has: str, nodes: str) -> str:
    times = [f"2024-01-01T00:{minute:02}:00" for minute in (0, 0, start, end)]
    return "|".join([str(number), partition, *times, str(has.count("node")), has, has, nodes, "COMPLETED"])


def read(path: Path, lines: list[str]) -> Loaded:
    path.write_text("\n".join([HEADER, *lines]), encoding="utf-8")
    return load_workload(path, options=ReadOptions(recorded=True))


def read_jobs(path: Path, jobs: list[tuple[str, int, int, str, str]]) -> Loaded:
    return read(path, [row(number, *job) for number, job in enumerate(jobs, 1)])


def test_peak_use_counts_what_overlaps() -> None:
    owner = np.array([0, 0, 0, 2, 0])
    start, end = np.array([0.0, 5, 10, 0, 6]), np.array([10.0, 10, 20, 1, 6])
    amounts = np.array([[4, 1], [2, 0], [5, 3], [7, 7], [100, 100]])
    assert peak_use(owner, start, end, amounts).tolist() == [[6, 3], [0, 0], [7, 7]]  # the last interval is empty


def test_node_lists_give_nodes_partitions_and_sizes(tmp_path: Path) -> None:
    described = describe_log(read_jobs(tmp_path / "log.txt", JOBS), "log.txt")
    assert [group.table() for group in described.groups] == [
        {"count": 1, "gpus": 3, "kind": "A100-40", "cpus": 17, "mem_gib": 65, "partition": "b", "name": "gpu"},
        {"count": 2, "cpus": 6, "mem_gib": 5, "partition": "a", "name": "n"},
    ]
    assert described.groups[1].remarks == ("guessed: 1 of 2 nodes had fewer cores in use, the least 4; they may be smaller",)
    assert described.summary() == "3 nodes, 29 cores, 3 GPUs, 2 partitions"


def test_the_file_loads_and_says_what_was_guessed(tmp_path: Path) -> None:
    described = describe_log(read_jobs(tmp_path / "log.txt", JOBS), "log.txt")
    text = described.toml()
    assert tomllib.loads(text)["nodes"] == [group.table() for group in described.groups]
    assert "# Found in log: 5 jobs that ran. A log shows what was used, not what was there.\n" in text
    assert "# guessed: 1 of 2 nodes had fewer cores in use" in text
    assert max(map(len, text.splitlines())) <= 120
    (tmp_path / "found.toml").write_text(text, encoding="utf-8")
    loaded, built = load_cluster(str(tmp_path / "found.toml")), described.build()
    for cluster in (loaded, built):
        assert (cluster.node_cpu_milli.tolist(), cluster.node_gpus.tolist()) == ([17000, 6000, 6000], [3, 0, 0])
        assert [partition.name for partition in cluster.partitions] == ["b", "a"]


SHARED = [("a", 0, 10, "cpu=4,mem=1G,node=1", "n1"), ("b", 0, 10, "cpu=4,mem=1G,node=1", "n1"), ("b", 0, 10, "cpu=4,mem=1G,node=1", "n2")]


def test_nodes_in_several_partitions_have_a_list_of_them(tmp_path: Path) -> None:
    described = describe_log(read_jobs(tmp_path / "log.txt", SHARED), "log.txt")
    assert [group.table() for group in described.groups] == [
        {"count": 1, "cpus": 8, "mem_gib": 2, "partitions": ["a", "b"], "name": "n"},
        {"count": 1, "cpus": 4, "mem_gib": 1, "partition": "b", "name": "n"},
    ]


def test_clusters_with_nodes_in_several_partitions_load(tmp_path: Path) -> None:
    cluster, _ = cluster_of_log(read_jobs(tmp_path / "log.txt", SHARED), "log.txt")
    assert cluster.num_nodes == 2


def test_jobs_that_name_several_partitions(tmp_path: Path) -> None:
    """n1 is known to be in a, n2 in both; of n3 nothing else is known."""
    one, two = ("a,b", 0, 10, "cpu=4,node=1"), [("a", 20, 30, "cpu=4,node=1", "n[1-2]"), ("b", 40, 50, "cpu=4,node=1", "n2")]
    loaded = read_jobs(tmp_path / "log.txt", [(*one, "n1"), (*one, "n2"), (*one, "n3"), *two])
    cluster, _ = cluster_of_log(loaded, "log.txt")
    assert [group.table().get("partitions", ["a"]) for group in describe_log(loaded, "log.txt").groups] == [["a"], ["a", "b"]]
    assert [partition.name for partition in cluster.partitions] == ["a", "b"]
    nowhere = read_jobs(tmp_path / "log.txt", [(*one, ""), ("b", 0, 10, "cpu=4,node=1", "")])
    assert [group.partitions for group in describe_log(nowhere, "log.txt").groups] == [("a", "b"), ("b",)]
    path = tmp_path / "log.txt"
    path.write_text("\n".join([HEADER, row(1, *one, "n1"), row(2, *two[0])]), encoding="utf-8")
    found = queuewise.validate(path)
    assert (found.rejected, found.replay.workload.partitions) == (0, ("a,b", "a"))  # they bind jobs


def test_broken_node_lists_are_left_out_and_counted(tmp_path: Path) -> None:
    jobs = [("a", 0, 10, "cpu=4,node=1", "n1"), ("a", 0, 10, "cpu=9,node=1", "n[1-"), ("a", 0, 10, "cpu=9,node=1", "None assigned")]
    described = describe_log(read_jobs(tmp_path / "log.txt", jobs), "log.txt")
    assert described.summary() == "1 node, 4 cores, 1 partition"
    assert described.remarks[-1] == "2 jobs without a readable node list were left out."


def test_the_kind_of_gpus_that_jobs_were_given_counts(tmp_path: Path) -> None:
    """Users asked for any GPU. n1 has one kind, on n2 the log names two."""
    lines = []
    for number, (has, node) in enumerate([("h100", "n1"), ("h100", "n1"), ("a100", "n2"), ("t4", "n2")], 1):
        asked = row(number, "a", 0, 10, "cpu=4,node=1,gres/gpu=1", node)
        lines.append(asked.replace("gres/gpu=1", f"gres/gpu:{has}=1,gres/gpu=1", 1))  # AllocTRES comes before ReqTRES
    found = describe_log(read(tmp_path / "log.txt", lines), "log.txt")
    assert sorted((group.gpus, group.kind) for group in found.groups) == [(2, "H100"), (2, "MISC")]
    nowhere = [line.replace("n1|COMPLETED", "|COMPLETED") for line in lines[:2]]
    (group,) = describe_log(read(tmp_path / "log.txt", nowhere), "log.txt").groups
    assert group.kind == "H100"


def test_unknown_gpus_get_a_stand_in(tmp_path: Path) -> None:
    described = describe_log(read_jobs(tmp_path / "log.txt", [("a", 0, 10, "cpu=4,node=1,gres/gpu=2", "n1")]), "log.txt")
    (group,) = described.groups
    assert (group.gpus, group.kind) == (2, "MISC")
    assert group.remarks == ("guessed: the GPU model is not named, so kind is MISC; it sets the power of a GPU",)


def swf(path: Path, rows: list[tuple[int, int, int, int, int]], header: str = "") -> Loaded:
    """Rows of submit, wait, run, processors and queue."""
    lines = [f"{n} {s} {w} {r} {p} -1 -1 {p} -1 -1 1 1 1 -1 {q} -1 -1 -1" for n, (s, w, r, p, q) in enumerate(rows, 1)]
    path.write_text(header + "\n".join(lines), encoding="utf-8")
    return load_workload(path, options=ReadOptions(recorded=True))


def test_without_node_lists_the_most_in_use_at_once_is_taken(tmp_path: Path) -> None:
    rows = [(0, 0, 100, 3, 1), (0, 50, 100, 4, 1), (0, 100, 10, 2, 1), (5, 0, 10, 9, 2)]
    described = describe_log(swf(tmp_path / "log.swf", rows), "log.swf")
    assert [group.table() for group in described.groups] == [
        {"count": 1, "cpus": 7, "partition": "1", "name": "node"},
        {"count": 1, "cpus": 9, "partition": "2", "name": "node"},
    ]
    assert described.groups[0].remarks == ("the most in use at once: 7 cores",)


def test_what_the_header_says_comes_first(tmp_path: Path) -> None:
    loaded = swf(tmp_path / "log.swf", [(0, 0, 100, 3, 1)], "; MaxProcs: 64\n")
    cluster, remark = cluster_of_log(loaded, "log.swf")
    assert (cluster.num_cores, remark) == (64, "")
    assert describe_log(loaded, "log.swf").groups[0].cpus == 64


def test_nodes_of_guessed_size_hold_every_job(tmp_path: Path) -> None:
    """Four tasks of 20 cores need four nodes of 36 cores, although 80 cores would be three of them."""
    path = tmp_path / "jobs.csv"
    path.write_text(
        "submit,start,runtime,num_tasks,cpu_milli,gpu_milli\n0,0,10,4,20000,0\n20,20,10,1,36000,0\n40,40,10,9,1000,1000\n", encoding="utf-8"
    )
    loaded = load_workload(path, options=ReadOptions(recorded=True))
    described = describe_log(loaded, "jobs.csv")
    assert [group.table() for group in described.groups] == [{"count": 4, "gpus": 8, "kind": "MISC", "cpus": 36}]
    only_cores = Loaded(loaded.workload.take(slice(0, 2)), None, loaded.tally, "csv", loaded.recorded and loaded.recorded.take(slice(0, 2)))
    assert [group.table() for group in describe_log(only_cores, "jobs.csv").groups] == [{"count": 4, "cpus": 36, "name": "node"}]


@pytest.mark.parametrize(
    ("wait", "run", "error"), [(-1, 10, "neither describes its cluster nor records when its jobs started"), (0, 0, "ran longer than 0 s")]
)
def test_logs_that_show_no_use_are_refused(tmp_path: Path, wait: int, run: int, error: str) -> None:
    with pytest.raises(InputError, match=error) as refused:
        describe_log(swf(tmp_path / "log.swf", [(0, wait, run, 3, 1)]), "log.swf")
    assert refused.value.hint == "add --cluster NAME; see queuewise clusters"


def test_the_sacct_log(traces: Path) -> None:
    loaded = load_workload(traces / "slurm" / "xdmod_phillips_sacct.log.gz", options=ReadOptions(recorded=True, partitions=True))
    cluster, remark = cluster_of_log(loaded, "log")
    assert remark.startswith("no --cluster given: using what the jobs of the log had, 46 nodes, 372 cores, 2 GPUs, 3 partitions")
    assert [partition.name for partition in cluster.partitions] == ["focaccia", "crumpet", "black"]
    assert cluster.node_partitions.sum(axis=0).tolist() == [5, 40, 1]
