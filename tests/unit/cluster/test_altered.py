"""Clusters with more and fewer nodes, nodes by name and pattern, and conditions with dates."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.altered import add_nodes, drain_nodes, fit_conditions, node_groups, parse_added, resize_group
from queuewise.cluster.cluster_loader import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions, Maintenance, Outage, load_conditions
from queuewise.cluster.node_selection import find_nodes
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.sizing import choose_group

TWO_KINDS = build(
    "mixed",
    [
        NodeGroup(count=3, cpus=20, partition="old", name="c20"),
        NodeGroup(count=4, cpus=24, mem_gib=64, partition="new", nodes_per_rack=2, name="c24", idle_watts=90),
    ],
)


def test_added_nodes_are_like_their_group_and_come_last() -> None:
    more = add_nodes(TWO_KINDS, 3, "c24")
    assert more.num_nodes == 10
    assert more.name == "mixed with 3 more c24"
    assert more.node_names[:7] == TWO_KINDS.node_names
    assert more.node_names[7:] == ("c24-1-4", "c24-1-5", "c24-1-6")
    assert more.node_cpu_milli[7:].tolist() == [24_000] * 3
    assert more.node_mem_mib[7:].tolist() == [64 * 1024] * 3
    assert more.node_idle_watts[7:].tolist() == [90] * 3
    np.testing.assert_array_equal(more.node_partitions[7:], TWO_KINDS.node_partitions[[3, 3, 3]])
    assert more.node_rack.tolist() == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4]  # two nodes per rack, as in the group


def test_a_group_in_one_rack_stays_in_it() -> None:
    assert add_nodes(TWO_KINDS, 2, "c20").node_rack[7:].tolist() == [0, 0]


def test_groups_grow_and_shrink() -> None:
    assert resize_group(TWO_KINDS, "c24", 4) is TWO_KINDS
    less = resize_group(TWO_KINDS, "c20", 1)
    assert less.node_names == ("c20-0-0", *TWO_KINDS.node_names[3:])
    assert len(node_groups(resize_group(TWO_KINDS, "c24", 9))["c24"]) == 9
    assert resize_group(load_cluster("flat:256"), "flat", 300).num_cores == 300


def test_nodes_of_one_name_that_differ_are_never_confused() -> None:
    """As those that are found in a log: their groups have numbers, and the name alone is no answer to the question which one."""
    found = build("log", [NodeGroup(count=1, cpus=12, gpus=2, kind="T4", name="cpn"), NodeGroup(count=3, cpus=8, name="cpn")])
    assert node_groups(found) == {"cpn-0": [0], "cpn-1": [1, 2, 3]}
    more = add_nodes(found, 2, "cpn-1")
    assert more.node_names[4:] == ("cpn-1-3", "cpn-1-4")
    assert more.node_cpu_milli[4:].tolist() == [8000, 8000]
    assert find_nodes(found, "cpn-1", "--drain") == [1, 2, 3]
    for alter in (lambda: add_nodes(found, 1, "cpn"), lambda: choose_group(found, "cpn")):
        with pytest.raises(InputError, match="the nodes of cpn differ") as raised:
            alter()
        assert raised.value.hint == "one of cpn-0 (1 node, 12 cores each, 2 GPUs each), cpn-1 (3 nodes, 8 cores each)"
    with pytest.raises(InputError, match="log has 2 groups of nodes"):
        choose_group(found, None)


@pytest.mark.parametrize(("entry", "nodes"), [(1, [1]), ("c20-0-2", [2]), ("c24", [3, 4, 5, 6]), ("c24-1-[01]", [3, 4]), ("*-0", [0, 3])])
def test_nodes_are_found_by_number_name_group_and_pattern(entry: int | str, nodes: list[int]) -> None:
    assert find_nodes(TWO_KINDS, entry, "x") == nodes


def test_unknown_nodes_are_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="did you mean 'c24'"):
        find_nodes(TWO_KINDS, "c42", "an outage")
    with pytest.raises(InputError, match="an outage names node 'd\\*'"):
        find_nodes(TWO_KINDS, "d*", "an outage")
    with pytest.raises(InputError, match="names node 7, but mixed has 7 nodes"):
        find_nodes(TWO_KINDS, 7, "an outage")
    with pytest.raises(InputError, match="unknown group of nodes of mixed 'c25'"):
        add_nodes(TWO_KINDS, 1, "c25")


@pytest.mark.parametrize("text", ["4", "c24:4", ":c24", "0:c24", "4:", "-1:c24"])
def test_added_nodes_are_written_as_number_and_group(text: str) -> None:
    with pytest.raises(InputError, match="is not N:GROUP"):
        parse_added(text)
    assert parse_added("4:c24") == (4, "c24")


def test_outages_and_maintenance_take_names() -> None:
    conditions = Conditions(
        outages=(Outage(node="c20-*", start=5, end=9),), maintenance=(Maintenance(nodes=("c24-1-0", 4), start=20, end=30),)
    )
    found = conditions.outages_on(TWO_KINDS, 0.0, 100.0)
    assert [(outage.node, outage.start) for outage in found] == [(0, 5), (1, 5), (2, 5), (3, 20), (4, 20)]


def test_drained_nodes_take_nothing_for_good() -> None:
    (first, second) = drain_nodes(PERFECT, TWO_KINDS, ["c24-1-[12]"], 7.0).outages_on(TWO_KINDS, 7.0, 100.0)
    assert (first.node, second.node, first.kind, first.start, first.end) == (4, 5, "drain", 7.0, float("inf"))


def test_dates_are_on_the_clock_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text(
        "[[outages]]\nnode = 'c20-*'\nstart = 2024-03-01T08:00:00\nend = '2024-03-01 10:00'\n"
        "[[maintenance]]\nnodes = [0]\nstart = 2024-03-02\nend = 2024-03-02T01:00:00+01:00\n"
    )
    path.write_text(path.read_text().replace("T01:00:00+01:00", "T03:00:00+01:00"))
    midnight = datetime(2024, 3, 1, tzinfo=UTC).timestamp()
    conditions = load_conditions(path, epoch=midnight)
    assert (conditions.outages[0].start, conditions.outages[0].end) == (8 * 3600, 10 * 3600)
    assert (conditions.maintenance[0].start, conditions.maintenance[0].end) == (24 * 3600, 26 * 3600)


def test_dates_need_a_log_with_dates(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text("[[outages]]\nnode = 0\nstart = 2024-03-01T08:00:00\nend = inf\n")
    with pytest.raises(InputError, match="start is a date, but the dates of the log are unknown") as raised:
        load_conditions(path)
    assert raised.value.where == f"{path}:3"


WORLD = Conditions(
    outages=(Outage(node="c20-0-2", start=5, end=9), Outage(node=3, start=5, end=float("inf")), Outage(node="c20", start=30, end=40)),
    maintenance=(Maintenance(nodes=("c20-0-1", "c24-1-3"), start=20, end=30, notice_s=4),),
    reservations=(
        Reservation(nodes=("c20",), count=3, start=100, end=110, users=("a",)),
        Reservation(nodes=("c20-0-2",), start=100, duration_s=10, users=("a",)),
    ),
)


def test_conditions_follow_a_cluster_of_another_size() -> None:
    """Node 3 is the first of c24, and stays that one when nodes before it are taken away."""
    less = resize_group(TWO_KINDS, "c20", 1)
    fitted = fit_conditions(WORLD.model_copy(update={"reservations": WORLD.reservations[:1]}), TWO_KINDS, less)
    found = [(less.node_names[int(one.node)], one.start) for one in fitted.outages_on(less, 0.0, 100.0)]
    assert found == [("c24-1-0", 5), ("c24-1-3", 16), ("c24-1-3", 20), ("c20-0-0", 30)]
    assert [held.nodes for held in fitted.held_on(less)] == [(0,)]
    assert fit_conditions(WORLD, TWO_KINDS, less).reservations[1:] == ()
    with pytest.raises(InputError, match="names node 'c42'"):
        fit_conditions(Conditions(outages=(Outage(node="c42", start=0, end=1),)), TWO_KINDS, less)


def test_conditions_move_with_the_load() -> None:
    twice = WORLD.stretched(4.0, 0.5)
    assert [(one.start, one.end) for one in twice.outages] == [(4.5, 6.5), (4.5, float("inf")), (17.0, 22.0)]
    assert (twice.maintenance[0].start, twice.maintenance[0].end, twice.maintenance[0].notice_s) == (12.0, 17.0, 2.0)
    assert [(one.start, one.until) for one in twice.reservations] == [(52.0, 57.0), (52.0, 57.0)]
