"""What stands for `plan:POLICY`, `portfolio:A,B,C`, `recent:A,B,C` and `milp:K` (`PrefixedPolicies` of the interface)."""

from __future__ import annotations

from queuewise.cluster.conditions import Conditions
from queuewise.errors import InputError
from queuewise.policies.interface import Decider, ReplayRequest
from queuewise.policies.names import parse_policy
from queuewise.policies.planning.planned_replay import KINDS
from queuewise.sim.core.schedule import Schedule

MEANING = {
    "plan": "rollouts under {}, after which another job may start first, or none",
    "portfolio": "acts as the one of {} that does best in rollouts",
    "recent": "acts as the one of {} that would have done best in the last seven days",
}


def describe(policy: str) -> str:
    parsed = parse_policy(policy)
    if parsed.planner == "milp":
        return f"starts the next {parsed.depth} jobs by a timetable that a solver makes at every event"
    return MEANING[parsed.planner].format(", ".join(parsed.members))


def decider(policy: str, *, dispatch: str, conditions: Conditions, max_wait: str | None) -> Decider:
    raise InputError(f"{policy} plans with the whole replay at hand, which a view does not show", hint="give simulate its name")


def replay(request: ReplayRequest) -> Schedule:
    parsed = parse_policy(request.policy)
    if parsed.planner == "milp":
        from queuewise.policies.planning.timetable import Timetable

        return Timetable(request, parsed.members, parsed.depth).run()
    return KINDS[parsed.planner](request, parsed.members).run()
