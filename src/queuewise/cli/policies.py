"""`queuewise policies`: the parts of policy names, taken from the registries."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Policies:
    """List the orders, preemptive policies, backfill rules and placement rules.

    A policy name has the form order[+backfill[/depth][:order]][~bound][@placement]."""

    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: an object with the lists orders, preemptive, backfills and placements."""

    def run(self) -> None:
        from queuewise.cli.console import note, print_table
        from queuewise.policies.backfill import BACKFILLS
        from queuewise.policies.names import GRAMMAR, WISE, WISE_ORDER, WISE_POLICY
        from queuewise.policies.ordering import ORDERS
        from queuewise.policies.placing import PLACEMENTS, SOLVED_PLACEMENTS
        from queuewise.policies.preemptive import PREEMPTIVE

        orders = [{"name": WISE, "formula": ":".join(WISE_ORDER), "source": f"recommended; alone it means {WISE_POLICY}"}]
        orders += [{"name": name, "formula": rule.formula, "source": rule.source} for name, rule in ORDERS.items()]
        preemptive = [{"name": name, "summary": rule.summary, "source": rule.source} for name, rule in PREEMPTIVE.items()]
        backfills = [{"name": name, "summary": rule.summary} for name, rule in BACKFILLS.items()]
        placements = [{"name": name, "summary": rule.summary} for name, rule in (PLACEMENTS | SOLVED_PLACEMENTS).items()]
        if self.json:
            parts = {"orders": orders, "preemptive": preemptive, "backfills": backfills, "placements": placements}
            print(json_text.dumps(parts, indent=2, ensure_ascii=False))
            return
        print_table(["order", "lowest first", "source"], ([*row.values()] for row in orders), left=3)
        print_table(["preemptive", "which jobs may preempt others", "source"], ([*row.values()] for row in preemptive), left=3)
        print_table(["+backfill", "which jobs may start while the first job waits"], ([*row.values()] for row in backfills), left=2)
        print_table(["@placement", "where a job is placed"], ([*row.values()] for row in placements), left=2)
        note(f"form of a policy name: {GRAMMAR}")
