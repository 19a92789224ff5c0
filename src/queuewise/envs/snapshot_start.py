"""Episodes that start from a snapshot: the tables of the engine, and what an episode knows of the time before."""

from __future__ import annotations

from collections.abc import Mapping

from queuewise.envs.bookkeeping import MOST_HALF_LIVES, USAGE_HALF_LIFE_S
from queuewise.envs.columns import EpisodeState, Task
from queuewise.policies.resuming import start_from
from queuewise.policies.snapshot import Snapshot
from queuewise.sim.core.state import Machine, State, World
from queuewise.workload.jobs import Workload


def start_episode(
    snapshot: Snapshot,
    usage: Mapping[str, float] | None,
    workload: Workload,
    world: World,
    machine: Machine,
    state: State,
    task: Task,
    episode_state: EpisodeState,
) -> State:
    """Put the tables of an episode that has not begun into the state of the snapshot; returns the state to use.

    `usage` is what each user has used, decayed to the instant of the snapshot. If it is None, the jobs that run count.
    """
    state = start_from(snapshot, workload, (), world, machine, state)
    rows = {job_id: row for row, job_id in enumerate(workload.job_id.tolist())}
    first = float(task.scale.first_time)
    if usage is None:
        for one in snapshot.running:
            row = rows[one.job.job_id]
            if workload.user[row] >= 0:
                episode_state.usage[workload.user[row]] += task.job_size[row] * world.estimate[row] * _weight(one.first_start - first)
    else:
        others = int(task.config.num_users)
        numbers = {name: number for number, name in enumerate(workload.users[:others])}
        for name, amount in usage.items():
            episode_state.usage[numbers.get(name, others)] += amount * _weight(snapshot.now - first)
    if world.policy.can_restart:
        for job in snapshot.jobs:
            episode_state.served[rows[job.job.job_id]] = sum(run.end - run.start for run in job.runs)
    return state


def usage_by_user(workload: Workload, now: float, task: Task, episode_state: EpisodeState) -> dict[str, float]:
    """What each user has used, decayed to `now`, as `start_episode` takes it. The name "" stands for users without jobs."""
    decay = 1.0 / _weight(now - float(task.scale.first_time))
    names = (*workload.users[: int(task.config.num_users)], "")
    return {name: float(amount) * decay for name, amount in zip(names, episode_state.usage, strict=True) if amount > 0}


def _weight(seconds: float) -> float:
    """Of usage this long after the first submission: newer usage counts more."""
    return 2.0 ** min(seconds / USAGE_HALF_LIFE_S, MOST_HALF_LIVES)
