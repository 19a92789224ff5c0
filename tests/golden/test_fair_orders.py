"""Fair orders against figures worked out by hand from the published formulas.

Slurm: https://slurm.schedmd.com/priority_multifactor.html, classic_fair_share.html and fair_tree.html.
DRF: Ghodsi et al., NSDI 2011, section 4.1.
"""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.cluster.accounts import Account, Fairness, PriorityWeights
from queuewise.cluster.conditions import Conditions
from queuewise.cluster.spec import NodeGroup, build
from queuewise.policies import simulate
from queuewise.workload.jobs import ANY_PARTITION, Workload

# Three levels: faculties, their labs, their users.
ACCOUNTS = {
    "science": Account(shares=3),
    "arts": Account(shares=1),
    "physics": Account(parent="science", shares=2, priority=1),
    "biology": Account(parent="science", shares=1, users={"cy": 1, "dee": 3}),
    "music": Account(parent="arts", priority=2),
}
LAB = {"ada": "physics", "ben": "physics", "cy": "biology", "dee": "biology", "eve": "music", "fay": "music"}
# Normalised shares: science 3/4, arts 1/4; physics 1/2, biology 1/4, music 1/4; ada and ben 1/4, cy 1/16, dee 3/16, eve and fay 1/8.
# Until t = 3000, three half-lives of 1000 s, four jobs run on 8 GPUs. In units of 1000 s / ln 2, what is left of them then:
#   dee 8 GPUs in [0, 1000]: 8/2/4 = 1; cy 8 GPUs in [1000, 2000]: 8/2/2 = 2; ada 6 and eve 2 GPUs in [2000, 3000]: 3 and 1.
# Normalised usage: ada 3/7, ben 0, cy 2/7, dee 1/7, eve 1/7, fay 0; physics 3/7, biology 3/7, music 1/7; science 6/7, arts 1/7.
# Effective usage: science 6/7, arts 1/7; physics 3/7 + 3/7·2/3 = 5/7, biology 3/7 + 3/7·1/3 = 4/7, music 1/7;
#   ada 3/7 + 2/7·1/2 = 4/7, ben 5/7·1/2 = 5/14, cy 2/7 + 2/7·1/4 = 5/14, dee 1/7 + 3/7·3/4 = 13/28, eve 1/7, fay 1/7·1/2 = 1/14.
# Divided by the shares:
RATIO = {"ada": 16 / 7, "ben": 10 / 7, "cy": 40 / 7, "dee": 52 / 21, "eve": 8 / 7, "fay": 4 / 7}
# Level fairshares of the Fair Tree, from the root down: arts 1/4 ÷ 1/7 = 7/4 before science 3/4 ÷ 6/7 = 7/8; fay ∞ before eve 1/2;
#   physics 2/3 ÷ 3/6 = 4/3 before biology 1/3 ÷ 3/6 = 2/3; ben ∞ before ada 1/2; dee 3/4 ÷ 1/3 = 9/4 before cy 1/4 ÷ 2/3 = 3/8.
RANK = {"fay": 6, "eve": 5, "ben": 4, "ada": 3, "dee": 2, "cy": 1}
HISTORY = [("dee", 0, 8), ("cy", 1000, 8), ("ada", 2000, 6), ("eve", 2000, 2)]  # each runs for 1000 s

