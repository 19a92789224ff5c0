"""What owners have had and have ("Fairness" of the normative page): the account tree as plain objects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.accounts import Account, Fairness
from queuewise.cluster.spec import UNLIMITED, Cluster
from queuewise.workload.jobs import Workload
from reference.state import Job

Floats = NDArray[np.float64]
FAIR_ORDERS = ("fairshare", "fairtree", "multifactor", "drf")


@dataclass(eq=False)
class Node:
    """The root, an account, or a user of an account."""

    shares: int
    parent: Node | None = None
    is_user: bool = False
    children: list[Node] = field(default_factory=list)
    usage: float = 0.0
    rate: int = 0
    changed: float = 0.0

    @property
    def fraction(self) -> float:
        if self.parent is None:
            return 1.0
        total = sum(child.shares for child in self.parent.children)
        return self.shares / total if total else 0.0

    @property
    def share(self) -> float:
        """Of the whole: its fraction, times that of its parent, and so on."""
        product, node = self.fraction, self.parent
        while node is not None:
            product *= node.fraction
            node = node.parent
        return product

    def usage_at(self, now: float, half_life: float) -> float:
        passed = now - self.changed
        if half_life == 0:
            return self.usage + self.rate * passed
        fading = math.log(2) / half_life
        kept = math.exp(-(passed * fading))
        return self.usage * kept + self.rate / fading * (1 - kept)


def child(parent: Node, shares: int, *, is_user: bool = False) -> Node:
    node = Node(shares, parent, is_user)
    parent.children.append(node)
    return node


class Owners:
    """The tree, and who of its leaves owns which job."""

    def __init__(self, workload: Workload, cluster: Cluster, fairness: Fairness) -> None:
        self.fairness, self.workload = fairness, workload
        self.root = Node(1)
        self.accounts: dict[str, Node] = {}
        self.users: dict[tuple[str, str], Node] = {}
        self.names = [(named(workload.groups, g), named(workload.users, u)) for g, u in zip(workload.group, workload.user, strict=True)]
        for account, settings in fairness.accounts.items():
            self.account(account)
            for user in settings.users:
                self.user(account, user)
        self.owner = [self.user(account, user) for account, user in self.names]
        for node in self.all_nodes():
            node.changed = float(workload.submit[0])
        self.total = [
            total((cluster.node_gpus * 1000).tolist()),
            total(cluster.node_cpu_milli.tolist()),
            total(cluster.node_mem_mib.tolist()),
        ]
        self.held = {id(node): [0, 0, 0] for node in self.users.values()}
        self.base = [self.static_priority(j, cluster) for j in range(len(workload))]

    def all_nodes(self) -> list[Node]:
        return [self.root, *self.accounts.values(), *self.users.values()]

    def account(self, name: str) -> Node:
        if name not in self.accounts:
            settings = self.fairness.accounts.get(name, Account())
            parent = self.root if settings.parent is None else self.account(settings.parent)
            self.accounts[name] = child(parent, settings.shares)
        return self.accounts[name]

    def user(self, account: str, name: str) -> Node:
        if (account, name) not in self.users:
            settings = self.fairness.accounts.get(account, Account())
            self.users[account, name] = child(self.account(account), settings.users.get(name, 1), is_user=True)
        return self.users[account, name]

    # --- what jobs do to them

    def started(self, job: Job, now: float) -> None:
        self.change(job, now, +1)

    def stopped(self, job: Job, now: float) -> None:
        self.change(job, now, -1)

    def change(self, job: Job, now: float, sign: int) -> None:
        demand, tasks = job.demand, sum(piece.tasks for piece in job.pieces)
        held = self.held[id(self.owner[job.index])]
        for resource, amount in enumerate((demand.gpu, demand.cpu, demand.mem)):
            held[resource] += sign * tasks * amount
        node: Node | None = self.owner[job.index]
        while node is not None:
            node.usage, node.changed = node.usage_at(now, self.fairness.half_life_s), now
            node.rate += sign * tasks * (demand.gpu or demand.cpu or 1000)
            node = node.parent

    # --- scores

    def effective(self, node: Node, now: float) -> float:
        half_life = self.fairness.half_life_s
        whole = self.root.usage_at(now, half_life)
        part = node.usage_at(now, half_life) / whole if whole > 0 else 0.0
        assert node.parent is not None
        if node.parent is self.root:
            return part
        return part + (self.effective(node.parent, now) - part) * node.fraction

    def ratio(self, j: int, now: float) -> float:
        node = self.owner[j]
        return self.effective(node, now) / node.share if node.share > 0 else math.inf

    def level_fairshare(self, node: Node, now: float) -> float:
        half_life = self.fairness.half_life_s
        assert node.parent is not None
        around = node.parent.usage_at(now, half_life)
        part = node.usage_at(now, half_life) / around if around > 0 else 0.0
        if node.fraction == 0:
            return 0.0
        return node.fraction / part if part > 0 else math.inf

    def ranks(self, now: float) -> dict[int, int]:
        """The rank of each user in the Fair Tree, by id of the node."""
        found: list[tuple[Node, bool]] = []  # users from the first to the last, and whether each is tied with the one before
        self.walk([self.root], False, found, now)
        ranks: dict[int, int] = {}
        rank = 0
        for place, (user, tied) in enumerate(found):
            rank = rank if tied else len(found) - place
            ranks[id(user)] = rank
        return ranks

    def walk(self, accounts: list[Node], tied: bool, found: list[tuple[Node, bool]], now: float) -> None:
        """The users below accounts that are tied with each other; `tied` says whether the first node below is, with the user before."""
        by_level: dict[float, list[Node]] = {}
        for node in [node for account in accounts for node in account.children]:
            by_level.setdefault(self.level_fairshare(node, now), []).append(node)
        for level in sorted(by_level, reverse=True):
            users = [node for node in by_level[level] if node.is_user]
            for user in users:
                found.append((user, tied))
                tied = True
            others = [node for node in by_level[level] if not node.is_user]
            if others:
                self.walk(others, tied, found, now)
            tied = False

    def static_priority(self, j: int, cluster: Cluster) -> float:
        w, f, weights = self.workload, self.fairness, self.fairness.weights
        asked = [
            float(w.num_tasks[j]) * int(amount[j]) / has
            for amount, has in zip((w.gpu_milli, w.cpu_milli, w.mem_mib), self.total, strict=True)
        ]
        size = min(asked[0] if w.gpu_milli[j] > 0 else asked[1], 1.0)
        accounts = {name: account.priority for name, account in f.accounts.items()}
        return (
            float(w.priority[j])
            + weights.association * relative(self.names[j][0], accounts, 0.0)
            + weights.job_size * (1 - size if f.favor_small else size)
            + weights.partition * self.partition_factor(named(w.partitions, w.partition[j]))
            + weights.qos * relative(named(w.qos_names, w.qos[j]), f.qos_priority, 0.0)
            + weights.gpu * asked[0]
            + weights.cpu * asked[1]
            + weights.mem * asked[2]
        )

    def partition_factor(self, names: str) -> float:
        return max(relative(name.strip(), self.fairness.partition_priority, 1.0) for name in names.split(","))

    def factor(self, j: int, now: float, ranks: dict[int, int]) -> float:
        if self.fairness.fair_tree:
            return ranks[id(self.owner[j])] / len(self.users)
        return math.exp(-(self.ratio(j, now) * math.log(2)))

    def priority(self, j: int, now: float, factor: float) -> float:
        weights = self.fairness.weights
        age = min((now - float(self.workload.submit[j])) / self.fairness.max_age_s, 1.0)
        return self.base[j] + weights.age * age + weights.fairshare * factor

    def dominant_share(self, j: int) -> float:
        return max(have / whole for have, whole in zip(self.held[id(self.owner[j])], self.total, strict=True))

    def scores(self, order: str, rows: Sequence[int], now: float) -> Floats:
        if order == "drf":
            return np.array([self.dominant_share(j) for j in rows])
        if order == "fairshare":
            return np.array([self.ratio(j, now) for j in rows])
        ranks = self.ranks(now)
        if order == "fairtree":
            return np.array([-float(ranks[id(self.owner[j])]) for j in rows])
        return np.array([-self.priority(j, now, self.factor(j, now, ranks)) for j in rows])


def named(names: tuple[str, ...], code: int) -> str:
    return names[code] if code >= 0 else ""


def total(amounts: list[int]) -> float:
    return math.inf if UNLIMITED in amounts or sum(amounts) == 0 else float(sum(amounts))


def relative(name: str, priorities: dict[str, float], otherwise: float) -> float:
    most = max([*priorities.values(), otherwise])
    return priorities.get(name, otherwise) / most if most > 0 else 0.0
