"""Whether the engine and the independent reference make the same schedule under any conditions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import reference
from queuewise.cluster.conditions import Conditions
from queuewise.policies import parse_policy, simulate
from queuewise.policies.estimating import estimate_on
from queuewise.sim.core.schedule import Schedule
from reference.check import Stay, violations
from reference.own import Own
from strategies import Case

PERFECT = Conditions()


def assert_same_schedule(
    case: Case,
    policy: str,
    dispatch: str = "reorder",
    conditions: Conditions = PERFECT,
    *,
    twin: str | None = None,
    own: Own | None = None,
    params: Sequence[float] | None = None,
) -> None:
    """Job by job, run by run and GPU by GPU. `twin`: what the reference calls the policy, if that is another name."""
    options: dict[str, Any] = {"dispatch": dispatch, "seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    predicted = estimate_on(case.workload, case.cluster, "predicted", case.seed).values if "qssf" in policy else None
    parsed = parse_policy(policy)
    others = {name: estimate_on(case.workload, case.cluster, name, case.seed).values for name in parsed.own_estimates}
    known: dict[str, Any] = {"estimate": case.estimate, "guessed": case.guessed, "predicted": predicted, "own_estimates": others}
    expected = reference.simulate(case.workload, case.cluster, twin or policy, own=own, **known, **options)
    found = simulate(case.workload, case.cluster, policy, estimates=case.known, params=params, **options)
    assert_equal(found, expected, f"{policy} {dispatch} {conditions}")


def assert_equal(found: Schedule, expected: reference.Result, label: str) -> None:
    expected_pieces = [(job, start, end, *piece) for job, start, end, pieces in expected.runs for piece in pieces]
    found_pieces = [(s.job, s.start, s.end, s.node, s.tasks, s.gpus) for s in stays(found)]
    assert sorted(found_pieces) == sorted(expected_pieces), label
    np.testing.assert_array_equal(found.status, expected.status, err_msg=label)
    np.testing.assert_array_equal(found.start, expected.start, err_msg=label)
    np.testing.assert_array_equal(found.end, expected.end, err_msg=label)
    np.testing.assert_array_equal(found.preemptions, expected.preemptions, err_msg=label)


def replay(case: Case, policy: str, conditions: Conditions, dispatch: str = "reorder") -> Schedule:
    return simulate(
        case.workload, case.cluster, policy, dispatch=dispatch, estimates=case.known, seed=case.seed, kill_at_limit=case.kill_at_limit,
        conditions=conditions,
    )  # fmt: skip


def assert_possible(case: Case, found: Schedule, policy: str, conditions: Conditions) -> None:
    """Capacity, whole gangs of an allowed size, in each run exactly the work that was left, and no job lost."""
    columns = (found.start, found.end, found.status, found.preemptions, stays(found))
    options: dict[str, Any] = {"kill_at_limit": case.kill_at_limit, "policy": policy, "conditions": conditions}
    assert violations(case.workload, case.cluster, *columns, **options) == []


def stays(schedule: Schedule) -> list[Stay]:
    columns = (schedule.piece_job, schedule.piece_node, schedule.piece_tasks, schedule.piece_gpus, schedule.piece_start, schedule.piece_end)
    return [Stay(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]