# 20 jobs that wait at t = 3000: user, submission, GPUs, quality of service, partition, site factor, and the priority by
# site + 500·association + 1000·GPUs/8 + 1000·partition + 2000·qos + 1000·age/2000 + 10000·2^-ratio, the classic factor.
WAITING = [
    ("ada", 2030, 4, "high", "any", 250, 6035.84),
    ("ben", 2100, 2, "high", "default", 0, 7664.99),
    ("cy", 2170, 8, "normal", "default", 0, 3105.47),
    ("dee", 2260, 8, "normal", "default", 0, 4667.18),
    ("eve", 2270, 4, "high", "default", 0, 8893.62),
    ("fay", 2320, 2, "high", "default", 0, 10819.50),
    ("ada", 2370, 8, "normal", "any", 250, 4865.84),
    ("ben", 2460, 2, "high", "default", 0, 7484.99),
    ("eve", 2470, 4, "high", "default", 0, 8793.62),
    ("ben", 2560, 5, "normal", "any", 0, 5809.99),
    ("dee", 2630, 2, "high", "default", 0, 5232.18),
    ("ada", 2640, 1, "normal", "any", 0, 3605.84),
    ("eve", 2730, 5, "normal", "default", 0, 7288.62),
    ("ada", 2760, 5, "high", "any", 250, 5795.84),
    ("ben", 2810, 4, "normal", "any", 0, 5559.99),
    ("ben", 2900, 4, "high", "default", 0, 7514.99),
    ("eve", 2950, 8, "high", "default", 0, 9053.62),
    ("cy", 2980, 5, "high", "default", 0, 3825.47),
    ("cy", 2990, 4, "high", "default", 0, 3695.47),
    ("ben", 2995, 5, "normal", "any", 0, 5592.49),
]
SETTINGS = Fairness(
    half_life_s=1000.0,
    max_age_s=2000.0,
    weights=PriorityWeights(association=500.0, qos=2000.0),
    accounts=ACCOUNTS,
    partition_priority={"default": 2.0},  # any other: 1
    qos_priority={"high": 4.0, "normal": 1.0},
)


def waiting_jobs() -> Workload:
    """The history, and the 20 jobs, which take no time, so that none of them changes anybody's usage."""
    users, groups, labels = tuple(LAB), tuple(dict.fromkeys(LAB.values())), ("high", "normal")
    rows = [(user, submit, gpus, "normal", "any", 0, 1000.0) for user, submit, gpus in HISTORY] + [(*row[:6], 0.0) for row in WAITING]
    user, submit, gpus, qos, partition, site, runtime = (list(column) for column in zip(*rows, strict=True))
    return Workload(
        submit=np.array(submit, np.float64),
        runtime=np.array(runtime),
        num_tasks=np.ones(len(rows), np.int32),
        gpu_milli=np.array(gpus, np.int32) * 1000,
        user=np.array([users.index(name) for name in user], np.int32),
        group=np.array([groups.index(LAB[name]) for name in user], np.int32),
        qos=np.array([labels.index(name) for name in qos], np.int32),
        partition=np.array([ANY_PARTITION if name == "any" else 0 for name in partition], np.int32),
        priority=np.array(site, np.float64),
        users=users,
        groups=groups,
        qos_names=labels,
        partitions=("default",),
    )


def order_of_starts(policy: str, settings: Fairness = SETTINGS) -> list[int]:
    schedule = simulate(
        waiting_jobs(),
        build("node", [NodeGroup(1, gpus=8, kind="V100-16")]),
        policy,
        estimates="oracle",
        conditions=Conditions(fairness=settings),
    )
    assert (schedule.start[len(HISTORY) :] == 3000.0).all()
    return [j - len(HISTORY) for j in schedule.piece_job[len(HISTORY) :].tolist()]


def test_the_priorities_by_hand_add_up() -> None:
    for user, submit, gpus, qos, partition, site, priority in WAITING:
        association = {"physics": 0.5, "biology": 0.0, "music": 1.0}[LAB[user]]
        factors = 500 * association + 125 * gpus + (1000 if partition == "default" else 500) + (2000 if qos == "high" else 500)
        assert priority == pytest.approx(site + factors + (3000 - submit) / 2 + 10_000 * 2 ** -RATIO[user], abs=0.006)


def test_multifactor_starts_twenty_jobs_by_slurms_classic_priorities() -> None:
    by_priority = sorted(range(len(WAITING)), key=lambda k: -WAITING[k][-1])
    assert order_of_starts("multifactor", SETTINGS.model_copy(update={"fair_tree": False})) == by_priority


def test_multifactor_goes_by_the_fair_tree_by_default() -> None:
    priority = [row[-1] + 10_000 * (RANK[row[0]] / 6 - 2 ** -RATIO[row[0]]) for row in WAITING]
    assert order_of_starts("multifactor") == sorted(range(len(WAITING)), key=lambda k: -priority[k])
    assert order_of_starts("multifactor") != order_of_starts("multifactor", SETTINGS.model_copy(update={"fair_tree": False}))


def test_fairtree_starts_them_by_rank() -> None:
    assert order_of_starts("fairtree") == sorted(range(len(WAITING)), key=lambda k: (-RANK[WAITING[k][0]], k))


