"""Accounts that share a cluster, their shares, and the weights of priority factors. See docs/simulator.md, "Fairness".

Names are matched with those in a log when a replay starts (`policies.account_shares`). This module does not depend on a log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from queuewise.config import Config
from queuewise.errors import InputError, unknown_name
from queuewise.workload.jobs import MAX_SECONDS

WEEK_S = 7 * 86_400.0
Shares = Annotated[int, Field(ge=0, lt=1 << 31)]
Amount = Annotated[float, Field(ge=0, le=MAX_SECONDS)]


class Account(Config):
    """An account; its parent is another account or the root."""

    shares: Shares = 1
    parent: str | None = None  # None: the root
    priority: Amount = 0.0  # of `multifactor`
    users: dict[str, Shares] = Field(default_factory=dict)  # shares of users; 1 for users not listed


class PriorityWeights(Config):
    """Weights of the factors of `multifactor`. The defaults are those of the example in Slurm's documentation."""

    age: Amount = 1000.0
    association: Amount = 0.0
    fairshare: Amount = 10_000.0
    job_size: Amount = 1000.0
    partition: Amount = 1000.0
    qos: Amount = 0.0
    gpu: Amount = 0.0  # the last three are Slurm's TRES weights
    cpu: Amount = 0.0
    mem: Amount = 0.0


class Fairness(Config):
    """Settings of the fair orders. By default everyone has one share."""

    half_life_s: Amount = WEEK_S  # of usage; 0: no decay
    max_age_s: float = Field(default=WEEK_S, gt=0, le=MAX_SECONDS)  # wait after which the age factor is 1
    fair_tree: bool = True  # the fair-share factor of `multifactor` is that of Slurm's Fair Tree, otherwise the classic one
    favor_small: bool = False  # the size factor favours small jobs instead of large ones
    weights: PriorityWeights = PriorityWeights()
    accounts: dict[str, Account] = Field(default_factory=dict)
    partition_priority: dict[str, Amount] = Field(default_factory=dict)  # 1 for partitions not listed
    qos_priority: dict[str, Amount] = Field(default_factory=dict)  # 0 for qualities of service not listed

    def parents(self, logged: Iterable[str]) -> dict[str, str | None]:
        """The parent of every account in the log and in this table. Raises an error for an unknown parent or a cycle."""
        above: dict[str, str | None] = dict.fromkeys(logged) | {name: account.parent for name, account in self.accounts.items()}
        for name in self.accounts:
            line = [name]
            while (parent := above[line[-1]]) is not None:
                if parent not in above:
                    raise unknown_name(f"parent of account {line[-1]!r}:", parent, above)
                if parent in line:
                    cycle = " below ".join([*line[line.index(parent) :], parent])
                    raise InputError(f"accounts form a cycle: {cycle}", hint="remove the parent of one of them")
                line.append(parent)
        return above
