"""docs/policies.md and the registries say the same."""

from __future__ import annotations

import re
from pathlib import Path

from queuewise.policies.backfill import BACKFILLS
from queuewise.policies.ordering import ORDERS
from queuewise.policies.placing import PLACEMENTS, SOLVED_PLACEMENTS
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
    assert rows("Placement") == {name: (rule.summary,) for name, rule in (PLACEMENTS | SOLVED_PLACEMENTS).items()}


def test_the_readme_counts_what_there_is() -> None:
    readme = " ".join((Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8").split())
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
    placements = PLACEMENTS | SOLVED_PLACEMENTS
    registries = ((ORDERS, "orders"), (PREEMPTIVE, "preemptive policies"), (BACKFILLS, "backfill rules"), (placements, "placements"))
    for registry, what in registries:
        number = words[len(registry)] if len(registry) < len(words) else str(len(registry))
        assert f"{number} {what}" in readme


def test_the_normative_page_names_every_rule() -> None:
    page = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text(encoding="utf-8")
    names = [*ORDERS, *PREEMPTIVE, *BACKFILLS, *PLACEMENTS, *SOLVED_PLACEMENTS]
    assert [name for name in names if f"`{name}" not in page and f"+{name}" not in page] == []
