"""Placement by an exact solver (HiGHS): `@milp`. docs/placement.md states the model.

`terms` are what it minimises, `gang_model` turns node states and moves into an integer program, `integer_program` solves
one, and `placement_solver` is what the engine asks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuewise.policies.milp.terms import parse_objective

if TYPE_CHECKING:
    from queuewise.policies.known import Jobs
    from queuewise.policies.milp.placement_solver import PlacementSolver


def solver_of(placement: str, jobs: Jobs) -> PlacementSolver:
    """What places jobs by a rule that the engine does not have."""
    from queuewise.policies.milp.placement_solver import PlacementSolver  # with its compiled entries

    cluster, tasks = jobs.machine, max(int(jobs.num_tasks.sum()), 1)
    objective = parse_objective(placement.removeprefix("milp"))
    return PlacementSolver(objective, cluster.num_nodes, int(cluster.node_gpus.max()), tasks, work=jobs.budgets.milp_work)
