"""The account tree as arrays, for the kernels of fair orders. `policies.account_shares` builds it from names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.sim.core.tables import F64, I32, I64
from queuewise.sim.queue import FairShare

ROOT = 0


@dataclass(frozen=True, eq=False)
class Accounts:
    """A tree of A nodes: the root, then accounts, then users, which are leaves."""

    owner: I32  # [J] leaf of the job
    parent: I64  # [A] -1 for the root
    fraction: F64  # [A] share among all children of the parent
    share: F64  # [A] share of the whole: product of the fractions up to the root
    numbers: FairShare

    def __len__(self) -> int:
        return len(self.parent)

    @property
    def child_first(self) -> I64:
        """[A+1] where the children of each node begin in `children`."""
        return np.concatenate([[0], np.cumsum(np.bincount(self.parent[1:], minlength=len(self)))]).astype(np.int64)

    @property
    def children(self) -> I64:
        """[A] the children of each node in turn; 0 after the last."""
        return np.append(1 + np.argsort(self.parent[1:], kind="stable"), 0).astype(np.int64)


NOBODY = Accounts(np.zeros(1, np.int32), np.full(1, -1), np.ones(1), np.ones(1), FairShare())


def world_columns(accounts: Accounts) -> dict[str, NDArray[Any]]:
    return {
        "owner": accounts.owner,
        "account_parent": accounts.parent.astype(np.int64),
        "account_fraction": accounts.fraction,
        "account_share": accounts.share,
        "child_first": accounts.child_first,
        "fairness": accounts.numbers,
    }
