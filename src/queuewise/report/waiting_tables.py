"""Where waiting came from: tables by policy, partition and account, and a sentence for each policy."""

from __future__ import annotations

from collections.abc import Mapping

from queuewise.evaluation.cause_walk import CAUSES, MEANINGS
from queuewise.evaluation.wait_causes import CauseRow, WaitCauses, in_words
from queuewise.report.text_tables import TextTable

MOST_PARTS = 12  # partitions or accounts with a row of their own
MOST_POLICIES = 3  # with rows by partition and account
PARTS = {"partition": "partition", "account": "group"}  # name in the page, key of the breakdown

Causes = Mapping[str, WaitCauses]  # by policy


def waiting_tables(causes: Causes) -> dict[str, TextTable]:
    """One row per policy, then one per partition (account) and policy. Nothing if nobody waited.

    Partitions in which nobody waited are left out, and so is a table if there is only one partition.
    """
    if not any(its.shares() for its in causes.values()):
        return {}
    tables = {"waiting": _table("policy", [(policy, _all(its)) for policy, its in causes.items()])}
    shown = dict(list(causes.items())[:MOST_POLICIES])
    for name, key in PARTS.items():
        if rows := _by_part(shown, key):
            tables[f"waiting by {name}"] = _table(name, [(part, row) for part, _, row in rows], [policy for _, policy, _ in rows])
    return tables


def waiting_sentences(causes: Causes) -> list[str]:
    """The answer in words, for each policy under which a job waited, and what the causes mean."""
    shares = {policy: its.shares() for policy, its in causes.items() if its.shares()}
    found = [f"Waiting under {policy}: {in_words(of_policy)}." for policy, of_policy in shares.items()]
    found += [f"{cause}: the job waits for {MEANINGS[cause]}." for cause in CAUSES if any(cause in its for its in shares.values())]
    if len(causes) > MOST_POLICIES:
        found.append(f"The tables by partition and account show the first {MOST_POLICIES} policies.")
    return found


def _all(its: WaitCauses) -> CauseRow:
    seconds = its.seconds[its.finished]
    return CauseRow("all", len(seconds), float(seconds.sum()), its.shares())


def _by_part(causes: Causes, key: str) -> list[tuple[str, str, CauseRow]]:
    """(part, policy, row): the parts that waited longest under the first policy first, the rest of them together."""
    rows = {policy: {row.key: row for row in its.by(key)} for policy, its in causes.items()}
    all_parts = dict.fromkeys(part for of_policy in rows.values() for part in of_policy)
    if len(all_parts) < 2:
        return []
    parts = [part for part in all_parts if any(part in of_policy and of_policy[part].wait_s > 0 for of_policy in rows.values())]
    found = [(part, policy, rows[policy][part]) for part in parts[:MOST_PARTS] for policy in causes if part in rows[policy]]
    others = parts[MOST_PARTS:]
    for policy in causes if others else ():
        found.append((f"{len(others)} others", policy, _together([rows[policy][part] for part in others if part in rows[policy]])))
    return found


def _together(rows: list[CauseRow]) -> CauseRow:
    wait_s = sum(row.wait_s for row in rows)
    seconds = {cause: sum(row.wait_s * row.shares.get(cause, 0.0) for row in rows) for cause in CAUSES}
    return CauseRow("others", sum(row.jobs for row in rows), wait_s, {cause: s / wait_s for cause, s in seconds.items() if s > 0})


def _table(name: str, rows: list[tuple[str, CauseRow]], policies: list[str] | None = None) -> TextTable:
    """Columns of causes that nobody waited for are left out."""
    shown = [cause for cause in CAUSES if any(cause in row.shares for _, row in rows)]
    headings = [name, *(["policy"] if policies is not None else []), "jobs", "mean wait [s]", "all waits [h]", *shown]
    body = []
    for i, (label, row) in enumerate(rows):
        mean = row.wait_s / row.jobs if row.jobs else 0.0
        figures = [f"{row.jobs:,}", f"{mean:,.1f}", f"{row.wait_s / 3600:,.1f}"]
        shares = [f"{100 * row.shares[cause]:.1f} %" if cause in row.shares else "–" for cause in shown]
        body.append([label, *([policies[i]] if policies is not None else []), *figures, *shares])
    return headings, body
