"""`simulate`: replay a workload on a cluster under a policy given by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.players import PlayRequest, is_played, play
from queuewise.policies.deciding import driver
from queuewise.policies.estimating import estimate_on, history_on
from queuewise.policies.known import Jobs
from queuewise.policies.names import Policy, parse_dispatch, parse_policy
from queuewise.policies.user_code import explained
from queuewise.sim.core import engine
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Floats, Workload


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str,
    *,
    dispatch: str = "reorder",
    estimates: str | Floats = "requested",
    seed: int = 0,
    kill_at_limit: bool = False,
    conditions: Conditions = PERFECT,
    max_wait: str | None = None,
    params: Sequence[float] | None = None,
) -> Schedule:
    """Replay a workload under a policy and return the schedule.

    `estimates` names what policies know about runtimes (see `workload.estimates`), or is an array [J] of seconds.
    `max_wait`, for example "3d", bounds the waits under a policy whose name has no bound. `params` are numbers for the
    policy's own functions, instead of the PARAMS of their file.
    """
    name, known = known_estimates(workload, cluster, estimates, seed)
    if is_played(policy):
        parse_dispatch(dispatch)
        if kill_at_limit or conditions != PERFECT:
            raise InputError(
                f"{policy} can only be replayed on a faultless machine without limits and shares",
                hint="remove --kill-at-limit and conditions",
            )
        return play(PlayRequest(workload, cluster, policy, dispatch, known, name, seed))
    parsed = parse_policy(policy).bounded(max_wait)
    if parsed.decides_in_python and conditions.resize != "none":
        raise InputError(
            f"{policy} decides by itself which jobs move, so jobs cannot be resized", hint="remove resize, or use a score function"
        )
    jobs = known_jobs(parsed, workload, cluster, known, seed, conditions)
    drive = driver(parsed.own[0], cluster, seed) if parsed.decides_in_python else None
    with explained(parsed.own):
        return engine.simulate(
            workload,
            cluster,
            parsed.rules(jobs, dispatch, params),
            estimate=known,
            history=jobs.history,
            policy=policy,
            estimates=name,
            kill_at_limit=kill_at_limit,
            conditions=conditions,
            drive=drive,
        )


def known_jobs(policy: Policy, workload: Workload, cluster: Cluster, estimate: Floats, seed: int, conditions: Conditions) -> Jobs:
    """What the policy may know about the jobs."""
    history = history_on(workload, cluster, policy.history, seed)
    own = {name: estimate_on(workload, cluster, name, seed).values for name in policy.own_estimates}
    return policy.sees.of(workload, estimate, seed=seed, history=history, own_estimates=own, cluster=cluster, fairness=conditions.fairness)


def known_estimates(workload: Workload, cluster: Cluster, estimates: str | Floats, seed: int) -> tuple[str, Floats]:
    """The name of the estimates, and what policies know about runtimes."""
    if isinstance(estimates, str):
        return estimates, estimate_on(workload, cluster, estimates, seed).values
    return "given", _checked(workload, estimates)


def _checked(workload: Workload, estimates: Floats) -> Floats:
    if estimates.shape != (len(workload),) or not (np.isfinite(estimates) & (estimates >= 0)).all():
        raise InputError("estimates must be one finite, non-negative number per job", hint="give seconds, in the order of the jobs")
    return estimates
