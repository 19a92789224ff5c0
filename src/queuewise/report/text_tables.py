"""Tables that compare policies, as Markdown and LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from queuewise.evaluation.judging import Result
from queuewise.plain_text import printable

# Heading, key in the flattened metrics, digits. A column is shown if any policy has a value.
COLUMNS: tuple[tuple[str, str, int], ...] = (
    ("jobs", "completed", 0),
    ("mean wait [s]", "wait_s.mean", 1),
    ("median wait [s]", "wait_s.p50", 1),
    ("p99 wait [s]", "wait_s.p99", 0),
    ("max wait [s]", "wait_s.max", 0),
    ("mean JCT [s]", "jct_s.mean", 1),
    ("bounded slowdown", "bounded_slowdown.mean", 2),
    ("makespan [h]", "makespan_s", 1),
    ("GPU use", "gpu_utilisation", 3),
    ("CPU use", "cpu_utilisation", 3),
    ("stranded GPUs", "stranded_gpus", 1),
    ("fragmentation", "fragmentation", 3),
    ("Jain index", "jain_index", 3),
    ("energy [kWh]", "energy_kwh", 0),
    ("preemptions", "preemptions", 0),
    ("rejected", "rejected", 0),
)
UNIT = {"makespan_s": 3600.0}  # shown in hours

TextTable = tuple[list[str], list[list[str]]]  # headings, rows


def metric_table(rows: Sequence[Mapping[str, Any]]) -> TextTable:
    """One row per policy, from flattened metrics. Columns without any value are omitted."""
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows)]
    body = [[str(row["policy"]), *(_number(row.get(key), digits, UNIT.get(key, 1.0)) for _, key, digits in shown)] for row in rows]
    return ["policy", *(heading for heading, _, _ in shown)], body


def score_table(result: Result) -> TextTable:
    """Ranks, means, intervals and paired differences."""
    digits = 4 if max(abs(s.mean) for s in result.standings) < 10 else 2
    body = []
    for s in result.standings:
        versus = s.vs_best_baseline
        body.append(
            [
                s.policy,
                str(s.rank),
                _number(s.mean, digits),
                _interval(s.ci95, digits),
                _number(versus.diff if versus else None, digits),
                _interval(versus.ci95 if versus else None, digits),
                f"{versus.win_rate:.0%}" if versus else "–",
            ]
        )
    best = result.standings[0].best_baseline
    return ["policy", "rank", result.score.name, "95 % interval", f"minus {best}", "95 % interval", "wins"], body


def to_markdown(cells: TextTable) -> str:
    headings, rows = cells
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    return "\n".join("| " + " | ".join(map(_markdown, line)) + " |" for line in lines) + "\n"


def to_latex(cells: TextTable, caption: str) -> str:
    """A table for \\usepackage{booktabs}."""
    headings, rows = cells

    def line(values: Sequence[str]) -> str:
        return " & ".join(_tex(value) for value in values) + r" \\"

    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{_tex(caption)}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(headings) - 1)}}}",
            r"\toprule",
            line(headings),
            r"\midrule",
            *map(line, rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _number(value: float | None, digits: int, unit: float = 1.0) -> str:
    return "–" if value is None else f"{value / unit:,.{digits}f}"


def _interval(ci95: tuple[float, float] | None, digits: int) -> str:
    return "–" if ci95 is None else f"{ci95[0]:,.{digits}f} … {ci95[1]:,.{digits}f}"


def _markdown(text: str) -> str:
    """One cell: no HTML, no link, no further cell or line."""
    special = {"\\": "\\\\", "|": "\\|", "`": "\\`", "<": "&lt;", "&": "&amp;"}
    return "".join(special.get(c, c) for c in printable(text)).replace("](", "]\\(")


def _tex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "…": r"\dots{}", "÷": r"$\div$"}
    return "".join(special.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in printable(text))
