"""The charts of a report as plain data. `figures` draws them for papers, and `html` for the page.

A chart without data (no priorities in the log, no watts in the cluster) is omitted, and `make_charts` returns the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from queuewise.evaluation import breakdown, energy, measure, timeline
from queuewise.evaluation.judging import Result
from queuewise.evaluation.measure import Floats, Measurement
from queuewise.workload.jobs import UNKNOWN

CDF_POINTS = 300
TIME_BINS = 240
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MAX_HEATMAPS = 3
MAX_CLASSES = 24  # more bars in a breakdown would be too thin to read


@dataclass(frozen=True)
class Series:
    name: str
    x: Sequence[float | str]
    y: Sequence[float]
    low: Sequence[float] | None = None  # interval around y
    high: Sequence[float] | None = None
    marked: bool = False  # a line with a mark at each point, in figures


@dataclass(frozen=True)
class Chart:
    key: str  # name of its files and of its element in the page
    title: str
    caption: str
    kind: Literal["line", "bars", "points", "intervals", "heatmap"]
    x_label: str
    y_label: str
    series: tuple[Series, ...] = ()
    log_x: bool = False
    whole_x: bool = False  # x are whole numbers, and so are the ticks of figures
    log_y: bool = False
    z: Sequence[Sequence[float | None]] = ()  # heat map: one row per y
    z_most: float = 1.0  # the scale of colours ends here and begins at 0: the same for maps that are compared
    z_label: str = ""
    rows: Sequence[str] = ()
    columns: Sequence[str] = ()


ChartOrReason = Chart | str  # a chart, or the reason why there is none


def make_charts(replays: Sequence[Measurement], result: Result | None = None) -> tuple[list[Chart], list[str]]:
    """All charts for replays of the same jobs under several policies, and the reasons for omitted ones."""
    made: list[ChartOrReason] = [intervals(result)] if result is not None else []
    made += [make(replays) for make in CHARTS]
    made += hours_heatmaps(replays[:MAX_HEATMAPS])
    return [chart for chart in made if isinstance(chart, Chart)], [reason for reason in made if isinstance(reason, str)]


def intervals(result: Result) -> ChartOrReason:
    """Means with 95 % intervals, best first."""
    standings, units = result.standings, "days" if result.in_days else "windows"
    if any(s.ci95 is None for s in standings):
        return "Intervals need at least ten days or ten quarters of a day." if result.in_days else "Intervals need at least two windows."
    series = Series(
        result.score.name,
        x=[s.policy + result.mark(s.policy) for s in standings],
        y=[s.mean for s in standings],
        low=[s.ci95[0] for s in standings if s.ci95],
        high=[s.ci95[1] for s in standings if s.ci95],
    )
    better = "higher" if result.score.higher_is_better else "lower"
    bound = f" Lower bound for any policy: {result.lower_bound:,.2f}." if result.lower_bound is not None else ""
    return Chart(
        "scores",
        f"Mean {result.score.name} with intervals",
        f"Mean {result.score.name} over the {units} with 95 % bootstrap intervals; {better} is better.{bound}",
        "intervals",
        result.score.name,
        "",
        (series,),
        log_x=not result.score.higher_is_better and min(series.low or [0]) > 0 and max(series.y) > 10 * min(series.y),
    )


def _cdf(key: str, title: str, what: str, values: Callable[[Measurement], Floats]) -> Callable[[Sequence[Measurement]], ChartOrReason]:
    def make(replays: Sequence[Measurement]) -> ChartOrReason:
        share = np.linspace(0, 1, CDF_POINTS)
        series = []
        for m in replays:
            sample = values(m)
            if not sample.size:
                return f"{title}: no job finished under {m.schedule.policy}."
            series.append(Series(m.schedule.policy, _round(np.maximum(np.quantile(sample, share), 1.0)), _round(share)))
        caption = f"Share of finished jobs with at most this {what}. Values below 1 s are drawn at 1 s."
        return Chart(key, title, caption, "line", f"{what} [s]", "share of jobs", tuple(series), log_x=True)

    return make


def _clock(m: Measurement, edges: Floats) -> tuple[Floats, str]:
    """Centres of the bins since the first submission, in a suitable unit."""
    middles = (edges[:-1] + edges[1:]) / 2 - m.begin
    for unit, seconds in (("days", 86_400.0), ("hours", 3_600.0), ("minutes", 60.0)):
        if m.span >= 3 * seconds:
            return middles / seconds, unit
    return middles, "seconds"


def _over_time(
    key: str, title: str, caption: str, y_label: str, values: Callable[[Measurement, Floats], Floats | None], missing: str
) -> Callable[[Sequence[Measurement]], ChartOrReason]:
    def make(replays: Sequence[Measurement]) -> ChartOrReason:
        longest = max(replays, key=lambda m: m.end if m.span > 0 else -np.inf)
        if not longest.span > 0:
            return f"{title}: nothing ran."
        edges = timeline.bin_edges(longest, TIME_BINS)
        x, unit = _clock(longest, edges)
        series = []
        for m in replays:
            y = values(m, edges)
            if y is None:
                return f"{title}: {missing}."
            series.append(Series(m.schedule.policy, _round(x), _round(y)))
        return Chart(key, title, caption, "line", f"{unit} since the first submission", y_label, tuple(series))

    return make


def _utilisation(m: Measurement, edges: Floats) -> Floats | None:
    cluster = m.schedule.cluster
    if cluster.num_gpus:
        return timeline.mean_busy_gpus(m, edges) / cluster.num_gpus
    return timeline.mean_busy_cores(m, edges) / cluster.num_cores if cluster.num_cores < np.inf else None


def _watts(m: Measurement, edges: Floats) -> Floats | None:
    return timeline.mean_watts(m, edges) / 1000 if energy.has_power_figures(m.schedule.cluster) else None


def _by_class(key: str, by: str, title: str, figure: str, y_label: str, log_y: bool) -> Callable[[Sequence[Measurement]], ChartOrReason]:
    def make(replays: Sequence[Measurement]) -> ChartOrReason:
        rows = {m.schedule.policy: breakdown.breakdown(m, by) for m in replays}
        largest = max(rows.values(), key=len)
        if len(largest) < 2:
            return f"{title}: all jobs have the same {by}."
        classes = [row.key for row in largest]
        if len(classes) > MAX_CLASSES:
            return f"{title}: {len(classes)} classes are too many to draw."
        series = tuple(
            Series(policy, [row.key for row in mine], _round(np.array([getattr(row, figure) for row in mine])))
            for policy, mine in rows.items()
        )
        size = _sizes_of(replays[0]) if by == "size" else by
        wide = max(max(s.y) for s in series) > 10  # a narrow range is easier to read on a linear axis
        return Chart(key, title, f"{title} of finished jobs.", "bars", size, y_label, series, log_y=log_y and wide, columns=classes)

    return make


def _sizes_of(m: Measurement) -> str:
    """What the sizes of the jobs count."""
    with_gpus = m.schedule.workload.gpu_milli[m.rows] > 0
    return "GPUs" if with_gpus.all() else "GPUs, or cores of jobs without GPUs" if with_gpus.any() else "cores"


def fairness_scatter(replays: Sequence[Measurement]) -> ChartOrReason:
    """One point per user: number of jobs and mean slowdown."""
    series = []
    for m in replays:
        user = m.schedule.workload.user[m.rows]
        known = user != UNKNOWN
        if not known.any():
            return "Fairness: the log names no users."
        count = np.bincount(user[known])
        total = np.bincount(user[known], weights=measure.bounded_slowdown(m)[known])
        some = count > 0
        series.append(Series(m.schedule.policy, count[some].tolist(), _round(total[some] / count[some])))
    caption = "One point per user. With a fair policy all are at the same height. Runtimes below 10 s count as 10 s."
    return Chart(
        "fairness", "Fairness between users", caption, "points", "jobs of the user", "mean bounded slowdown", tuple(series), True, True
    )


def energy_bars(replays: Sequence[Measurement]) -> ChartOrReason:
    values = [energy.energy_kwh(m) for m in replays]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return "Energy: the cluster states no watts."
    names = [m.schedule.policy for m in replays]
    return Chart("energy", "Energy", "Energy of the whole cluster from first submission to last end, including idle power.", "bars", "",
                 "energy [kWh]", (Series("energy", names, _round(np.array(known))),), columns=names)  # fmt: skip


def hours_heatmaps(replays: Sequence[Measurement]) -> list[ChartOrReason]:
    """Mean wait of the jobs submitted in each hour of the week, with one scale of colours for all policies."""
    long = [m for m in replays if m.span >= 86_400 and m.rows.size]
    waits = {m.schedule.policy: _waits_by_hour(m) for m in long}
    most = max((float(np.nanmax(mean)) for mean in waits.values()), default=0.0)
    unit, seconds = ("h", 3600.0) if most >= 3 * 3600 else ("min", 60.0)
    return [
        _hours_heatmap(m, index, waits[m.schedule.policy] / seconds, (most / seconds) or 1.0, unit)
        if m.schedule.policy in waits
        else f"Waits by hour ({m.schedule.policy}): the replay is shorter than a day."
        for index, m in enumerate(replays)
    ]


def _waits_by_hour(m: Measurement) -> Floats:
    """[168] mean wait in seconds by hour of the week of the submission, NaN where there is none."""
    seconds = m.schedule.workload.submit[m.rows] + m.schedule.workload.epoch
    hour = (seconds // 3600 % 24).astype(np.int64)
    first = 3 if m.schedule.workload.epoch else 0  # second 0 of Unix time was a Thursday
    cell = ((seconds // 86_400 + first) % 7).astype(np.int64) * 24 + hour
    count = np.bincount(cell, minlength=168)
    total = np.bincount(cell, weights=measure.wait(m), minlength=168)
    return np.asarray(np.divide(total, count, out=np.full(168, np.nan), where=count > 0))


def _hours_heatmap(m: Measurement, index: int, waits: Floats, most: float, unit: str) -> Chart:
    dated = bool(m.schedule.workload.epoch)
    clock = "on the local clock of the log" if dated else "on the clock of the log, whose date is unknown"
    mean = [None if np.isnan(wait) else float(f"{wait:.4g}") for wait in waits]
    return Chart(
        f"hours-{index}",
        f"Mean wait by hour of submission: {m.schedule.policy}",
        f"Hours and days {clock}. Empty cells have no submissions. The colours mean the same under every policy.",
        "heatmap",
        "hour of submission",
        "",
        z=[mean[row * 24 : row * 24 + 24] for row in range(7)],
        z_most=most,
        z_label=f"mean wait [{unit}]",
        rows=DAYS if dated else tuple(f"day {i}" for i in range(7)),
        columns=[str(h) for h in range(24)],
    )


CHARTS: tuple[Callable[[Sequence[Measurement]], ChartOrReason], ...] = (
    _cdf("wait-cdf", "Waiting times", "wait", measure.wait),
    _cdf("jct-cdf", "Completion times", "completion time", measure.jct),
    _over_time("utilisation", "Utilisation", "Share of the GPUs in use, or of the cores on a cluster without GPUs.", "share in use",
               _utilisation, "the cluster has neither GPUs nor a limited number of cores"),
    _over_time("queue", "Queue", "Number of waiting jobs, averaged over each time bin.", "jobs waiting", timeline.mean_queue, ""),
    _by_class("size", "size", "Mean wait by size", "wait_mean_s", "mean wait [s]", False),
    _by_class("size-slowdown", "size", "Mean bounded slowdown by size", "bounded_slowdown_mean", "bounded slowdown", True),
    _by_class("priority", "priority", "Mean wait by priority", "wait_mean_s", "mean wait [s]", False),
    _by_class("group", "group", "Mean wait by group", "wait_mean_s", "mean wait [s]", False),
    fairness_scatter,
    energy_bars,
    _over_time("power", "Power", "Power of the whole cluster.", "power [kW]", _watts, "the cluster states no watts"),
)  # fmt: skip


def packing_charts(curves: dict[str, dict[str, list[float]]]) -> list[Chart]:
    """Allocation and fragmentation in the packing protocol; one curve per policy."""

    def chart(key: str, title: str, caption: str, what: str) -> Chart:
        series = tuple(Series(policy, _round(np.array(c["arrived"])), _round(np.array(c[what]))) for policy, c in curves.items())
        return Chart(key, title, caption, "line", "requested GPUs ÷ GPUs of the cluster", "share of the GPUs", series)

    return [
        chart("allocated", "Allocated GPUs", "Share of the cluster's GPUs in use as requests increase.", "allocated"),
        chart(
            "fragmented", "Fragmented GPUs", "Free GPUs that a random task of the workload cannot use (the metric of FGD).", "fragmented"
        ),
    ]


def _round(values: Floats) -> list[float]:
    """Round to six significant digits, which keeps the page small."""
    return [float(f"{value:.6g}") for value in values]
