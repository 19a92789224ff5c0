"""What if: the same replay with another load or other nodes, beside the one as it is. `simulate` and `evaluate` share it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import tyro

if TYPE_CHECKING:
    from queuewise.cluster import Cluster
    from queuewise.cluster.conditions import Conditions
    from queuewise.evaluation.experiment import Cell
    from queuewise.evaluation.judging import Result

SHOWN: tuple[tuple[str, str, str], ...] = (  # label, key of the flattened summary, unit
    ("mean wait", "wait_s.mean", "s"),
    ("median wait", "wait_s.p50", "s"),
    ("p99 wait", "wait_s.p99", "s"),
    ("longest wait", "wait_s.max", "s"),
    ("bounded slowdown", "bounded_slowdown.mean", ""),
    ("GPU use", "gpu_utilisation", "%"),
    ("CPU use", "cpu_utilisation", "%"),
    ("completed", "completed", "jobs"),
)
NOT_ENDED = ("rejected", "cancelled", "failed", "unfinished")  # rows where there are such jobs


@tyro.conf.configure(tyro.conf.OmitArgPrefixes)
@dataclass(frozen=True)
class WhatIf:
    """What is changed for the second replay. --load-factor belongs to it as well."""

    add_nodes: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="N:GROUP")] = ()
    """What if: add N nodes like those of a group, e.g. 4:c24. Repeat to add several kinds. The result stands beside the one as it is."""
    drain: Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NODES")] = ()
    """What if: nothing starts on these nodes. A name, a group or a pattern, e.g. 'c20-*'. Repeat for several."""

    @property
    def changes_nodes(self) -> bool:
        return bool(self.add_nodes or self.drain)

    def cluster(self, cluster: Cluster) -> Cluster:
        from queuewise.cluster.altered import add_nodes, parse_added

        for text in self.add_nodes:
            cluster = add_nodes(cluster, *parse_added(text))
        return cluster

    def conditions(self, conditions: Conditions, cluster: Cluster, first: float) -> Conditions:
        from queuewise.cluster.altered import drain_nodes

        return drain_nodes(conditions, cluster, self.drain, first)

    def title(self, load_factor: float | None) -> str:
        """What is changed, empty if nothing is."""
        parts = [f"{load_factor:g} times the load"] if load_factor is not None else []
        parts += [f"{text.replace(':', ' more ', 1)}" for text in self.add_nodes] + [f"{text} drained" for text in self.drain]
        return "what if: " + ", ".join(parts) if parts else ""


def figure_rows(before: Mapping[str, Any], after: Mapping[str, Any], more: Sequence[str] = ()) -> list[list[str]]:
    """Figures of one policy: label, as is, what if, difference. `more` are names of further figures."""
    rows = []
    seldom = [(name, name, "jobs") for name in NOT_ENDED if before.get(name) or after.get(name)]
    for label, key, unit in (*SHOWN, *seldom, *((name, name, "") for name in more)):
        old, new = before.get(key), after.get(key)
        if old is not None or new is not None:
            rows.append([label, _shown(old, unit), _shown(new, unit), difference(old, new, unit)])
    return rows


def _shown(value: float | None, unit: str) -> str:
    from queuewise.report.readable import duration, figure

    if unit == "s":
        return duration(value)
    if unit == "%":
        return "–" if value is None else f"{value:.1%}"
    return figure(value, 0 if unit == "jobs" else 2)


def difference(old: float | None, new: float | None, unit: str = "") -> str:
    """What changed: points for shares and numbers of jobs, otherwise percent."""
    if old is None or new is None:
        return "–"
    if unit == "%":
        return f"{100 * (new - old):+.1f} points"
    if unit == "jobs":
        return f"{new - old:+,.0f}"
    return "0 %" if new == old else "–" if not old else f"{new / old - 1:+.1%}"


def same_lines(as_is: Sequence[str], what_if: Sequence[str]) -> list[str]:
    """Lines about both replays, once if they are the same."""
    both = [line for line in what_if if line in as_is]
    return [
        *both, *(f"as is: {line}" for line in as_is if line not in both), *(f"what if: {line}" for line in what_if if line not in both),
    ]  # fmt: skip


def other_jobs(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """A sentence for each policy under which other jobs ended than as it is. Each mapping has the figures of a policy, and its name."""
    return [
        f"{new['policy']}: the columns are means over different jobs: {old['completed']:,} end as is, {new['completed']:,} what if"
        for old, new in zip(before, after, strict=True)
        if any(old[name] != new[name] for name in ("completed", *NOT_ENDED))
    ]


def print_replays(title: str, before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]], more: Sequence[str] = ()) -> None:
    """One table for all policies: as is, what if, difference."""
    from queuewise.cli.console import print_table
    from queuewise.evaluation.results import flatten

    rows = []
    for old, new in zip(before, after, strict=True):
        for number, row in enumerate(figure_rows(flatten(old), flatten(new), more)):
            rows.append([new["policy"] if number == 0 else "", *row])
    print_table(["policy", "", "as is", "what if", "difference"], rows, title=title, left=2)


def count_jobs(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Per policy, over all windows: how many jobs ended and how many did not."""
    counts: dict[str, dict[str, Any]] = {}
    for cell in cells:
        its = counts.setdefault(cell.policy, {"policy": cell.policy} | dict.fromkeys(("completed", *NOT_ENDED), 0))
        for name in ("completed", *NOT_ENDED):
            its[name] += int(cell.metrics.get(name) or 0)
    return list(counts.values())


def compare_results(before: Result, after: Result, *, paired: bool) -> list[dict[str, Any]]:
    """Per policy, in the order of `after`: the score as it is, the score if, and the difference; with an interval if units are paired."""
    from queuewise.evaluation.statistics import compare

    old = {standing.policy: standing for standing in before.standings}
    rows = []
    for standing in after.standings:
        mean = old[standing.policy].mean
        its = compare(after.series[standing.policy], before.series[standing.policy]) if paired else None
        bounds = None if its is None or its.ci95 is None or not mean else [100 * bound / mean for bound in its.ci95]
        percent = 100 * (standing.mean / mean - 1) if mean else None
        rows.append({"policy": standing.policy, "as_is": mean, "what_if": standing.mean, "diff_percent": percent, "diff_ci95": bounds})
    return rows


def print_results(title: str, rows: Sequence[Mapping[str, Any]], before: Result, after: Result, *, paired: bool) -> None:
    from queuewise.cli.console import note, print_table
    from queuewise.report.readable import duration, figure
    from queuewise.report.text_tables import score_digits

    digits, shown = score_digits(after), []
    for row in rows:
        bounds = row["diff_ci95"]
        percent = "–" if row["diff_percent"] is None else f"{row['diff_percent']:+.1f} %"
        interval = "–" if bounds is None else f"{bounds[0]:+.1f} … {bounds[1]:+.1f} %"
        waits = [duration(result.beside[row["policy"]].wait_s) for result in (before, after)]
        shown.append([row["policy"], figure(row["as_is"], digits), figure(row["what_if"], digits), percent, interval, *waits])
    columns = ["policy", f"{after.score.name} as is", "what if", "difference", "95 % interval", "mean wait as is", "what if"]
    print_table(columns, shown, title=title)
    if all(row["diff_ci95"] is None for row in rows):
        note(f"no intervals: {'there are too few days or windows' if paired else 'the days of another load cannot be paired'}")
