"""Tables that compare policies, as Markdown and LaTeX (booktabs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from queuewise.evaluation.judging import Result
from queuewise.evaluation.protocol import DAY_S
from queuewise.evaluation.statistics import Difference
from queuewise.plain_text import printable
from queuewise.report.readable import duration, figure

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
GEOMETRIC = "geom. mean bsld"
# Where the terminal is narrow. The difference and its interval stay beside the score.
LEFT_OUT_FIRST = ("wins", "worst window", "worst day", "worst 6 h", "rank", "95 % interval", GEOMETRIC, "makespan ÷ span", "p99")
BESIDE = ("mean wait", "p99", "max", "makespan ÷ span", "{resource} used")  # the last columns of a table of scores

TEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "–": "--", "…": r"\dots{}", "÷": r"$\div$",
    "†": r"$\dagger$",
}  # fmt: skip

TextTable = tuple[list[str], list[list[str]]]  # headings, rows


def metric_table(
    rows: Sequence[Mapping[str, Any]], marks: Mapping[str, str] = MappingProxyType({}), *, readable: bool = False
) -> TextTable:
    """One row per policy, from flattened metrics. Columns without any value are omitted. `marks` follow the names of policies.

    Times are in one unit, for papers, or `readable`: 12.3 s beside 4.5 h.
    """
    shown = [column for column in COLUMNS if any(row.get(column[1]) is not None for row in rows)]

    def cell(row: Mapping[str, Any], heading: str, key: str, digits: int) -> str:
        if readable and heading.endswith("]") and key.partition(".")[0].endswith("_s"):
            return duration(row.get(key))
        return _number(row.get(key), digits, UNIT.get(key, 1.0))

    body = [[str(row["policy"]) + marks.get(row["policy"], ""), *(cell(row, *column) for column in shown)] for row in rows]
    headings = [heading.rpartition(" [")[0] if readable and heading.endswith(("[s]", "[h]")) else heading for heading, _, _ in shown]
    return ["policy", *headings], body


def score_digits(result: Result) -> int:
    return 4 if max(abs(s.mean) for s in result.standings) < 10 else 2


def score_table(result: Result) -> TextTable:
    """Ranks, means, intervals and paired differences, with the figures that stand beside every score.

    They include the worst day or window, if there are several, and the geometric mean of the bounded slowdown over jobs.
    """
    digits, several = score_digits(result), len(next(iter(result.series.values())).sums) > 1
    rows = []
    for s in result.standings:
        versus = s.vs_best_baseline if s.best_baseline != s.policy else None
        difference = ["–", "–", "–"]
        if versus:
            change = "same" if versus.same else "–" if versus.relative is None else _change(versus.relative)
            difference = [change, _relative_interval(versus), f"{versus.win_rate:.0%}"]
        beside = result.beside[s.policy]
        waits = [duration(wait) for wait in (beside.wait_s, beside.wait_p99_s, beside.max_wait_s)]
        use = "–" if beside.utilisation is None else f"{beside.utilisation:.1%}"
        score = [figure(s.mean, digits), interval(s.ci95, digits, result.score.least)]
        score += [figure(beside.worst_unit, digits) if several else "–", figure(beside.geometric_mean, 2)]
        rows.append([s.policy + result.mark(s.policy), str(s.rank), *score, *difference, *waits, figure(beside.makespan_by_span, 3), use])
    against = f"against {result.standings[0].best_baseline}"
    score_columns = [result.score.name, "95 % interval", f"worst {unit_name(result)}", GEOMETRIC]
    columns = ["policy", "rank", *score_columns, against, "95 % interval", "wins"]
    return [*columns, *(heading.format(resource=result.resource) for heading in BESIDE)], rows


def unit_name(result: Result) -> str:
    """Of what is compared: a day, six hours of a short log, or a window."""
    if not result.in_days:
        return "window"
    return "day" if result.unit_s in (None, DAY_S) else f"{result.unit_s / 3600:g} h"


def _relative_interval(versus: Difference) -> str:
    """The interval of a difference in percent of the baseline's mean."""
    if versus.ci95 is None or not versus.relative:
        return "–"
    low, high = (bound * versus.relative / versus.diff for bound in versus.ci95)
    return f"{_change(low)} … {_change(high)}"


def _change(share: float) -> str:
    """A decimal where it says something."""
    return f"{share:+.1%}" if abs(share) < 1 else f"{share:+,.0%}"


def to_markdown(cells: TextTable, sentences: Sequence[str] = ()) -> str:
    headings, rows = cells
    lines = [headings, ["---", *["---:"] * (len(headings) - 1)], *rows]
    table = "\n".join("| " + " | ".join(map(markdown_text, line)) + " |" for line in lines) + "\n"
    below = [f"\\{line}" if line.startswith("*") else line for line in map(markdown_text, sentences)]  # no list
    return table + "".join(f"\n{sentence}\n" for sentence in below)


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


def interval(ci95: tuple[float, float] | None, digits: int, least: float) -> str:
    """An interval of a score that is never below `least`."""
    return "–" if ci95 is None else f"{max(ci95[0], least):,.{digits}f} … {ci95[1]:,.{digits}f}"


def markdown_text(text: str) -> str:
    """One cell: no HTML, no link, no further cell or line."""
    special = {"\\": "\\\\", "|": "\\|", "`": "\\`", "<": "&lt;", "&": "&amp;"}
    return "".join(special.get(c, c) for c in printable(text)).replace("](", "]\\(")


def _tex(text: str) -> str:
    return "".join(TEX.get(c, f"\\{c}" if c in "&%$#_{}" else c) for c in printable(text))
