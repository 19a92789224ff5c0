"""Reservations: who is a member, what is refused, and what is counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster import load_cluster
from queuewise.cluster.accounts import Account, Fairness
from queuewise.cluster.conditions import Conditions, load_conditions
from queuewise.cluster.reservations import Reservation
from queuewise.cluster.spec import NodeGroup, build
from queuewise.errors import InputError
from queuewise.evaluation.jobs_table import jobs_table, pieces_table, schedule_facts, schedule_from
from queuewise.evaluation.measure import measure
from queuewise.evaluation.metrics import METRICS
from queuewise.policies import simulate
from queuewise.sim.core.schedule import QUEUED, Schedule
from queuewise.workload.jobs import Workload

CLUSTER = build("rooms", [NodeGroup(2, gpus=1, kind="T4", name="a"), NodeGroup(2, gpus=1, kind="T4", name="b", partition="night")])


def jobs(*owners: tuple[int, int], runtime: float = 5.0) -> Workload:
    """Jobs of one GPU by (user, account), all submitted at 0."""
    user, group = np.array(owners, np.int32).T
    num = len(owners)
    return Workload(
        np.zeros(num), np.full(num, runtime), np.ones(num, np.int32), np.full(num, 1000, np.int32), user=user, users=("ann", "bob"),
        group=group, groups=("lab", "team"),
    )  # fmt: skip


def reserved(**values: object) -> Conditions:
    fields = {"nodes": (0, 1, 2, 3), "start": 0, "end": 100, "users": ("ann",)} | values
    return Conditions(reservations=(Reservation(**fields),))  # type: ignore[arg-type]


def starts(workload: Workload, conditions: Conditions, policy: str = "fcfs+greedy") -> list[float]:
    found: list[float] = simulate(workload, CLUSTER, policy, estimates="oracle", conditions=conditions).start.tolist()
    return found


@pytest.mark.parametrize(
    ("values", "nodes"),
    [
        ({"nodes": (3, 1)}, (1, 3)),
        ({"nodes": ("a-0-1", "b")}, (1, 2, 3)),
        ({"nodes": (), "partition": "night"}, (2, 3)),
        ({"nodes": (), "count": 3}, (0, 1, 2)),
        ({"nodes": ("b", "a-0-0"), "count": 2}, (0, 2)),
        ({"nodes": (), "partition": "night", "count": 1}, (2,)),
    ],
)
def test_nodes_by_number_name_group_partition_and_count(values: dict[str, object], nodes: tuple[int, ...]) -> None:
    (held,) = reserved(**values).held_on(CLUSTER)
    assert held.nodes == nodes


def test_members_by_user_and_by_account_and_its_children() -> None:
    workload = jobs((0, 1), (1, 0), (1, 1), (-1, -1))
    assert starts(workload, reserved()) == [0, 100, 100, 100]
    assert starts(workload, reserved(users=(), accounts=("lab",))) == [100, 0, 100, 100]
    tree = Fairness(accounts={"team": Account(parent="lab")})
    assert starts(workload, reserved(users=(), accounts=("lab",)).model_copy(update={"fairness": tree})) == [0, 0, 0, 100]


def test_jobs_that_end_in_time_may_start_before() -> None:
    conditions = reserved(start=5, end=20)
    assert starts(jobs((1, 0), (1, 0)), conditions) == [0, 0]
    assert starts(jobs((1, 0), (0, 0), runtime=5.1), conditions) == [20, 0]


def test_overstays_are_counted_and_kept() -> None:
    """The first two run for 5 s though one was thought to; at 3 node 0 and 1 are reserved. The third was stopped by nobody."""
    estimates = np.array([1.0, 1.0, 9.0])
    found = simulate(
        jobs((1, 0), (0, 0), (1, 0)), CLUSTER, "fcfs+greedy", estimates=estimates, conditions=reserved(nodes=(0, 1, 2), start=3)
    )
    assert found.overstays is not None
    assert found.end.tolist() == [5, 5, 5]
    assert found.piece_node.tolist() == [0, 1, 3]
    assert found.overstays.tolist() == [1, 0, 0]
    assert METRICS["overstays"].of(measure(found)) == 1
    assert METRICS["overstays"].of(measure(simulate(jobs((1, 0)), CLUSTER, "fcfs"))) is None
    again: Schedule = schedule_from(jobs_table(found), pieces_table(found), CLUSTER, schedule_facts(found))
    assert again.overstays is not None
    assert again.overstays.tolist() == [1, 0, 0]


def test_without_end_outsiders_stay_queued() -> None:
    found = simulate(jobs((1, 0), (0, 0)), CLUSTER, "fcfs+easy", conditions=reserved(end=float("inf")))
    assert found.status.tolist()[0] == QUEUED
    assert found.start.tolist()[1] == 0


@pytest.mark.parametrize("policy", ["srtf", "las", "defrag"])
def test_policies_that_stop_jobs_know_none(policy: str) -> None:
    with pytest.raises(InputError, match="reservations need a policy that does not preempt or migrate"):
        starts(jobs((0, 0)), reserved(), policy)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"nodes": (4,)}, "the reservation from 0 names node 4, but rooms has 4 nodes"),
        ({"nodes": ("c",)}, "names node 'c', which rooms does not have .*groups: a, b"),
        ({"name": "mine", "partition": "day"}, "partition in reservation 'mine': 'day'"),
        ({"nodes": (), "partition": "night", "count": 3}, "needs 3 nodes, but rooms has 2 that match"),
        ({"nodes": ("a",), "partition": "night"}, "needs some nodes, but rooms has 0 that match"),
        ({"users": ("anne",)}, "user in the reservation from 0 without a job in workload: 'anne'.*did you mean 'ann'"),
        ({"accounts": ("chem",)}, "account in the reservation from 0"),
    ],
)
def test_what_the_cluster_or_the_log_does_not_have(values: dict[str, object], message: str) -> None:
    with pytest.raises(InputError, match=message):
        starts(jobs((0, 0)), reserved(**values))


def test_overlaps_are_refused() -> None:
    first = Reservation(name="one", nodes=(0, 1), start=0, end=10, users=("ann",))
    second = Reservation(nodes=(1, 2), start=9, end=20, users=("bob",))
    with pytest.raises(InputError, match="node 1: reservation 'one' ends at 10, the reservation from 9 begins at 9"):
        Conditions(reservations=(first, second)).held_on(CLUSTER)
    Conditions(reservations=(first, second.model_copy(update={"start": 10.0}))).held_on(CLUSTER)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes = [0]\nstart = 0\nusers = ['u']\n", "needs either end or duration_s"),
        ("nodes = [0]\nstart = 0\nend = 1\nduration_s = 1\nusers = ['u']\n", "needs either end or duration_s"),
        ("nodes = [0]\nstart = 5\nend = 5\nusers = ['u']\n", "ends at 5, not after its start at 5"),
        ("nodes = [0]\nstart = 5\nduration_s = 0\nusers = ['u']\n", "duration_s"),
        ("nodes = [0]\nstart = 5\nend = 6\n", "has no members"),
        ("start = 5\nend = 6\nusers = ['u']\n", "has no nodes"),
        ("count = 0\nstart = 5\nend = 6\nusers = ['u']\n", "count"),
        ("nodes = [0]\nstart = 5\nends = 6\nusers = ['u']\n", "end"),
    ],
)
def test_nonsense_in_a_file_is_refused_with_its_place(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "reserved.toml"
    path.write_text("[[reservations]]\n" + text)
    with pytest.raises(InputError, match=message) as raised:
        load_conditions(path)
    assert str(path) in str(raised.value)


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "reserved.toml"
    path.write_text('[[reservations]]\nnodes = [1, "V100-16-0-3"]\nstart = 5\nduration_s = 60\naccounts = ["lab"]\n')
    (held,) = load_conditions(path).held_on(load_cluster("4x8:V100-16"))
    assert (held.nodes, held.start, held.end) == ((1, 3), 5, 65)
