"""Conditions: what a file may say, and what is refused."""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Literal

import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions, Failures, Maintenance, Outage, Preemption, load_conditions, node_changes
from queuewise.errors import InputError

CLUSTER = load_cluster("4x8:V100-16")


def on_cluster(conditions: Conditions) -> tuple[Outage, ...]:
    return conditions.outages_on(CLUSTER, 0.0, 1000.0)


def test_a_file_says_all_of_it(tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text(
        'requeue = false\n[preemption]\nmode = "kill"\nrestart_s = 30\ncheckpoint_every_s = 600\nkind_factor = {T4 = 2.0}\n'
        '[[outages]]\nnode = 1\nstart = 10\nend = 20\nkind = "drain"\n[failures]\nmtbf_h = 100\nmttr_h = 2\n'
    )
    conditions = load_conditions(path)
    assert conditions.preemption.mode == "kill"
    assert conditions.preemption.kind_factor == {"T4": 2.0}
    assert conditions.outages == (Outage(node=1, start=10, end=20, kind="drain"),)
    assert not conditions.requeue


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[preemption]\nmod = 'kill'\n", "mode"),
        ("[preemption]\nrestart_s = -1\n", "restart_s"),
        ("[[outages]]\nnode = 0\nstart = 5\nend = 5\n", "ends at 5"),
        ("[failures]\nmtbf_h = 0\nmttr_h = 1\n", "mtbf_h"),
        ("[power]\nsleep_after_s = -1\n", "sleep_after_s"),
        ("[power]\nwake_s = inf\n", "wake_s"),
        ("[power]\nsleep_after = 5\n", "sleep_after_s"),
        ("[power]\nprice_by_hour = [1.0, 2.0]\n", "24 finite numbers"),
    ],
)
def test_nonsense_in_a_file_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "world.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message) as raised:
        load_conditions(path)
    assert str(path) in str(raised.value)


def test_outages_of_a_node_may_overlap() -> None:
    outages = (Outage(node=2, start=9, end=12, kind="drain"), Outage(node=2, start=0, end=10))
    assert on_cluster(Conditions(outages=outages)) == (outages[1], outages[0])


F, D = "fail", "drain"


@pytest.mark.parametrize(
    ("outages", "changes"),
    [
        ([(F, 0, 10), (F, 5, 8)], [(0, "fail"), (10, "repair")]),  # one inside the other
        ([(F, 0, 10), (F, 5, 15)], [(0, "fail"), (15, "repair")]),
        ([(F, 0, 10), (F, 10, 15)], [(0, "fail"), (15, "repair")]),  # one after the other: closed without a break
        ([(F, 0, 10), (F, 11, 15)], [(0, "fail"), (10, "repair"), (11, "fail"), (15, "repair")]),
        ([(D, 0, 10), (F, 4, 6)], [(0, "drain"), (4, "fail"), (10, "repair")]),  # a failure during a drain
        ([(D, 0, 10), (F, 4, 6), (F, 7, 9)], [(0, "drain"), (4, "fail"), (7, "fail"), (10, "repair")]),
        ([(D, 0, 10), (F, 10, 20)], [(0, "drain"), (10, "fail"), (20, "repair")]),  # maintenance after notice
        ([(D, 0, 10), (F, 4, 20)], [(0, "drain"), (4, "fail"), (20, "repair")]),
        ([(F, 0, 10), (D, 4, 20)], [(0, "fail"), (20, "repair")]),
        ([(F, 0, 10), (D, 0, 20)], [(0, "fail"), (20, "repair")]),
        ([(D, 0, 10), (D, 3, 12)], [(0, "drain"), (12, "repair")]),
        ([(D, 0, 10), (F, 4, math.inf), (F, 6, 8)], [(0, "drain"), (4, "fail")]),  # never repaired
    ],
)
def test_overlapping_outages_are_united(
    outages: list[tuple[Literal["fail", "drain"], float, float]], changes: list[tuple[float, str]]
) -> None:
    written = [Outage(node=1, start=start, end=end, kind=kind) for kind, start, end in outages]
    other = Outage(node=0, start=3, end=5)  # a node of its own
    for order in itertools.permutations([*written, other]):
        found = sorted(node_changes(order))
        assert [(change.time, change.kind) for change in found if change.node == 1] == changes
        assert [change for change in found if change.node == 0] == [(3, "fail", 0), (5, "repair", 0)]


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="an outage names node 4, but 4x8:V100-16 has 4 nodes"):
        on_cluster(Conditions(outages=(Outage(node=4, start=0, end=1),)))


def test_maintenance_is_a_drain_and_then_a_failure() -> None:
    window = Maintenance(nodes=(0, 3), start=100, end=200, notice_s=40)
    assert on_cluster(Conditions(maintenance=(window,))) == (
        Outage(node=0, start=60, end=100, kind="drain"),
        Outage(node=3, start=60, end=100, kind="drain"),
        Outage(node=0, start=100, end=200),
        Outage(node=3, start=100, end=200),
    )


def test_random_failures_follow_seed_and_rates() -> None:
    world = Conditions(failures=Failures(mtbf_h=24, mttr_h=1, seed=5))
    found = on_cluster(world)
    assert found == on_cluster(world)
    assert found != on_cluster(Conditions(failures=Failures(mtbf_h=24, mttr_h=1, seed=6)))
    assert {outage.node for outage in found} == {0, 1, 2, 3}
    down = sum(outage.end - outage.start for outage in found)
    expected_failures = 4 * 365 * 24 / 25  # a node fails once in mtbf + mttr hours
    assert len(found) == pytest.approx(expected_failures, rel=0.1)
    assert down / len(found) == pytest.approx(3600, rel=0.1)


def test_failures_without_end_are_refused() -> None:
    with pytest.raises(InputError, match="failures of a node every 1e-09 h would be 17,520,555,555,556 outages"):
        on_cluster(Conditions(failures=Failures(mtbf_h=1e-9, mttr_h=1e-9)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[maintenance]]\nnodes = [0]\nstart = 100\nend = 50", "maintenance ends at 50, not after its start at 100"),
        ("[[maintenance]]\nnodes = []\nstart = 1\nend = 50", "nodes"),
        ('requeue = "yes"', "requeue"),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "conditions.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        load_conditions(path)


def test_costs_of_an_unknown_kind_are_refused() -> None:
    cluster = load_cluster("2x4:V100-16")
    assert Preemption(kind_factor={"V100-16": 1.5}).factors_on(cluster).tolist() == [1.5, 1.0]
    assert Preemption(kind_factor={"T4": 1.5}).factors_on(cluster).tolist() == [1.0, 1.0]  # a file for several clusters
    with pytest.raises(InputError, match="V10"):
        Preemption(kind_factor={"V10": 1.5}).factors_on(cluster)
