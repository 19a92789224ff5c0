"""How results look at a prompt and in notebooks: one line or a small table. Lower layers find this module by its name."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from queuewise.evaluation.jobs_table import jobs_table
from queuewise.evaluation.judging import Result
from queuewise.evaluation.metrics import summarise
from queuewise.evaluation.results import flatten
from queuewise.plain_text import columns_that_fit, terminal_width
from queuewise.report.readable import duration, figure
from queuewise.report.text_tables import LEFT_OUT_FIRST, TextTable, score_table
from queuewise.sim.core.schedule import Schedule

if TYPE_CHECKING:
    import polars as pl

NONE = "–"
GAP = 2  # between two columns
WAITS_LEFT_OUT_FIRST = ("completed", "p50")


def frame_of_schedule(schedule: Schedule) -> pl.DataFrame:
    """One row per job: the columns of jobs.parquet."""
    return jobs_table(schedule)


def frame_of_figures(schedules: Sequence[Schedule]) -> pl.DataFrame:
    """One row per schedule."""
    import polars as pl

    return pl.DataFrame([flatten(summarise(schedule)) for schedule in schedules], infer_schema_length=None)


def frame_of_result(result: Result) -> pl.DataFrame:
    """One row per policy, best first: the figures of `queuewise evaluate --json`."""
    import polars as pl

    rows = []
    for row in result.as_json():
        versus = row.pop("vs_best_baseline") or {}
        low, high = row.pop("ci95")
        less, more = versus.get("ci95") or (None, None)
        del row["per_window"]
        row.pop("per_window_jobs", None)
        rows.append(row | {
            "ci95_low": low, "ci95_high": high, "best_baseline": versus.get("baseline"), "diff_percent": versus.get("diff_percent"),
            "diff": versus.get("diff"), "diff_ci95_low": less, "diff_ci95_high": more, "better": versus.get("better"),
        })  # fmt: skip
    return pl.DataFrame(rows, infer_schema_length=None)


def line_of_schedule(schedule: Schedule) -> str:
    """One line, quick to make: the figures are means over the jobs that ended."""
    waits = schedule.first_wait[schedule.finished]
    shown = (
        f"mean wait {duration(float(waits.mean()))}, 90 % below {duration(float(np.quantile(waits, 0.9)))}" if waits.size else "none ended"
    )
    return f"Schedule({schedule.policy} on {schedule.cluster.name}: {len(schedule.workload):,} jobs, {shown})"


def html_of_schedule(schedule: Schedule) -> str:
    return html_of(waits_table([schedule]))


def waits_table(schedules: Sequence[Schedule]) -> TextTable:
    """One row per schedule with the figures that matter first."""
    rows = []
    for schedule in schedules:
        figures = summarise(schedule)
        wait = figures["wait_s"]
        rows.append([
            schedule.policy, figure(figures["completed"]), *(duration(wait[name]) for name in ("mean", "p50", "p99", "max")),
            figure(figures["bounded_slowdown"]["mean"], 2), figure(figures["gpu_utilisation"], 3), figure(figures["cpu_utilisation"], 3),
        ])  # fmt: skip
    headings = ["policy", "completed", "mean wait", "p50", "p99", "max wait", "bounded slowdown", "GPU use", "CPU use"]
    return without_empty((headings, rows))


def text_of_result(result: Result) -> str:
    return text_of(without_empty(score_table(result)), result.legend, LEFT_OUT_FIRST)


def text_of_schedules(schedules: Sequence[Schedule]) -> str:
    return text_of(waits_table(schedules), left_out_first=WAITS_LEFT_OUT_FIRST)


def html_of_result(result: Result) -> str:
    return html_of(without_empty(score_table(result)), result.legend)


def without_empty(table: TextTable) -> TextTable:
    """The table without columns that have no value in any row."""
    headings, rows = table
    kept = [c for c in range(len(headings)) if c == 0 or any(row[c] != NONE for row in rows)]
    return [headings[c] for c in kept], [[row[c] for c in kept] for row in rows]


def text_of(table: TextTable, below: Sequence[str] = (), left_out_first: Sequence[str] = ()) -> str:
    """Columns of plain text: the first is left-aligned, the others are right-aligned. Where the terminal is narrow, some are left out."""
    headings, rows = table
    widths = {c: max(len(line[c]) for line in (headings, *rows)) for c in range(len(headings))}
    order = [headings.index(name) for name in left_out_first if name in headings]
    kept, dropped = columns_that_fit(widths, GAP, terminal_width() + GAP, order)
    text = ["  ".join(line[c].rjust(widths[c]) if c else line[c].ljust(widths[c]) for c in kept) for line in (headings, *rows)]
    return "\n".join([*text, *below, *([f"a wider terminal also shows: {', '.join(headings[c] for c in dropped)}"] if dropped else [])])


def html_of(table: TextTable, below: Sequence[str] = ()) -> str:
    head = "".join(f"<th>{html.escape(cell)}</th>" for cell in table[0])
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table[1])
    text = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in below)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{text}"
