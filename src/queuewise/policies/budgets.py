"""How much a policy that thinks may do, in units of work and not of time, so that the same replay gives the same schedule."""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.errors import InputError


@dataclass(frozen=True)
class Budgets:
    milp_work: int = 200  # nodes of the search of one integer program (`@milp`)
    plan_budget: int = 64  # rollouts of one decision (`plan:`, `portfolio:`)
    plan_samples: int = 8  # draws of the runtimes that each candidate is rolled out with

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not 1 <= value <= 1_000_000:
                raise InputError(f"--{name.replace('_', '-')} {value} is not between 1 and 1,000,000", hint="leave it out for the default")


USUAL_BUDGETS = Budgets()
