"""From names to numbers: the account tree of a log, and the factors of a priority that never change.

Formulas follow docs/simulator.md, "Fairness", to the operation. The kernels are in `queuewise.sim.queue.fair_orders`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.accounts import Fairness
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.policies.known import Jobs
from queuewise.sim.queue import FairShare
from queuewise.sim.queue.account_tree import ROOT, Accounts
from queuewise.workload.jobs import UNKNOWN, WHOLE_GPU, Floats, Ints, named_partitions

NAMELESS = ""  # account or user of jobs for which the log names none


def account_tree(jobs: Jobs) -> Accounts:
    """The root, the accounts of the log and of the settings, and as leaves the users of each."""
    fairness = jobs.fairness
    above, leaves, leaf = _accounts_and_users(jobs)
    account_node = {name: number for number, name in enumerate(above, start=1)}
    parent = [-1, *(ROOT if up is None else account_node[up] for up in above.values()), *(account_node[account] for account, _ in leaves)]
    shares = [1, *(_shares_of(fairness, name) for name in above), *(_shares_of(fairness, account, user) for account, user in leaves)]
    fraction, share = _normalise(np.array(parent), np.array(shares, np.int64))
    owner = (leaf + 1 + len(above)).astype(np.int32)
    numbers = _numbers(jobs.machine, fairness)
    numbers.first_user = 1 + len(above)
    return Accounts(owner, np.array(parent), fraction, share, numbers)


def account_names(jobs: Jobs) -> list[tuple[str | None, str | None]]:
    """Account and user of each node of the tree: accounts have no user, the root has neither."""
    above, leaves, _ = _accounts_and_users(jobs)
    return [(None, None), *((name, None) for name in above), *leaves]


def _accounts_and_users(jobs: Jobs) -> tuple[dict[str, str | None], list[tuple[str, str]], NDArray[np.int64]]:
    """The parent of each account, the users (leaves of the tree) with their accounts, and the leaf of every job."""
    pairs, leaf = np.unique((jobs.group + 1) * np.int64(len(jobs.users) + 1) + jobs.user + 1, return_inverse=True)
    codes = [divmod(pair, len(jobs.users) + 1) for pair in pairs.tolist()]
    owners = [(_name(jobs.groups, group - 1), _name(jobs.users, user - 1)) for group, user in codes]
    above = jobs.fairness.parents(account for account, _ in owners)
    named = [(account, user) for account, settings in jobs.fairness.accounts.items() for user in settings.users]
    return dict(above), list(dict.fromkeys([*owners, *named])), leaf.ravel()  # leaves begin with the owners, in the order of `pairs`


def static_priority(jobs: Jobs) -> Floats:
    """[J] what the factors of `multifactor` that do not change with time add up to."""
    fairness, weights = jobs.fairness, jobs.fairness.weights
    partitions = [named_partitions(name) for name in jobs.partitions]
    account_priority = {name: account.priority for name, account in fairness.accounts.items()}
    demands = (jobs.gpu_milli, jobs.cpu_milli, jobs.mem_mib)
    tasks = jobs.num_tasks.astype(np.float64)
    gpu, cpu, mem = (tasks * demand / total for demand, total in zip(demands, _totals(jobs.machine), strict=True))
    size = np.minimum(np.where(jobs.gpu_milli > 0, gpu, cpu), 1.0)
    parts = (
        weights.association * _relative(jobs.group, _alone(jobs.groups), account_priority, otherwise=0.0),
        weights.job_size * (1.0 - size if fairness.favor_small else size),
        weights.partition * _relative(jobs.partition, partitions, fairness.partition_priority, otherwise=1.0),
        weights.qos * _relative(jobs.qos, _alone(jobs.qos_names), fairness.qos_priority, otherwise=0.0),
        weights.gpu * gpu,
        weights.cpu * cpu,
        weights.mem * mem,
    )
    total = jobs.priority.astype(np.float64)  # the site factor
    for part in parts:
        total = total + part
    return total


def _name(names: tuple[str, ...], code: int) -> str:
    return NAMELESS if code == UNKNOWN else names[code]


def _shares_of(fairness: Fairness, account: str, user: str | None = None) -> int:
    settings = fairness.accounts.get(account)
    if settings is None:
        return 1
    return settings.shares if user is None else settings.users.get(user, 1)


def _normalise(parent: NDArray[np.int64], shares: NDArray[np.int64]) -> tuple[Floats, Floats]:
    """Each node's fraction of its siblings' shares, and of the whole."""
    siblings = np.zeros(len(parent), np.int64)
    np.add.at(siblings, parent[1:], shares[1:])
    fraction = np.ones(len(parent))
    fraction[1:] = shares[1:] / np.maximum(siblings[parent[1:]], 1)  # where all have 0 shares, each has 0 of 1
    up = np.maximum(parent, ROOT)
    share, line = fraction.copy(), up
    while (line != ROOT).any():
        share = share * fraction[line]
        line = up[line]
    return fraction, share


def _alone(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [(name,) for name in names]


def _relative(codes: Ints, names: Sequence[tuple[str, ...]], priority: Mapping[str, float], *, otherwise: float) -> Floats:
    """[J] priority of a name, or the greatest of several, as a part of the greatest one there is."""
    found = [max(priority.get(name, otherwise) for name in several) for several in names]
    values = np.array([*found, otherwise])  # UNKNOWN is -1: the last
    most = max([*priority.values(), otherwise])
    return values[codes] / most if most > 0 else np.zeros(len(codes))


def _numbers(cluster: Cluster, fairness: Fairness) -> FairShare:
    numbers = FairShare()
    numbers.decay_rate = math.log(2.0) / fairness.half_life_s if fairness.half_life_s > 0 else 0.0
    numbers.age_weight = fairness.weights.age
    numbers.max_age = fairness.max_age_s
    numbers.fairshare_weight = fairness.weights.fairshare
    numbers.classic_factor = 0.0 if fairness.fair_tree else 1.0
    numbers.gpu_total, numbers.cpu_total, numbers.mem_total = _totals(cluster)
    return numbers


def _totals(cluster: Cluster) -> tuple[float, float, float]:
    """GPU milli, CPU milli and MiB of the cluster; inf where there is nothing or no end of it: such a resource is nobody's share."""

    def total(amounts: NDArray[np.int64]) -> float:
        return np.inf if (amounts == UNLIMITED).any() or amounts.sum() == 0 else float(amounts.sum())

    return total(cluster.node_gpus * WHOLE_GPU), total(cluster.node_cpu_milli), total(cluster.node_mem_mib)
