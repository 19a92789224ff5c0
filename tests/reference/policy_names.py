"""Names of policies, taken apart."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace

from reference import preemption

UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True)
class Policy:
    order: str
    backfill: str
    depth: int | None
    second_order: str
    placement: str
    option: str | None
    preemptive: str | None = None  # one of preemption.NAMES
    threshold: float | None = None
    max_wait: float = math.inf
    config: str = ""  # file with the parameters of `slurm`

    @property
    def migrates(self) -> bool:
        return self.backfill == "defrag"

    @classmethod
    def parse(cls, name: str) -> Policy:
        """`order[+backfill[/D][:order2]][~bound][@placement[:option]]`, or a preemptive policy as the first part.

        An order may have estimates of its own, as in `saf:predicted`. The order `random` alone backfills greedily.
        """
        rule, _, where = name.partition("@")
        rule, _, bound = rule.partition("~")
        unbounded = cls.parse_rule(name, rule, where)
        return replace(unbounded, max_wait=float(bound[:-1]) * UNITS[bound[-1]]) if bound else unbounded

    @classmethod
    def parse_rule(cls, name: str, rule: str, where: str) -> Policy:
        placement, _, option = (where or "pack").partition(":")
        first, _, parameter = rule.partition(":")
        if first in preemption.NAMES:
            return cls("fcfs", "none", None, "fcfs", placement, option or None, first, float(parameter) if parameter else None)
        if first == "defrag":
            order = parameter or "fcfs"
            return cls(order, "defrag", None, order, placement, option or None)
        leading, _, fill = rule.partition("+")
        if fill.partition(":")[0] == "slurm":
            return cls(leading, "slurm", None, leading, placement, option or None, config=fill.partition(":")[2])
        match = re.fullmatch(r"([\w:.-]+)(?:\+([a-z0-9-]+)(?:/(\d+))?(?::([\w:.-]+))?)?", rule)
        assert match, f"the reference cannot read the name {name!r}"
        order, fill, depth, second = match.groups()
        default_rule = "greedy" if order.partition(":")[0] in ("random", "power") else "none"
        return cls(order, fill or default_rule, int(depth) if depth else None, second or order, placement, option or None)
