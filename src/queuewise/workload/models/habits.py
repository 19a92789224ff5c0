"""Users for the jobs of workload models: about fifty, some of whom submit most of the jobs, each with habits.

A user has a typical size and length, an account and a rank. Jobs go to users whose habits they resemble, so that sizes and
runtimes stay exactly those of the model. The numbers come from a stream of their own: with and without users, a model
draws the same jobs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from queuewise.workload.jobs import UNKNOWN, Floats, Workload

USERS = 50
ACCOUNTS = 8
ZIPF = 1.1  # the k-th most active user submits in proportion to k^-ZIPF
NARROW = 0.18  # width of a habit, in quantiles of size and length
CELLS = 16  # per axis: habits are evaluated at the centres of so many quantiles
STREAM = 0x75736572  # of the random numbers, so that they are not those of the model


def with_users(workload: Workload, seed: int) -> Workload:
    """The same jobs with users, accounts and, if the model draws none, priorities by account."""
    if not len(workload) or (workload.user != UNKNOWN).any():
        return workload
    rng = np.random.default_rng((STREAM, seed))
    user = _assign(rng, _quantiles(workload.size), _quantiles(workload.runtime))
    account = rng.integers(0, ACCOUNTS, USERS)
    named = {
        "user": user,
        "users": tuple(f"user{number:02d}" for number in range(USERS)),
        "group": account[user].astype(np.int32),
        "groups": tuple(f"account{number}" for number in range(ACCOUNTS)),
    }
    if not workload.priority.any():
        rank = rng.permutation(ACCOUNTS).astype(np.float64)
        named["priority"] = rank[account[user]]
    return workload.replace(**named)


def _quantiles(values: Floats) -> Floats:
    """[J] the share of jobs with a lesser value, ties at the middle of theirs."""
    ordered = np.sort(values)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    middle: Floats = (low + high) / (2.0 * len(values))
    return middle


def _assign(rng: np.random.Generator, size: Floats, length: Floats) -> NDArray[np.int32]:
    """[J] a user for each job, likelier the more it resembles the user's habits."""
    habit = rng.random((USERS, 2))
    activity = np.arange(1.0, USERS + 1) ** -ZIPF
    centre = (np.arange(CELLS) + 0.5) / CELLS
    nearness = [np.exp(-(((centre[:, None] - habit[None, :, axis]) / NARROW) ** 2) / 2) + 0.02 for axis in range(2)]  # [CELLS, U] each
    cell = np.minimum((size * CELLS).astype(np.int64), CELLS - 1) * CELLS + np.minimum((length * CELLS).astype(np.int64), CELLS - 1)
    used, row = np.unique(cell, return_inverse=True)  # most cells have no jobs
    weight = nearness[0][used // CELLS] * nearness[1][used % CELLS] * activity
    up_to = np.cumsum(weight / weight.sum(axis=1, keepdims=True), axis=1) + used[:, None]
    place = np.searchsorted(up_to.ravel(), cell + rng.random(len(cell)), "right") - row * USERS
    user: NDArray[np.int32] = np.clip(place, 0, USERS - 1).astype(np.int32)
    return user
