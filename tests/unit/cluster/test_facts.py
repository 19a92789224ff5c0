"""What logs tell of their clusters becomes clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from queuewise.cluster.cluster_loader import from_facts
from queuewise.workload import load_workload


@pytest.mark.parametrize(
    ("jobs", "table", "nodes", "gpus"),
    [
        ("alibaba/openb_pod_list_default.csv", "alibaba/openb_node_list_all_node.csv", 1_523, 6_212),
        ("alibaba/spot_v2026_jobs_1.csv.gz", "alibaba/spot_v2026_nodes.csv", 4_278, 10_412),
        ("alibaba/pai_v2020_tasks_sample.csv.gz", "alibaba/pai_machine_spec.csv", 1_897, 6_742),
        ("helios/venus_sample_cluster_log.csv", "helios/Venus_vc_config.csv", 135, 1_080),
    ],
)
def test_machine_lists_become_clusters_of_known_kinds(traces: Path, jobs: str, table: str, nodes: int, gpus: int) -> None:
    loaded = load_workload(traces / jobs, tables=[traces / table])
    assert loaded.cluster is not None
    cluster = from_facts(loaded.cluster)
    assert (cluster.num_nodes, cluster.num_gpus) == (nodes, gpus)
    wanted = {kind for kinds in loaded.workload.kind_sets for kind in kinds}
    assert wanted <= {kind.name for kind in cluster.kinds}


def test_kinds_that_openb_pods_ask_for_are_those_of_its_nodes(traces: Path) -> None:
    nodes = traces / "alibaba/openb_node_list_all_node.csv"
    loaded = load_workload(traces / "alibaba/openb_pod_list_gpuspec33.csv", tables=[nodes])
    assert loaded.cluster is not None
    kinds = {kind.name for kind in from_facts(loaded.cluster).kinds}
    assert all(set(allowed) <= kinds for allowed in loaded.workload.kind_sets)
    assert len(loaded.workload.kind_sets) > 5


def test_swf_header_becomes_a_flat_cluster(traces: Path) -> None:
    facts = load_workload(traces / "swf/lublin_256.swf.gz").cluster
    assert facts is not None
    cluster = from_facts(facts)
    assert (cluster.num_nodes, cluster.num_cores, cluster.num_gpus) == (1, 256, 0)
