"""Dispatch head: an agent that names the first job of an order makes the schedule of that order with its backfill."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from effort import seeds, tries
from head_play import HEAD_ORDERS, assert_named_alike, play_order
from queuewise.cluster import load_cluster
from queuewise.cluster.conditions import Conditions
from queuewise.envs import QueuewiseEnv
from queuewise.policies import simulate
from queuewise.policies.estimating import declare_part, estimate_on
from queuewise.policies.schedule_snapshots import ScheduleSnapshots
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Workload
from stand_in import busy_days, small_cluster
from strategies import BOUNDS, PLACEMENTS, Case, worlds

FILLS = ("easy", "easy", "easy-strict", "conservative", "greedy")
ESTIMATES = ("", "", "", ":predicted", ":oracle")


@tries(240)
@given(
    worlds(), st.sampled_from(HEAD_ORDERS), st.sampled_from(ESTIMATES), st.sampled_from(FILLS), st.sampled_from(("", "", *HEAD_ORDERS)),
    st.sampled_from(BOUNDS), st.sampled_from(("pack", *PLACEMENTS)), st.booleans(),
)  # fmt: skip
def test_naming_the_first_of_an_order(
    world: tuple[Case, Conditions], order: str, estimates: str, fill: str, second: str, bound: str, placement: str, skip: bool
) -> None:
    case, conditions = world
    if conditions.quotas:  # the first in order of those with the best standing, which the agent does not see
        conditions = Conditions()
    policy = f"{order}{estimates}+{fill}{second and f':{second}{estimates}'}{bound}@{placement}"
    assert_named_alike(case, policy, conditions, skip_forced=skip)


def part_of(log: Workload, rows: NDArray[np.int64]) -> Workload:
    return declare_part(log.take(rows), log, rows)


@pytest.mark.parametrize("policy", ["wise~2h", "saf+easy", "aged+easy:sjf~1h", "wfp3:predicted+easy", "sjf+conservative"])
def test_windows_that_start_warm(policy: str) -> None:
    """Predictions are those of the whole log."""
    log, cluster = busy_days(260, load=1.3), small_cluster()
    estimate = estimate_on(log, cluster, "noisy:0.7").values
    snapshots = ScheduleSnapshots(simulate(log, cluster, "fcfs+easy", estimates=estimate))
    for first in (60, 120, 180):
        before, start = snapshots.before(first)
        rows = np.concatenate([before, np.arange(first, first + 60)])
        assert len(start.queue) > 0
        assert_named_alike(Case(part_of(log, rows), cluster, estimate[rows], seed=0, kill_at_limit=False), policy, start=start)


def test_an_environment_of_a_log_plays_the_same() -> None:
    """Through the public interface: warm start, bound and backfill are settings."""
    log, cluster = busy_days(260, load=1.3), small_cluster()
    env = QueuewiseEnv(
        "job", workload=log, cluster=cluster, episode_jobs=60, block=None, window=200, window_order="sjf:predicted", estimates="noisy:0.7",
        dispatch="head", backfill="easy:sjf:predicted", max_wait="2h", never_cut=True,
    )  # fmt: skip
    for window in (60, 150):
        env.reset(options={"window": window})
        episode = env.batch.episode(0)
        over = False
        while not over:
            over = env.step(int(np.flatnonzero(env.action_masks())[0]))[2]  # the first in the order of the window
        known = Estimates(episode.estimate, guessed=episode.circumstances.guessed)
        replayed = simulate(episode.workload, cluster, "sjf:predicted+easy~2h", estimates=known, start=episode.circumstances.start)
        np.testing.assert_array_equal(env.schedule().start, replayed.start)
        np.testing.assert_array_equal(env.schedule().piece_gpus, replayed.piece_gpus)


def crowded_days(seed: int) -> Case:
    """On nodes with GPUs and cores, on one pool of cores, or with whole GPUs alone and exact estimates, where reservations are kept."""
    log, cluster, how = busy_days(70, seed=seed, load=1.6), small_cluster(), "noisy:0.7"
    if seed % 3 == 1:
        log, cluster = log.replace(gpu_milli=np.zeros(len(log), np.int32)), load_cluster("flat:16")
    elif seed % 3 == 2:
        log, cluster, how = log.replace(cpu_milli=np.zeros(len(log), np.int32)), load_cluster("2x8:V100-16"), "oracle"
    return Case(log, cluster, estimate_on(log, cluster, how, seed).values, seed=seed, kill_at_limit=False)


@pytest.mark.parametrize("seed", seeds(12))
def test_long_queues(seed: int) -> None:
    """Orders differ much here: other heads make other schedules."""
    case = crowded_days(seed)
    for policy in ("saf+easy", "aged:predicted+easy:sjf:predicted~1h", "wfp3+easy", "sjf+conservative", "lcfs+greedy:saf~30m"):
        assert_named_alike(case, policy, skip_forced=seed % 2 == 0)
    starts = {tuple(play_order(case, f"{order}+easy").start) for order in ("fcfs", "saf", "wfp3", "aged")}
    assert len(starts) == 4
