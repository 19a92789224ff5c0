"""How many nodes a target needs: targets as text, and the search."""

from __future__ import annotations

import pytest

from queuewise.cluster.cluster_loader import load_cluster
from queuewise.cluster.spec import Cluster, NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.sizing import find_size, parse_target
from queuewise.sim.core.schedule import Schedule
from stand_in import busy_days, line_up

JOBS = busy_days(120, num_gpus=16)


def replay(cluster: Cluster) -> Schedule:
    return line_up(JOBS, cluster, "line")


def test_the_smallest_size_that_meets_the_target_is_found() -> None:
    cluster = load_cluster("2x8:V100-16")
    found = find_size(cluster, parse_target("mean wait < 20m"), replay)
    values = {point.nodes: point for point in found.curve}
    assert found.nodes is not None
    assert (found.now, found.unit, found.group) == (2, "nodes", "V100-16")
    assert values[found.nodes].meets
    assert values[found.nodes].value == pytest.approx(float(replay(load_cluster(f"{found.nodes}x8:V100-16")).first_wait.mean()))
    assert not values[found.nodes - 1].meets
    assert [point["nodes"] for point in found.as_json()["curve"]] == sorted(values)


def test_fewer_nodes_are_found_too_and_jobs_that_no_longer_fit_count() -> None:
    """One node of 8 GPUs is the least on which all jobs run, whatever they wait."""
    found = find_size(load_cluster("5x8:V100-16"), parse_target("max wait < 900d"), replay)
    assert found.nodes == 1
    by_gpu = find_size(load_cluster("32x1:V100-16"), parse_target("max wait < 900d"), replay)
    assert by_gpu.nodes == 8


def test_a_small_cluster_that_rejects_jobs_does_not_meet_the_target() -> None:
    """On four GPUs the jobs of eight are rejected, and the others hardly wait: they need eight as well."""
    found = find_size(load_cluster("4x1:V100-16"), parse_target("max wait < 900d"), replay)
    points = {point.nodes: point for point in found.curve}
    assert found.nodes == 8
    assert points[4].rejected > 0
    assert not points[4].meets
    assert "rejected" in points[4].never_ran[0]
    assert found.answer.rejected == 0
    assert found.as_json()["curve"][0]["rejected"] == points[min(points)].rejected


def test_jobs_that_no_size_can_run_are_counted() -> None:
    wide = JOBS.replace(num_tasks=JOBS.num_tasks * 0 + 10_000)
    found = find_size(load_cluster("4x1:V100-16"), parse_target("mean wait < 1h"), lambda cluster: line_up(wide, cluster, "line"))
    assert found.nodes is None
    assert found.answer.rejected == len(JOBS)


def test_a_target_that_nothing_meets_is_said_so() -> None:
    found = find_size(load_cluster("2x8:V100-16"), parse_target("p99 bounded slowdown < 0.5"), replay)
    assert found.nodes is None
    assert found.as_json()["nodes"] is None
    assert found.curve[-1].nodes == 128


def test_one_of_several_groups_has_to_be_named() -> None:
    mixed = build("mixed", [NodeGroup(count=1, gpus=8, kind="V100-16", name="a"), NodeGroup(count=1, gpus=8, kind="V100-16", name="b")])
    with pytest.raises(InputError, match="2 groups of nodes") as raised:
        find_size(mixed, parse_target("mean wait < 1h"), replay)
    assert "--group a | b" in raised.value.hint
    assert find_size(mixed, parse_target("mean wait < 900d"), replay, group="b").group == "b"


@pytest.mark.parametrize(
    ("text", "figure", "quantile", "limit"),
    [
        ("p90 wait < 1h", "wait_s", 0.9, 3600),
        ("Mean Wait <= 30m", "wait_s", None, 1800),
        ("median jct<2d", "jct_s", 0.5, 172_800),
        ("p99.9 bounded slowdown < 20", "bounded_slowdown", 0.999, 20),
        ("max bsld < 5", "bounded_slowdown", 1.0, 5),
    ],
)
def test_targets_are_read(text: str, figure: str, quantile: float | None, limit: float) -> None:
    target = parse_target(text)
    assert (target.figure, target.limit) == (figure, limit)
    assert target.quantile == (None if quantile is None else pytest.approx(quantile))
    assert target.holds(limit) == ("<=" in text)
    assert not target.holds(1.001 * limit)


@pytest.mark.parametrize(
    "text",
    [
        "wait < 1h",
        "p90 wait > 1h",
        "p90 wait",
        "p90 weight < 1h",
        "p90 wait < soon",
        "p90 slowdown < many",
        "",
        "p90 bsld < inf",
        f"p90 {' ' * 20_000}!",
    ],
)
def test_other_texts_are_refused_at_once(text: str) -> None:
    with pytest.raises(InputError):
        parse_target(text)
