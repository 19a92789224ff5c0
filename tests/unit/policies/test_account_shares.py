"""Accounts and shares: what is refused, and what a user may rely on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from queuewise.cluster.accounts import Account, Fairness
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, build
from queuewise.config import read_toml
from queuewise.envs import QueuewiseEnv
from queuewise.errors import InputError
from queuewise.policies import parse_policy, simulate
from queuewise.policies.account_shares import account_tree
from queuewise.policies.known import Jobs
from queuewise.workload.jobs import UNKNOWN, Workload

CLUSTER = build("node", [NodeGroup(1, gpus=1, kind="V100-16")])


def one_gpu_jobs(user: list[int], group: list[int] | None = None, runtime: float = 10.0) -> Workload:
    num = len(user)
    return Workload(
        submit=np.zeros(num),
        runtime=np.full(num, runtime),
        num_tasks=np.ones(num, np.int32),
        gpu_milli=np.full(num, 1000, np.int32),
        user=np.array(user, np.int32),
        group=np.array(group if group is not None else [UNKNOWN] * num, np.int32),
        users=("ada", "ben"),
        groups=("lab", "club"),
    )


def test_fairshare_serves_users_in_turn_who_have_equal_shares() -> None:
    schedule = simulate(one_gpu_jobs([0, 0, 0, 1, 1, 1]), CLUSTER, "fairshare")
    assert np.argsort(schedule.start).tolist() == [0, 3, 1, 4, 2, 5]


def test_an_account_with_twice_the_shares_gets_twice_the_service() -> None:
    settings = Fairness(half_life_s=0.0, accounts={"lab": Account(shares=2)})
    schedule = simulate(one_gpu_jobs([0] * 6 + [1] * 6, [0] * 6 + [1] * 6), CLUSTER, "fairshare", conditions=Conditions(fairness=settings))
    first_six = np.argsort(schedule.start)[:6]
    assert (first_six < 6).sum() == 4


def test_usage_is_forgotten_with_its_half_life() -> None:
    """Ada has had 10 GPU-seconds and then, much later, Ben a single one: who goes next depends on what is remembered."""
    workload = one_gpu_jobs([0, 1, 0, 1]).replace(
        submit=np.array([0.0, 10_000.0, 10_000.5, 10_000.5]), runtime=np.array([10.0, 1.0, 1.0, 1.0])
    )
    settings = [Conditions(fairness=Fairness(half_life_s=half_life)) for half_life in (100.0, 0.0)]
    forgotten, remembered = (simulate(workload, CLUSTER, "fairshare", conditions=given).start for given in settings)
    assert forgotten[2] < forgotten[3]
    assert remembered[3] < remembered[2]


def test_users_without_shares_go_last() -> None:
    settings = Fairness(accounts={"lab": Account(users={"ada": 0})})
    schedule = simulate(one_gpu_jobs([0, 0, 1, 1], [0] * 4), CLUSTER, "fairshare", conditions=Conditions(fairness=settings))
    assert np.argsort(schedule.start).tolist() == [2, 3, 0, 1]  # at first nobody has had anything, but a share of nothing is used up


def test_fractions_of_each_account_add_up_and_so_do_the_shares_of_the_leaves() -> None:
    settings = Fairness(accounts={"lab": Account(parent="club", shares=3, users={"cy": 4})})
    workload = one_gpu_jobs([0, 1, UNKNOWN, 0], [0, 0, 1, UNKNOWN])
    tree = account_tree(Jobs.of(workload, workload.runtime, cluster=CLUSTER, fairness=settings))
    parents = np.unique(tree.parent[1:])
    for node in parents:
        assert tree.fraction[1:][tree.parent[1:] == node].sum() == pytest.approx(1.0)
    leaves = np.setdiff1d(np.arange(len(tree)), parents)
    assert tree.share[leaves].sum() == pytest.approx(1.0)
    assert len(np.unique(tree.owner)) == 4


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        ({"lab": Account(parent="lab")}, "cycle: lab below lab"),
        ({"lab": Account(parent="club"), "club": Account(parent="lab")}, "cycle: lab below club below lab"),
        ({"lab": Account(parent="clubb")}, "'clubb'.*did you mean 'club'"),
    ],
)
def test_trees_that_are_none_are_refused(accounts: dict[str, Account], message: str) -> None:
    with pytest.raises(InputError, match=message):
        simulate(one_gpu_jobs([0, 1], [0, 1]), CLUSTER, "fairshare", conditions=Conditions(fairness=Fairness(accounts=accounts)))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("half_life_s = -1.0", "half_life_s = -1.0"),
        ("max_age_s = 0.0", "max_age_s = 0.0"),
        ("[accounts.lab]\nshares = -2", "accounts.lab.shares = -2"),
        ("[accounts.lab]\nshare = 2", "unknown key accounts.lab.share"),
        ("[weights]\nage = nan", "weights.age"),
    ],
)
def test_bad_settings_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "fairness.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_toml(file, Fairness)


@pytest.mark.parametrize("name", ["drf+easy/3", "fcfs+greedy/2:drf"])
def test_drf_has_no_first_candidates(name: str) -> None:
    with pytest.raises(InputError, match="leave /D out"):
        parse_policy(name)


def test_fair_orders_are_no_features_of_environments() -> None:
    with pytest.raises(InputError, match="'drf' depends on the usage of users"):
        QueuewiseEnv(workload=one_gpu_jobs([0, 1]), cluster=CLUSTER, episode_jobs=None, block=None, scores=("drf",)).reset()
    with pytest.raises(InputError, match="changes with time"):
        QueuewiseEnv(workload=one_gpu_jobs([0, 1]), cluster=CLUSTER, episode_jobs=None, block=None, window_order="fairshare").reset()
