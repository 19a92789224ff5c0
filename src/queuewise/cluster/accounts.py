"""Who shares a cluster: accounts, their shares, and what each factor of a priority weighs. What they do: docs/simulator.md, "Fairness".

Names are matched with those of a log when a replay begins (`policies.fairness`); nothing here knows a particular log.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from queuewise.config import Config
from queuewise.errors import InputError, unknown_name

WEEK_S = 7 * 86_400.0
Shares = Annotated[int, Field(ge=0, lt=1 << 31)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class Account(Config):
    """An account below another one, or below the root."""

    shares: Shares = 1
    parent: str | None = None  # None: the root
    priority: Amount = 0.0  # of `multifactor`
    users: dict[str, Shares] = Field(default_factory=dict)  # shares of users; those not named have 1


class PriorityWeights(Config):
    """What the factors of `multifactor` count. The defaults are those of the example in Slurm's documentation."""

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
    """All that fair orders go by; by default everybody has one share."""

    half_life_s: Amount = WEEK_S  # of usage; 0: it never fades
    max_age_s: float = Field(default=WEEK_S, gt=0, allow_inf_nan=False)  # the wait from which on age counts in full
    favor_small: bool = False  # the size factor rewards small jobs instead of large ones
    weights: PriorityWeights = PriorityWeights()
    accounts: dict[str, Account] = Field(default_factory=dict)
    partition_priority: dict[str, Amount] = Field(default_factory=dict)  # 1 where a partition is not named
    qos_priority: dict[str, Amount] = Field(default_factory=dict)  # 0 where a quality of service is not named

    def parents(self, logged: Iterable[str]) -> dict[str, str | None]:
        """The parent of every account of the log and of this table; one that is nowhere named, or a circle, is refused."""
        above: dict[str, str | None] = dict.fromkeys(logged) | {name: account.parent for name, account in self.accounts.items()}
        for name in self.accounts:
            line = [name]
            while (parent := above[line[-1]]) is not None:
                if parent not in above:
                    raise unknown_name(f"parent of account {line[-1]!r}:", parent, above)
                if parent in line:
                    circle = " below ".join([*line[line.index(parent) :], parent])
                    raise InputError(f"accounts lie in a circle: {circle}", hint="let one of them have no parent")
                line.append(parent)
        return above
