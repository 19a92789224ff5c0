"""docs/policies.md and the registries say the same."""

from __future__ import annotations

import re
from pathlib import Path

from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.ordering import ORDERS
from queuewise.policies.placing import PLACEMENTS
from queuewise.policies.preemptive import PREEMPTIVE

PAGE = (Path(__file__).parents[3] / "docs" / "policies.md").read_text(encoding="utf-8")


def rows(section: str) -> dict[str, tuple[str, ...]]:
    text = PAGE.split(f"\n## {section}\n")[1].split("\n## ")[0]
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in text.splitlines() if line.startswith("| `")]
    return {re.sub("[` ]", "", first): tuple(rest) for first, *rest in cells}


def test_orders_and_their_formulas_are_documented() -> None:
    assert rows("Orders") == {name: (order.formula, order.source) for name, order in ORDERS.items()}


def test_backfill_rules_are_documented() -> None:
    assert rows("Backfill") == {name: (rule.summary,) for name, rule in BACKFILLS.items()}


def test_preemptive_policies_are_documented() -> None:
    assert rows("Preemptive") == {name: (rule.summary, rule.source) for name, rule in PREEMPTIVE.items()}


def test_placement_rules_are_documented() -> None:
    assert rows("Placement") == {name: (rule.summary,) for name, rule in PLACEMENTS.items()}
