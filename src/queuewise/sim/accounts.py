"""The account tree in arrays: what kernels of fair orders need to know of owners. Names belong to `queuewise.policies.fairness`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.state import F64, FAIRNESS_SIZE, I32, I64

ROOT = 0


@dataclass(frozen=True, eq=False)
class Accounts:
    """A tree of A nodes: the root, accounts, and users as leaves."""

    owner: I32  # [J] leaf of the job
    parent: I64  # [A] -1 of the root
    fraction: F64  # [A] shares among all children of the parent
    share: F64  # [A] of the whole: product of the fractions up to the root
    numbers: F64  # [FAIRNESS_SIZE]

    def __len__(self) -> int:
        return len(self.parent)


NOBODY = Accounts(np.zeros(1, np.int32), np.full(1, -1), np.ones(1), np.ones(1), np.zeros(FAIRNESS_SIZE))


def world_columns(accounts: Accounts) -> dict[str, NDArray[Any]]:
    return {
        "owner": accounts.owner,
        "account_parent": accounts.parent.astype(np.int64),
        "account_fraction": accounts.fraction,
        "account_share": accounts.share,
        "fairness": accounts.numbers,
    }


def state_columns(accounts: Accounts, begin: float) -> dict[str, NDArray[Any]]:
    number = len(accounts)
    return {
        "usage": np.zeros(number),
        "usage_rate": np.zeros(number, np.int64),
        "usage_time": np.full(number, begin),
        "effective": np.zeros(number),
        "effective_at": np.full(number, -1, np.int64),
        "held": np.zeros(3 * number, np.int64),
    }
