"""How a policy that thinks (a solver, a planner) came to its decisions: how many, how long each took, and how good they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(eq=False)
class Thinking:
    """Statistics of a replay. `microseconds` are measured, so they differ from run to run; everything else does not."""

    microseconds: list[float] = field(default_factory=list)  # of each decision
    gaps: list[float] = field(default_factory=list)  # of each answer of a solver: (objective − bound) ÷ |objective|
    fallbacks: int = 0  # answers of a rule, because the solver found none within its limit
    choices: dict[str, int] = field(default_factory=dict)  # what a planner chose, and how often

    def note(self, microseconds: float) -> None:
        self.microseconds.append(microseconds)

    def as_dict(self) -> dict[str, Any]:
        taken = np.array(self.microseconds)
        found: dict[str, Any] = {
            "decisions": len(taken),
            "decision_us": {"mean": float(taken.mean()), "p99": float(np.quantile(taken, 0.99))} if len(taken) else None,
        }
        if self.gaps:
            found |= {"gap": {"mean": float(np.mean(self.gaps)), "max": float(np.max(self.gaps))}, "fallbacks": self.fallbacks}
        return found | ({"choices": self.choices} if self.choices else {})
