"""Names, presets and files become clusters; what is wrong with a file is said in one sentence."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from queuewise.cluster import NodeGroup, build, load_cluster, preset_names
from queuewise.cluster.cluster_loader import SHAPES, from_facts
from queuewise.cluster.spec import NO_GPU, UNLIMITED, Cluster
from queuewise.errors import InputError
from queuewise.workload.loaded import ClusterFacts, NodeFacts


def write(folder: Path, text: str) -> str:
    path = folder / "lab.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


def sorts_of_nodes(cluster: Cluster) -> Counter[tuple[str, int, int, int]]:
    kinds = [cluster.kinds[kind].name if kind != NO_GPU else "" for kind in cluster.node_kind]
    return Counter(zip(kinds, cluster.node_gpus.tolist(), cluster.node_cpu_milli.tolist(), cluster.node_mem_mib.tolist(), strict=True))


# Presets against published totals

PUBLISHED = {  # nodes, GPUs: see docs/clusters.md for the sources
    "philly": (552, 2490),
    "venus": (135, 1080),
    "pai": (1897, 6742),
    "openb": (1523, 6212),
    "rltune-helios": (17, 136),
    "rltune-philly": (36, 192),
    "rltune-alibaba": (49, 254),
    "hetero56": (10, 56),
    "farm50": (50, 0),
    "farm500": (500, 0),
}


def test_presets_are_those_with_published_totals() -> None:
    assert preset_names() == sorted(PUBLISHED)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_preset_has_its_published_totals_and_says_where_from(name: str) -> None:
    cluster = load_cluster(name)
    assert (cluster.num_nodes, cluster.num_gpus) == PUBLISHED[name]
    assert cluster.name == name
    assert len(cluster.notes) > 40
    assert len(set(cluster.node_names)) == cluster.num_nodes


def test_hetero56_speeds_follow_the_published_tflops() -> None:
    cluster = load_cluster("hetero56")
    gpus = {kind.name: int(cluster.node_gpus[cluster.node_kind == k].sum()) for k, kind in enumerate(cluster.kinds)}
    assert gpus == {"A100-40": 16, "V100-16": 16, "T4": 12, "RTX4090": 12}
    assert cluster.speed.tolist() == [19.5 / 15.7, 1.0, 8.1 / 15.7, 82.6 / 15.7]


def test_rltune_pools_have_the_published_shapes() -> None:
    helios = load_cluster("rltune-helios")
    assert helios.node_partitions.sum(axis=0).tolist() == [6, 4, 3, 2, 2]
    alibaba = load_cluster("rltune-alibaba")
    shapes = {kind.name: sorted(alibaba.node_gpus[alibaba.node_kind == k].tolist()) for k, kind in enumerate(alibaba.kinds)}
    assert shapes == {"T4": [2] * 8, "MISC": [8] * 8, "P100": [2] * 15, "V100-16": [8] * 10, "V100-32": [8] * 8}


def test_venus_partitions_are_its_virtual_clusters(traces: Path) -> None:
    with (traces / "helios" / "Venus_vc_config.csv").open(encoding="utf-8") as rows:
        published = {row[""]: int(row["num"]) for row in csv.DictReader(rows)}
    cluster = load_cluster("venus")
    counts = cluster.node_partitions.sum(axis=0)
    assert {partition.name: int(counts[p]) for p, partition in enumerate(cluster.partitions)} == published


def test_openb_holds_exactly_the_nodes_of_its_list(traces: Path) -> None:
    from queuewise.cluster import gpu_kind

    with (traces / "alibaba" / "openb_node_list_all_node.csv").open(encoding="utf-8") as rows:
        published = Counter(
            (gpu_kind(row["model"]).name if row["model"] else "", int(row["gpu"]), int(row["cpu_milli"]), int(row["memory_mib"]))
            for row in csv.DictReader(rows)
        )
    assert sorts_of_nodes(load_cluster("openb")) == published


def test_pai_holds_exactly_the_machines_of_its_table(traces: Path) -> None:
    from queuewise.cluster import gpu_kind

    with (traces / "alibaba" / "pai_machine_spec.csv").open(encoding="utf-8") as rows:
        published = Counter(
            (gpu_kind(kind).name if int(gpus) else "", int(gpus), int(cpus) * 1000, int(mem) * 1024)
            for _, kind, cpus, mem, gpus in csv.reader(rows)
        )
    assert sorts_of_nodes(load_cluster("pai")) == published


def test_docs_list_exactly_the_presets(repository: Path) -> None:
    table = (repository / "docs" / "clusters.md").read_text(encoding="utf-8").split("## Presets")[1].split("## GPU catalogue")[0]
    documented = [[cell.strip() for cell in line.strip("|").split("|")][:6] for line in table.splitlines() if line.startswith("| `")]
    actual = []
    for name in preset_names():
        cluster = load_cluster(name)
        cores = "–" if cluster.num_cores == float("inf") else f"{cluster.num_cores:,.0f}"
        kinds = ", ".join(kind.name for kind in cluster.kinds)
        actual.append([f"`{name}`", f"{cluster.num_nodes:,}", f"{cluster.num_gpus:,}", cores, str(len(cluster.partitions)), kinds])
    assert documented == actual


# Shapes


def test_flat_is_one_node_of_cores() -> None:
    cluster = load_cluster("flat:256")
    assert (cluster.num_nodes, cluster.num_gpus, cluster.num_cores) == (1, 0, 256.0)
    assert cluster.node_kind.tolist() == [NO_GPU]
    assert cluster.node_mem_mib.tolist() == [UNLIMITED]


def test_nodes_by_gpus_of_a_kind() -> None:
    cluster = load_cluster("250x8:v100")
    assert (cluster.num_nodes, cluster.num_gpus) == (250, 2000)
    assert [kind.name for kind in cluster.kinds] == ["V100-16"]
    assert set(cluster.node_cpu_milli.tolist()) == {UNLIMITED}


@pytest.mark.parametrize("name", ["flat:0", "0x8:T4", "8x0:T4", "flat:99999999999999"])
def test_impossible_sizes_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="is not between 1 and"):
        load_cluster(name)


def test_more_gpus_than_a_node_can_hold_are_refused() -> None:
    with pytest.raises(InputError, match="64 GPUs per node are too many"):
        load_cluster("2x64:T4")


def test_unknown_name_suggests_the_nearest_preset_and_lists_the_shapes() -> None:
    with pytest.raises(InputError, match="did you mean 'philly'") as caught:
        load_cluster("phily")
    assert all(shape in caught.value.hint for shape in SHAPES)


# Files


def test_the_example_of_the_docs_loads_as_described(repository: Path, tmp_path: Path) -> None:
    example = (repository / "docs" / "clusters.md").read_text(encoding="utf-8").split("```toml")[1].split("```")[0]
    cluster = load_cluster(write(tmp_path, example))
    assert (cluster.name, cluster.num_nodes, cluster.num_gpus) == ("lab", 56, 128)
    assert [p.name for p in cluster.partitions] == ["train", "cpu"]
    assert cluster.num_cores == 16 * 128 + 40 * 64
    assert cluster.node_rack[[0, 3, 4, 15, 16, 55]].tolist() == [0, 0, 1, 3, 4, 4]
    assert (cluster.node_penalty, cluster.rack_penalty, cluster.speed.tolist()) == (0.05, 0.10, [2.0])
    assert cluster.node_idle_watts[[0, 16]].tolist() == [350.0, 0.0]
    assert cluster.node_names[0] == "dgx-0-0"
    assert [(vc.name, vc.guaranteed_gpus, vc.max_gpus) for vc in cluster.virtual_clusters] == [("vision", 64.0, 96.0)]


def test_nodes_may_be_in_several_partitions(tmp_path: Path) -> None:
    text = '[[nodes]]\ncount = 1\ncpus = 4\npartition = "b"\n[[nodes]]\ncount = 2\ncpus = 4\npartitions = ["a", "b"]\n'
    cluster = load_cluster(write(tmp_path, text))
    assert [p.name for p in cluster.partitions] == ["b", "a"]
    assert cluster.node_partitions.tolist() == [[True, False], [True, True], [True, True]]
    assert cluster.nodes_in(["a"]).tolist() == [False, True, True]
    assert cluster.nodes_in(["b", "nowhere"]).all()
    assert not cluster.nodes_in(["nowhere"]).any()


BAD_FILES = {  # file -> line and problem
    "": (1, "has no nodes"),
    "[[nodes]]\ncount = 0\ncpus = 4": (1, "has no nodes"),
    "[[nodes]]\ncount = 2\ncpus = 4\ngpuss = 3": (4, r"unknown key nodes\[0\]\.gpuss \(hint: did you mean 'gpus'\?"),
    "node_penalti = 1\n[[nodes]]\ncount = 1\ncpus = 1": (1, "unknown key node_penalti .*did you mean 'node_penalty'"),
    "name = 'x'\n[[nodes]]\ncpus = 4": (2, r"nodes\[0\]\.count is missing"),
    "[[nodes]]\ncount = -1\ncpus = 4": (2, r"nodes\[0\]\.count = -1: must be at least 0"),
    "[[nodes]]\ncount = 1\ncpus = 4\n\n[[nodes]]\n# two\ncount = 'two'": (7, r"nodes\[1\]\.count = 'two': must be a whole number"),
    "[[nodes]]\ncount = 1\ncpus = nan": (3, r"nodes\[0\]\.cpus = nan"),
    "[[nodes]]\ncount = 1\ngpus = 2": (1, "nodes with GPUs need a kind"),
    "[[nodes]]\ncount = 1\ncpus = 1\n[[nodes]]\ncount = 1\ngpus = 2\nkind = 'V10O'": (4, "unknown GPU kind 'V10O' .*did you mean 'V100-"),
    "[[nodes]]\ncount = 1": (1, "the nodes have no resources"),
    "\n[speeds]\nT4 = 2.0\n[[nodes]]\ncount = 1\ngpus = 2\nkind = 'P100'": (2, "unknown GPU kind in speeds 'T4'"),
    "[speeds]\nP100 = 0.0\n[[nodes]]\ncount = 1\ngpus = 2\nkind = 'P100'": (1, "speeds must be positive"),
    "speeds.P100 = 'fast'\n[[nodes]]\ncount = 1\ngpus = 2\nkind = 'P100'": (1, r"speeds\.P100 = 'fast'"),
    "name = 'x'\nnodes = [{count = 1}, {count = 'a'}]": (2, r"nodes\[1\]\.count = 'a'"),
    "[[nodes]]\ncount = 1\ncpus = 1\npartition = 'a'\npartitions = ['a', 'b']": (1, "both partition and partitions are given"),
    "[[nodes]]\ncount = 1\ncpus = 1\npartition = 'a,b'": (1, "'a,b' is no name of a partition"),
    "[[nodes]]\ncount = 1\ncpus = 1\npartitions = ['a', '']": (1, "'' is no name of a partition"),
    "nodes = 3": (1, "nodes = 3: must be a list"),
    "name = 'x'\ncount = ": (2, "is not valid TOML"),
    "\nname = 'x'\ncount = = 1\n": (3, "is not valid TOML"),
}


@pytest.mark.parametrize(("text", "problem"), BAD_FILES.items(), ids=range(len(BAD_FILES)))
def test_bad_file_is_refused_naming_the_line_and_the_problem(tmp_path: Path, text: str, problem: tuple[int, str]) -> None:
    line, message = problem
    with pytest.raises(InputError, match=message) as caught:
        load_cluster(write(tmp_path, text))
    assert caught.value.where == f"{tmp_path / 'lab.toml'}:{line}"
    assert caught.value.hint


def test_missing_folder_and_binary_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        load_cluster(str(tmp_path / "absent.toml"))
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(InputError, match="is a folder"):
        load_cluster(str(tmp_path / "folder.toml"))
    (tmp_path / "latin.toml").write_bytes(b'name = "caf\xe9"')
    with pytest.raises(InputError, match=r"not UTF-8 text \(byte 11\)"):
        load_cluster(str(tmp_path / "latin.toml"))


# Building


def test_groups_keep_their_order_and_spellings_of_one_kind_are_one_kind() -> None:
    cluster = build(
        "two", [NodeGroup(1, gpus=1, kind="V100M16"), NodeGroup(2, gpus=4, kind="V100"), NodeGroup(1, cpus=8)], speeds={"V100": 2.0}
    )
    assert cluster.node_gpus.tolist() == [1, 4, 4, 0]
    assert cluster.node_kind.tolist() == [0, 0, 0, NO_GPU]
    assert cluster.speed.tolist() == [2.0]


def test_negative_penalty_is_refused() -> None:
    with pytest.raises(InputError, match="penalties must be between 0 and 1,000,000"):
        build("odd", [NodeGroup(1, cpus=1)], rack_penalty=-0.1)


def test_facts_of_a_log_become_a_cluster() -> None:
    cluster = from_facts(
        ClusterFacts("log", (NodeFacts(3, gpus=2, kind="P100", cpus=8, partition="a"), NodeFacts(1, cpus=4, partition="b")), "told")
    )
    assert (cluster.name, cluster.num_nodes, cluster.num_gpus, cluster.num_cores, cluster.notes) == ("log", 4, 6, 28.0, "told")
    assert [p.name for p in cluster.partitions] == ["a", "b"]
