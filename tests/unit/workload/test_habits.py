"""Users of workload models: some submit most jobs, each has habits, and the jobs stay as they were."""

from __future__ import annotations

import numpy as np
import pytest

from queuewise.workload.jobs import UNKNOWN
from queuewise.workload.models import generate, model_names


@pytest.mark.parametrize("model", [name for name in model_names() if name not in ("philly", "venus", "pai")])
def test_every_model_has_users_and_accounts(model: str) -> None:
    jobs = generate(model, 3000, seed=2)
    assert (jobs.user != UNKNOWN).all()
    assert (jobs.group != UNKNOWN).all()
    number = np.sort(np.bincount(jobs.user))[::-1]
    assert len(number[number > 0]) > 30
    assert number[:10].sum() > 0.4 * len(jobs)  # ten of fifty submit much of it
    assert len(np.unique(jobs.priority)) > 1


def test_users_have_habits() -> None:
    """Two jobs of one user are more alike than two of different users."""
    jobs = generate("poisson", 4000, seed=1)
    length = np.log(np.maximum(jobs.runtime, 1.0))
    within = np.mean([length[jobs.user == user].var() for user in np.unique(jobs.user) if (jobs.user == user).sum() > 20])
    assert within < 0.8 * length.var()


def test_the_same_seed_gives_the_same_users() -> None:
    first, again, other = generate("bursty", 200, seed=3), generate("bursty", 200, seed=3), generate("bursty", 200, seed=4)
    assert (first.user == again.user).all()
    assert (first.user != other.user).any()
