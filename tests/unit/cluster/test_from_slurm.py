"""The nodes of a Slurm cluster, from both forms of its output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.from_slurm import describe_slurm
from queuewise.errors import InputError

NODE = """NodeName={name} Arch=x86_64 CoresPerSocket=16
   CPUAlloc=0 CPUEfctv={cpus} CPUTot={cpus} CPULoad=0.00
   AvailableFeatures=(null)
   Gres={gres}
   NodeAddr={name} NodeHostName={name} Version=24.05.6
   OS=Linux 4.18.0 #1 SMP Fri May 24 13:05:10 UTC 2024
   RealMemory={mem} AllocMem=0 FreeMem=511456 Sockets=2 Boards=1
   State={state} ThreadsPerCore=2 TmpDisk=0 Weight=1 Owner=N/A
   Partitions={partitions}
   CfgTRES=cpu={cpus},mem={mem}M,billing=64
   AllocTRES=
   Reason=Not responding [slurm@2026-01-01T00:00:00]
"""


def node(name: str, cpus: int, mem: int, gres: str, partitions: str, state: str = "IDLE") -> str:
    return NODE.format(name=name, cpus=cpus, mem=mem, gres=gres, partitions=partitions, state=state)


def described(tmp_path: Path, text: str) -> Any:
    path = tmp_path / "site.txt"
    path.write_text(text, encoding="utf-8")
    return describe_slurm(path)


def test_scontrol_show_node(tmp_path: Path) -> None:
    text = "\n".join([
        node("n1", 64, 515317, "(null)", "cpu"),
        node("n2", 64, 515317, "(null)", "cpu", "DOWN*+DRAIN"),
        node("g1", 96, 1024, "gpu:a100:8(S:0-1)", "gpu,all"),
        node("x1", 8, 1, "gpu:4", "gpu", "MIXED"),
        node("x2", 8, 1, "gpu:4", "gpu", "IDLE+CLOUD+POWERED_DOWN"),
    ])  # fmt: skip
    found = described(tmp_path, text)
    assert [group.table() for group in found.groups] == [
        {"count": 2, "cpus": 64, "mem_gib": 515317 / 1024, "partition": "cpu", "name": "n"},
        {"count": 1, "gpus": 8, "kind": "A100-40", "cpus": 96, "mem_gib": 1, "partitions": ["all", "gpu"], "name": "g"},
        {"count": 2, "gpus": 4, "kind": "MISC", "cpus": 8, "partition": "gpu", "name": "x"},
    ]
    assert found.groups[2].remarks == (
        "guessed: the GPU model is not named, so kind is MISC; it sets the power of a GPU",
        "RealMemory is not configured, so memory is never the bottleneck",
    )
    assert found.remarks[-1] == "down or drained, and included: n2 (1 of 5 nodes)"


def test_one_line_records_and_memory_to_the_last_mib(tmp_path: Path) -> None:
    """`scontrol -o show node` prints a node per line."""
    lines = [" ".join(node(name, 64, 515317, "(null)", "cpu").split()) for name in ("n1", "n2")]
    found = described(tmp_path, "\n".join(lines))
    (tmp_path / "site.toml").write_text(found.toml(), encoding="utf-8")
    cluster = load_cluster(str(tmp_path / "site.toml"))
    assert (cluster.node_cpu_milli.tolist(), cluster.node_mem_mib.tolist()) == ([64000, 64000], [515317, 515317])


def test_sinfo_json_of_slurm_22_05(tmp_path: Path) -> None:
    rows = [
        {"name": "g1", "cpus": 16, "real_memory": 64000, "gres": "gpu:v100:2,gpu:t4:1", "partitions": ["b", "a"], "state": "idle"},
        {
            "name": "n1",
            "cpus": {"set": True, "infinite": False, "number": 4},
            "real_memory": 0,
            "gres": "",
            "partitions": [],
            "state": ["DOWN"],
        },
    ]
    found = described(tmp_path, json.dumps({"meta": {}, "nodes": rows}))
    assert [group.table() for group in found.groups] == [
        {"count": 1, "gpus": 3, "kind": "V100-16", "cpus": 16, "mem_gib": 62.5, "partitions": ["a", "b"], "name": "g"},
        {"count": 1, "cpus": 4, "name": "n"},
    ]
    assert "guessed: the nodes have GPUs of several kinds (v100, t4), all are taken as the first" in found.groups[0].remarks
    assert "the nodes are in no partition; Queuewise puts them into the partition default" in found.groups[1].remarks


def test_sinfo_json_of_newer_versions_lists_partitions(tmp_path: Path) -> None:
    def entry(names: list[str], partition: str) -> dict[str, Any]:
        return {
            "node": {"state": ["IDLE"]}, "nodes": {"total": len(names), "nodes": names}, "cpus": {"minimum": 128, "maximum": 128},
            "memory": {"minimum": 510000, "maximum": 510000}, "gres": {"total": "gpu:rtx_3090:8"}, "partition": {"name": partition},
        }  # fmt: skip

    found = described(tmp_path, json.dumps({"sinfo": [entry(["n[31-32]"], "gpu"), entry(["n32"], "debug")]}))
    assert [group.table() for group in found.groups] == [
        {"count": 1, "gpus": 8, "kind": "RTX3090", "cpus": 128, "mem_gib": 510000 / 1024, "partition": "gpu", "name": "n"},
        {"count": 1, "gpus": 8, "kind": "RTX3090", "cpus": 128, "mem_gib": 510000 / 1024, "partitions": ["debug", "gpu"], "name": "n"},
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("PARTITION AVAIL TIMELIMIT\n", "no line begins with NodeName="),
        ("NodeName=n1 State=IDLE\n", "node 'n1' has no CPUTot"),
        ('{"nodes": ', "not valid JSON"),
        ('{"jobs": []}', 'the JSON has no list "nodes" or "sinfo"'),
        ('{"nodes": []}', "the JSON lists no node"),
        ('{"nodes": [{"cpus": 4}]}', "node '' has no name or no CPUs"),
    ],
)
def test_other_files_are_refused_with_what_was_expected(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(InputError, match=error) as refused:
        described(tmp_path, text)
    assert refused.value.hint == "expected the output of scontrol show node or of sinfo --json"
