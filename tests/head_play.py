"""An agent that names, at every decision, the first job of an order, as the reference scores it, for comparison with replays."""

from __future__ import annotations

from typing import Any

import numpy as np

from agreement import stays
from queuewise.cluster.conditions import Conditions
from queuewise.envs.circumstances import Circumstances
from queuewise.envs.env_memory import make_template
from queuewise.envs.env_setup import build_setup
from queuewise.envs.episodes import lay_out_episode
from queuewise.envs.stepping import RUNS_ON
from queuewise.policies import parse_policy, simulate
from queuewise.policies.estimating import estimate_on
from queuewise.policies.snapshot import Snapshot
from queuewise.sim.core.schedule import Schedule
from reference.orders import SCORES, Facts, in_order
from reference.state import Machine, make_jobs
from strategies import Case

PERFECT = Conditions()
HEAD_ORDERS = tuple(name for name in SCORES if name != "qssf")


def play_order(case: Case, policy: str, conditions: Conditions = PERFECT, start: Snapshot | None = None, **settings: Any) -> Schedule:
    """The schedule of an episode of the jobs of a case, with dispatch head, in which the agent names the first job of the policy's order.

    The backfill and the bound of the task are those of the policy; without a backfill order, candidates go by the policy's order.
    """
    parsed = parse_policy(policy)
    order = f"{parsed.order}:{parsed.estimates}" if parsed.estimates else parsed.order
    second = f"{parsed.backfill_order}:{parsed.backfill_estimates}" if parsed.backfill_estimates else parsed.backfill_order
    task: dict[str, Any] = {"dispatch": "head", "backfill": f"{parsed.backfill}:{second or order}", "window": len(case.workload)} | settings
    setup = build_setup("job", workload=[case.workload], cluster=case.cluster, never_cut=True, reward=(), **task)
    rest: dict[str, Any] = {"seed": case.seed, "start": start, "guessed": case.guessed}
    circumstances = Circumstances(conditions, case.kill_at_limit, parsed.max_wait_s, parsed.placement, **rest)
    episode = lay_out_episode(case.workload, case.cluster, setup.settings, setup.layout, case.estimate, circumstances)
    known = estimate_on(case.workload, case.cluster, parsed.estimates, case.seed).values if parsed.estimates else case.estimate
    facts = Facts(case.workload, make_jobs(case.workload, Machine.of(case.cluster), case.estimate), None, case.seed, known)
    batch = setup.batch(1, threads=1)
    with np.errstate(invalid="ignore"):  # plain kernels multiply inf by 0
        batch.begin([0], [make_template(episode)])
        while batch.outcome[0] == RUNS_ON:
            legal = {int(batch.window_jobs(0)[q]): int(q) for q in np.flatnonzero(batch.mask[0, :-1])}
            named = in_order(parsed.order, facts, set(legal), float(batch.state(0).clock.now))
            batch.step(np.array([legal[named[0]] if named else batch.num_actions - 1]))
    schedule = batch.schedule(0, policy)
    batch.close()
    return schedule


def assert_named_alike(case: Case, policy: str, conditions: Conditions = PERFECT, start: Snapshot | None = None, **settings: Any) -> None:
    """The episode and the replay under the policy are the same, job by job and GPU by GPU."""
    played = play_order(case, policy, conditions, start, **settings)
    options: dict[str, Any] = {"estimates": case.known, "seed": case.seed, "kill_at_limit": case.kill_at_limit}
    replayed = simulate(case.workload, case.cluster, policy, conditions=conditions, start=start, **options)
    for column in ("status", "start", "end", "preemptions"):
        np.testing.assert_array_equal(getattr(played, column), getattr(replayed, column), err_msg=f"{policy} {conditions} {column}")
    assert stays(played) == stays(replayed), f"{policy} {conditions}"
