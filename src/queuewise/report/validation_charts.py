"""Recorded beside replayed waits, as charts and tables of a report and as one figure. The data is that of `validation.json`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from queuewise.evaluation.log_validation import QUANTILES
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import draw_panels
from queuewise.report.text_tables import TextTable

MOST_BARS = 12  # accounts and partitions with the most jobs
BOTH = ("recorded", "replayed")
PANELS = ("validation-waits", "validation-time", "validation-use", "validation-size", "validation-hour-of-day", "validation-account")

Details = Mapping[str, Any]


def validation_charts(found: Details) -> list[Chart]:
    """All charts for which there is data."""
    return [_distribution(found), *_over_time(found), _use(found), *_parts(found)]


def validation_table(found: Details) -> TextTable:
    """Recorded and replayed waits in seconds, and the other figures of the verdict."""
    names = ("mean", "p50", "p90", "p99")
    rows = [[which, *(f"{found[which][name]:,.0f}" for name in names)] for which in BOTH]
    return ["wait [s]", *names], rows


def verdict_sentences(found: Details) -> list[str]:
    correlation = "undefined" if found["rank_correlation"] is None else f"{found['rank_correlation']:.2f}"
    figures = (
        f"{found['jobs']:,} jobs of {found['log']} on {found['cluster']} under {found['policy']}: {found['verdict']}. Rank correlation "
        f"{correlation}, mean difference of the {found['resource']} in use {found['utilisation_error']:.1%}."
    )
    return [figures, *(f"{sentence[:1].upper()}{sentence[1:]}." for sentence in found["why"])]


def draw_validation(found: Details, path: str | os.PathLike[str]) -> None:
    """Write one figure with the main charts to `path`. The suffix determines the format."""
    charts = {chart.key: chart for chart in validation_charts(found)}
    title = f"{found['log']} on {found['cluster']} under {found['policy']}: {found['verdict']}"
    draw_panels([charts[key] for key in PANELS if key in charts], title, path)


def _distribution(found: Details) -> Chart:
    share = [index / (QUANTILES - 1) for index in range(QUANTILES)]
    series = tuple(Series(which, [max(wait, 1.0) for wait in found[f"{which}_quantiles"]], share) for which in BOTH)
    caption = "Share of the compared jobs with at most this wait. Values below 1 s are drawn at 1 s."
    return Chart("validation-waits", "Waits, recorded and replayed", caption, "line", "wait [s]", "share of jobs", series, log_x=True)


def _over_time(found: Details) -> list[Chart]:
    rows = found["by"]["time"]
    if len(rows) < 2:
        return []
    unit, hours = _unit(float(rows[-1]["key"]))
    series = tuple(
        Series(which, [float(row["key"]) / hours for row in rows], [row[which]["mean"] / 3600 for row in rows]) for which in BOTH
    )
    caption = "Mean wait of the jobs by the time of their submission, over weeks, days, 6 hours or hours, as the log is long."
    return [Chart("validation-time", "Mean wait over time", caption, "points", f"{unit} of the log", "mean wait [h]", series)]


def _unit(hours: float) -> tuple[str, float]:
    return ("days", 24.0) if hours >= 72 else ("hours", 1.0)


def _use(found: Details) -> Chart:
    unit, hours = _unit(found["hours"][-1])
    series = tuple(Series(which, [hour / hours for hour in found["hours"]], found[f"{which}_use"]) for which in BOTH)
    caption = f"Share of the {found['resource']} in use, by the jobs of the log."
    return Chart("validation-use", f"Share of the {found['resource']} in use", caption, "line", f"{unit} of the log", "share", series)


def _parts(found: Details) -> list[Chart]:
    charts = []
    for key, rows in found["by"].items():
        if key == "time" or len(rows) < 2:
            continue
        shown = rows
        if key in ("account", "partition"):
            shown = sorted(rows, key=lambda row: -row["jobs"])[:MOST_BARS]
        names = [row["key"] for row in shown]
        series = tuple(Series(which, names, [row[which]["mean"] / 3600 for row in shown]) for which in BOTH)
        label = key if key != "size" else f"size ({found['resource']})"
        most = f" The {MOST_BARS} with the most jobs." if len(shown) < len(rows) else ""
        title, name = f"Mean wait by {key}", f"validation-{key.replace(' ', '-')}"
        charts.append(Chart(name, title, f"Recorded and replayed.{most}", "bars", label, "mean wait [h]", series, columns=names))
    return charts
