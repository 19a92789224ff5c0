"""Names of planners: `plan:POLICY`, `portfolio:A,B,…`, `recent:A,B,…` and `milp:K`, taken apart for `names`."""

from __future__ import annotations

import re

from queuewise.errors import InputError
from queuewise.policies.milp.terms import MOST_JOBS
from queuewise.sim.core.state import NO_LIMIT
from queuewise.workload.plain_numbers import whole_number

PLANNERS = {  # with an example of each
    "plan": "plan:sjf+easy",
    "portfolio": "portfolio:fcfs+easy,saf+easy,sjf+greedy",
    "recent": "recent:fcfs+easy,saf+easy,sjf+greedy",
}
TIMETABLE = "milp"  # the planner behind milp:K


def split_planner(name: str) -> tuple[str, tuple[str, ...], int] | None:
    """The planner, the complete names of its members, and how many jobs it plans for; None if the name is not that of a planner."""
    planner, colon, rest = name.partition(":")
    if planner == TIMETABLE and colon:
        return planner, *_split_timetable(name, rest)
    if planner not in PLANNERS or not colon:
        return None
    members = tuple(rest.split(",")) if planner != "plan" else (rest,)
    if not rest or (planner != "plan" and len(members) < 2):
        raise InputError(f"policy {name!r} names too few policies", hint=f"for example {PLANNERS[planner]}")
    if "" in members:
        raise InputError(f"policy {name!r} has nothing between two commas", hint=f"for example {PLANNERS[planner]}")
    if len(set(members)) < len(members):
        raise InputError(f"policy {name!r} names a policy twice", hint="leave one out")
    return planner, members, NO_LIMIT


def _split_timetable(name: str, rest: str) -> tuple[tuple[str, ...], int]:
    """`milp:K[~bound][@placement]`: jobs start in the order of a timetable, and where the placement puts them."""
    jobs = re.split("[~@]", rest, maxsplit=1)[0]
    number = whole_number(jobs)
    if number is None or not 1 <= number <= MOST_JOBS:
        raise InputError(f"policy {name!r}: {jobs!r} is no number of jobs from 1 to {MOST_JOBS}", hint="for example milp:8, or milp:4@tier")
    return (f"fcfs{rest.removeprefix(jobs)}",), number
