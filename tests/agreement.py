"""Whether the engine and the independent reference make the same schedule under any conditions."""

from __future__ import annotations

import numpy as np

import reference
from queuewise.cluster.conditions import Conditions
from queuewise.policies import simulate
from queuewise.workload.estimates import estimate
from strategies import Case


def assert_same_schedule(case: Case, policy: str, dispatch: str, conditions: Conditions) -> None:
    """Job by job and GPU by GPU."""
    options = {"dispatch": dispatch, "seed": case.seed, "kill_at_limit": case.kill_at_limit, "conditions": conditions}
    predicted = estimate(case.workload, "predicted", case.seed).values if "qssf" in policy else None
    expected = reference.simulate(case.workload, case.cluster, policy, estimate=case.estimate, predicted=predicted, **options)
    found = simulate(case.workload, case.cluster, policy, estimates=case.estimate, **options)
    label = f"{policy} {dispatch} {conditions}"
    np.testing.assert_array_equal(found.status, expected.status, err_msg=label)
    np.testing.assert_array_equal(found.start, expected.start, err_msg=label)
    np.testing.assert_array_equal(found.end, expected.end, err_msg=label)
    columns = (found.piece_job, found.piece_node, found.piece_tasks, found.piece_gpus)
    assert sorted(zip(*(values.tolist() for values in columns), strict=True)) == expected.pieces, label
