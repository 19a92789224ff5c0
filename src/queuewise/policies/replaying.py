"""`simulate`: replay a workload on a cluster under a policy given by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from functools import partial

import numpy as np

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.account_shares import account_names
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.policies.deciding import Deciding, driver, listed_order
from queuewise.policies.estimating import estimate_on, history_on
from queuewise.policies.interface import Decider, PrefixedPolicies, ReplayRequest
from queuewise.policies.known import Jobs
from queuewise.policies.names import Policy, parse_dispatch, parse_policy, plays_apart
from queuewise.policies.resuming import rules_after, start_from
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.snapshot_taking import SnapshotTaker
from queuewise.policies.user_code import explained
from queuewise.prefixes import policies_of
from queuewise.sim.core import engine
from queuewise.sim.core.rules import Rules
from queuewise.sim.core.schedule import Schedule
from queuewise.sim.queue.account_tree import NOBODY
from queuewise.workload.estimates import Estimates, default_estimates
from queuewise.workload.jobs import Floats, Workload


def simulate(
    workload: Workload,
    cluster: Cluster,
    policy: str | Decider,
    *,
    dispatch: str = "reorder",
    estimates: str | Floats | Estimates | None = None,
    seed: int = 0,
    kill_at_limit: bool = False,
    conditions: Conditions = PERFECT,
    max_wait: str | None = None,
    params: Sequence[float] | None = None,
    start: Snapshot | None = None,
    budgets: Budgets = USUAL_BUDGETS,
) -> Schedule:
    """Replay a workload under a policy, which is a name or an object that decides, and return the schedule.

    `estimates` names what policies know about runtimes (see `workload.estimates`), or is an array [J] of seconds, which count
    as limits; an `Estimates` says itself whether they are guesses. By default it is `requested` if the log has requests,
    `predicted` if it has none, and `oracle` for a workload model without.
    `max_wait`, for example "3d", bounds the waits under a policy whose name has no bound. `params` are numbers for the
    policy's own functions, instead of the PARAMS of their file. With a snapshot as `start`, the replay begins with its
    jobs and nodes instead of an empty cluster. `budgets` limit the work of policies that solve or plan.
    """
    name, known = known_estimates(workload, cluster, estimates, seed)
    if isinstance(policy, str) and plays_apart(policy):
        parse_dispatch(dispatch)
        if params is not None:
            raise InputError(f"{policy} takes no params", hint="leave params out")
        options = dispatch, known.values, name, known.guessed, seed, kill_at_limit, conditions, max_wait, start, budgets
        policies: PrefixedPolicies = policies_of(policy)
        return policies.replay(ReplayRequest(workload, cluster, policy, *options))
    if isinstance(policy, type) or not (isinstance(policy, str) or callable(getattr(policy, "decide", None))):
        raise InputError(
            f"policy {policy!r} is neither a name nor an object that decides",
            hint="give a name such as sjf+easy, or an object with a method decide(view)",
        )
    parsed = (parse_policy(policy) if isinstance(policy, str) else Policy("fcfs")).bounded(max_wait)
    deciding = _deciding(policy, parsed)
    if deciding is not None and conditions.resize != "none":
        raise InputError(
            f"{deciding.name} decides by itself which jobs move, so jobs cannot be resized", hint="remove resize, or use a score function"
        )
    jobs = known_jobs(parsed, workload, cluster, known, seed, conditions, budgets)
    with explained(parsed.own):
        rules = rules_after(start, parsed.rules(jobs, dispatch, params))
        if deciding is not None:
            rules = dataclasses.replace(rules, order=listed_order(), stops=max(rules.stops, 1))  # it may stop jobs
        accounts = named_accounts(rules, jobs)
        taker = partial(SnapshotTaker, workload, cluster, rules, accounts)
        return engine.simulate(
            workload,
            cluster,
            rules,
            estimate=known.values,
            history=jobs.history,
            policy=policy if isinstance(policy, str) else type(policy).__name__,
            estimates=name,
            kill_at_limit=kill_at_limit,
            conditions=conditions,
            drive=None if deciding is None else driver(deciding, cluster, seed, taker),
            begin=None if start is None else partial(start_from, start, workload, accounts),
        )


def _deciding(policy: str | Decider, parsed: Policy) -> Deciding | None:
    """Who decides in Python, if anybody does."""
    if not isinstance(policy, str):
        return Deciding(lambda: policy, type(policy).__name__)
    return Deciding.of_class(parsed.own[0]) if parsed.decides_in_python else None


def known_jobs(
    policy: Policy,
    workload: Workload,
    cluster: Cluster,
    known: Estimates,
    seed: int,
    conditions: Conditions,
    budgets: Budgets = USUAL_BUDGETS,
) -> Jobs:
    """What the policy may know about the jobs."""
    history = history_on(workload, cluster, policy.history, seed)
    own = {name: estimate_on(workload, cluster, name, seed).values for name in policy.own_estimates}
    return policy.sees.of(
        workload, known.values, guessed=known.guessed, seed=seed, history=history, own_estimates=own, cluster=cluster,
        fairness=conditions.fairness, budgets=budgets,
    )  # fmt: skip


def named_accounts(rules: Rules, jobs: Jobs) -> list[tuple[str | None, str | None]]:
    """The names of the account tree, none if the policy has no fair order."""
    return account_names(jobs) if rules.accounts is not NOBODY else []


def known_estimates(workload: Workload, cluster: Cluster, estimates: str | Floats | Estimates | None, seed: int) -> tuple[str, Estimates]:
    """The name of the estimates, and what policies know about runtimes."""
    if estimates is None:
        estimates = default_estimates(workload)
    if isinstance(estimates, str):
        return estimates, estimate_on(workload, cluster, estimates, seed)
    return "given", _checked(workload, estimates if isinstance(estimates, Estimates) else Estimates(estimates))


def _checked(workload: Workload, estimates: Estimates) -> Estimates:
    values = estimates.values
    if values.shape != (len(workload),) or not (np.isfinite(values) & (values >= 0)).all():
        raise InputError("estimates must be one finite, non-negative number per job", hint="give seconds, in the order of the jobs")
    return estimates