def starts_by_fair_tree(accounts: dict[str, Account], history: list[tuple[str, str, int]], waiting: list[tuple[str, str]]) -> list[int]:
    """The order in which jobs of (account, user) start at 100 after others with so many GPUs each, on a node of 8, have run until then."""
    rows = [*history, *((account, user, 8) for account, user in waiting)]
    groups, users = [row[0] for row in rows], [row[1] for row in rows]
    group_names, user_names = tuple(dict.fromkeys(groups)), tuple(dict.fromkeys(users))
    workload = Workload(
        submit=np.array([0.0] * len(history) + [1.0] * len(waiting)),
        runtime=np.array([100.0] * len(history) + [0.0] * len(waiting)),
        num_tasks=np.ones(len(rows), np.int32),
        gpu_milli=np.array([row[2] for row in rows], np.int32) * 1000,
        group=np.array([group_names.index(name) for name in groups], np.int32),
        user=np.array([user_names.index(name) for name in users], np.int32),
        groups=group_names,
        users=user_names,
    )
    cluster = build("node", [NodeGroup(1, gpus=8, kind="V100-16")])
    conditions = Conditions(fairness=Fairness(half_life_s=0.0, accounts=accounts))
    schedule = simulate(workload, cluster, "fairtree", estimates="oracle", conditions=conditions)
    assert (schedule.start[len(history) :] == 100.0).all()
    return [j - len(history) for j in schedule.piece_job[len(history) :].tolist()]


def test_children_of_tied_accounts_are_sorted_together() -> None:
    """a and b have 1/3 of the shares and 2/8 of the usage each, c has 4/8.

    Below a and b together: a2 ∞, b1 and b2 1/2 ÷ 1/2 = 1, a1 1/2. So a2 has rank 5, b1 and b2 have 4, a1 has 2 and c1 has 1.
    """
    history = [("a", "a1", 2), ("b", "b1", 1), ("b", "b2", 1), ("c", "c1", 4)]
    waiting = [("c", "c1"), ("a", "a1"), ("b", "b2"), ("b", "b1"), ("b", "b2"), ("a", "a2")]
    assert starts_by_fair_tree({}, history, waiting) == [5, 2, 3, 4, 1, 0]


def test_a_user_tied_with_an_account_has_the_rank_of_its_first_user() -> None:
    """u and the account sub have half of the shares and of the usage of lab each: u has rank 3, w (∞, first in sub) too, and v has 1."""
    accounts = {"lab": Account(), "sub": Account(parent="lab", users={"w": 1})}
    history = [("lab", "u", 4), ("sub", "v", 4)]
    assert starts_by_fair_tree(accounts, history, [("sub", "v"), ("sub", "w"), ("lab", "u"), ("sub", "w")]) == [1, 2, 3, 0]


def test_fairshare_starts_them_by_effective_usage_and_shares() -> None:
    by_ratio = sorted(range(len(WAITING)), key=lambda k: (RATIO[WAITING[k][0]], k))
    assert order_of_starts("fairshare") == by_ratio


@pytest.mark.parametrize("policy", ["drf", "drf+greedy", "drf+easy", "drf+conservative"])
@pytest.mark.parametrize("dispatch", ["reorder", "commit"])
def test_drf_gives_its_papers_users_three_and_two_tasks(policy: str, dispatch: str) -> None:
    """9 CPUs and 18 GB; tasks of A take 1 CPU and 4 GB, those of B 3 CPUs and 1 GB. Both get two thirds of what they need most."""
    user = np.repeat([0, 1], 10).astype(np.int32)
    workload = Workload(
        submit=np.zeros(20),
        runtime=np.full(20, 100.0),
        num_tasks=np.ones(20, np.int32),
        cpu_milli=np.array([1000, 3000], np.int32)[user],
        mem_mib=np.array([4096, 1024], np.int32)[user],
        user=user,
        users=("A", "B"),
    )
    cluster = build("paper", [NodeGroup(1, cpus=9, mem_gib=18)])
    schedule = simulate(workload, cluster, policy, dispatch=dispatch, estimates="oracle")
    assert np.bincount(user[schedule.start == 0.0]).tolist() == [3, 2]
