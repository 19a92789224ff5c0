"""`report.html`: a single file with data, code and plotly.js. It works offline and makes no network requests.

`write_report` reads a run folder of `simulate` or `evaluate` and adds the page, figures for papers, tables and exports to it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell
from queuewise.evaluation.judging import Result, judge
from queuewise.evaluation.measure import Measurement, measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.replay_files import (
    check_run,
    conditions_of,
    find_replays,
    read_causes,
    read_facts,
    read_schedule,
    read_summary,
    read_validation,
)
from queuewise.evaluation.results import flatten, mean_metrics, read_cells
from queuewise.evaluation.scores import parse_score
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.report.batsim import write_batsim_jobs
from queuewise.report.charts import Chart, make_charts, packing_charts
from queuewise.report.chrome_trace import write_trace
from queuewise.report.figures import COLOURS, write_figures
from queuewise.report.gantt import gantt_data
from queuewise.report.lanes import count_bars
from queuewise.report.page import fill_page, plotly_text
from queuewise.report.text_tables import TextTable, metric_table, score_table, to_latex, to_markdown
from queuewise.report.validation_charts import validation_charts, validation_table, verdict_sentences
from queuewise.report.waiting_tables import waiting_sentences, waiting_tables
from queuewise.runs import create_folder, file_name, locked, write_text

MAX_BARS = 400_000  # in all Gantt charts of a page: about 20 MB
MAX_FIRST_BARS = 1_500_000  # the best policy may use more than that
DASHES = ("solid", "dash", "dot")  # as in `figures`, once all colours are used

Exports = Literal["best", "all", "none"]  # policies for which to write a trace and Batsim's jobs.csv


def write_report(run: Path, *, window: int = 0, figures: bool = True, exports: Exports = "best") -> Path:
    """Write report.html, `figures/`, `tables/`, and exports into the folders of the policies. Returns the path of the page."""
    check_run(run)
    with locked(run):
        return _write_report(run, window, figures, exports)


def _write_report(run: Path, window: int, figures: bool, exports: Exports) -> Path:
    result, rows, curves = _evaluation(run) if conditions_of(run) is not None else (None, None, {})
    replays, causes = _load(run, window, result)
    if rows is None:
        rows = [{"policy": m.schedule.policy, **flatten(all_metrics(m))} for m in replays]
    charts, reasons = make_charts(replays, result)
    found = read_validation(run)
    charts = [*(validation_charts(found) if found else []), *(packing_charts(curves) if curves else []), *charts]
    tables = {"validation": validation_table(found)} if found else {}
    marks = {row["policy"]: result.mark(row["policy"]) for row in rows} if result else {}
    tables |= {"metrics": metric_table(rows, marks)} | ({"scores": score_table(result)} if result else {})
    tables |= waiting_tables(causes) if causes else {}
    sentences = ({"validation": verdict_sentences(found)} if found else {}) | {"waiting": waiting_sentences(causes)}
    sentences |= {"metrics": result.legend, "scores": result.legend} if result else {}
    _write_tables(run, tables, sentences)
    if figures:
        write_figures(charts, run / "figures")
    _write_exports(run, replays, exports)
    page = render(replays, charts, reasons, tables, sentences)
    write_text(run / "report.html", page)
    return run / "report.html"


def _evaluation(run: Path) -> tuple[Result, list[dict[str, Any]], dict[str, Any]]:
    cells = read_cells(run)
    summary = read_summary(run)
    if not cells or not summary or not summary[0].get("score"):
        raise InputError("contains no replay", where=str(run), hint="run evaluate again")
    result = judge(cells, parse_score(summary[0]["score"]))
    order = [s.policy for s in result.standings]
    rows = sorted(mean_metrics(cells), key=lambda row: order.index(row["policy"]))
    first: dict[str, Cell] = {}
    for cell in sorted(cells, key=lambda cell: cell.window):
        first.setdefault(cell.policy, cell)
    return result, rows, {policy: first[policy].packing for policy in order if first[policy].packing}


def _load(run: Path, window: int, result: Result | None) -> tuple[list[Measurement], dict[str, WaitCauses]]:
    """The replays of one window, best policy first if there is a ranking, and the causes of waits by policy, if they were written."""
    config = conditions_of(run) or {}
    chosen = [(replay, facts) for replay in find_replays(run) if (facts := read_facts(replay)).get("window", 0) == window]
    if not chosen:
        raise InputError(f"has no window {window}", where=str(run), hint="windows are counted from 0")
    if result is not None:
        order = [s.policy for s in result.standings]
        chosen.sort(key=lambda pair: order.index(pair[1]["policy"]))
    trimming = {key: float(config.get(key, 0.0)) for key in ("warmup", "cooldown")}
    replays = [measure(read_schedule(run, replay), **trimming) for replay, _ in chosen]
    causes = {m.schedule.policy: read_causes(replay, m.schedule) for m, (replay, _) in zip(replays, chosen, strict=True)}
    return replays, {policy: its for policy, its in causes.items() if its is not None}


def _write_tables(run: Path, tables: dict[str, TextTable], sentences: Mapping[str, Sequence[str]]) -> None:
    create_folder(run / "tables")
    for name, cells in tables.items():
        file = name.replace(" ", "-")
        below = sentences.get(name, ())
        write_text(run / "tables" / f"{file}.md", to_markdown(cells, below))
        write_text(run / "tables" / f"{file}.tex", to_latex(cells, "; ".join([f"{name.capitalize()} of {run.name}", *below])))


def _write_exports(run: Path, replays: Sequence[Measurement], exports: Exports) -> None:
    for m in {"best": replays[:1], "all": replays, "none": ()}[exports]:
        home = run / file_name(m.schedule.policy)
        create_folder(home)  # a run of an earlier version may have it under another name
        write_batsim_jobs(m.schedule, home / "batsim_jobs.csv")
        write_trace(m.schedule, home / "trace.json.gz")


def render(
    replays: Sequence[Measurement],
    charts: Sequence[Chart],
    reasons: Sequence[str],
    tables: dict[str, TextTable],
    sentences: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> str:
    """The page as text. `sentences` are listed below the table of that name."""
    first = replays[0].schedule
    gantts, left_out = _gantts(replays)
    data = {"charts": [plotly_figure(chart) for chart in charts], "gantts": gantts}
    facts = (
        f"{len(first.workload):,} jobs of {first.workload.name} on {first.cluster.name} "
        f"({first.cluster.num_nodes:,} nodes, {first.cluster.num_gpus:,} GPUs) under {len(replays)} "
        f"{'policies' if len(replays) > 1 else 'policy'}; dispatch {first.dispatch}, estimates {first.estimates}."
    )
    texts = {
        "title": html.escape(f"{first.workload.name} on {first.cluster.name}"),
        "facts": html.escape(facts),
        "tables": "".join(_table_html(name, cells, sentences.get(name, ())) for name, cells in tables.items()),
        "charts": "".join(
            f'<figure id="{html.escape(chart.key)}"><h2>{html.escape(chart.title)}</h2><div class="plot"></div>'
            f"<figcaption>{html.escape(chart.caption)}</figcaption></figure>"
            for chart in charts
        ),
        "notes": "".join(f"<li>{html.escape(reason)}</li>" for reason in [*reasons, *left_out]),
    }
    return fill_page(texts, data)


def _gantts(replays: Sequence[Measurement]) -> tuple[list[dict[str, Any]], list[str]]:
    """Gantt data for as many policies as fit into the page, in order."""
    made: list[dict[str, Any]] = []
    left_out: list[str] = []
    budget = MAX_BARS
    for m in replays:
        bars = count_bars(m.schedule)
        if m.span > 0 and 0 < bars <= (budget if made else MAX_FIRST_BARS):
            made.append(gantt_data(m))
            budget -= bars
        else:
            left_out.append(m.schedule.policy)
    hint = "the page would be too large; queuewise report --exports all writes traces for ui.perfetto.dev"
    return made, [f"Gantt charts of {', '.join(left_out)} are omitted: {hint}."] if left_out else []


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """A chart as data and layout for plotly."""
    axis = {"automargin": True, "gridcolor": "#e4e7eb", "zeroline": False}
    layout: dict[str, Any] = {
        "xaxis": {**axis, "title": {"text": plotly_text(chart.x_label)}, "type": "log" if chart.log_x else "-"},
        "yaxis": {**axis, "title": {"text": plotly_text(chart.y_label)}, "type": "log" if chart.log_y else "-"},
        "showlegend": len(chart.series) > 1,
    }
    if chart.kind == "heatmap":
        layout["xaxis"] |= {"type": "category", "dtick": 3}
        layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
        colorbar = {"title": {"text": plotly_text(chart.z_label), "side": "right"}}
        z = [list(row) for row in chart.z]
        x, y = _labels(chart.columns), _labels(chart.rows)
        data = [{"type": "heatmap", "z": z, "x": x, "y": y, "colorscale": "Viridis", "colorbar": colorbar}]
        return {"key": chart.key, "data": data, "layout": layout}
    if chart.kind == "bars":
        layout |= {"barmode": "group", "xaxis": layout["xaxis"] | {"type": "category", "categoryarray": _labels(chart.columns)}}
        if chart.log_y:  # slowdowns start at 1 = 10⁰: bars from any other value would mislead
            layout["yaxis"]["range"] = [0, math.log10(max(max(series.y) for series in chart.series)) * 1.05]
    elif chart.kind == "intervals":
        layout["yaxis"] |= {"type": "category", "autorange": "reversed"}
    elif chart.kind == "line" and not chart.log_y:
        layout["yaxis"]["rangemode"] = "tozero"
    return {"key": chart.key, "data": [_trace(chart, index) for index in range(len(chart.series))], "layout": layout}


def _trace(chart: Chart, index: int) -> dict[str, Any]:
    series = chart.series[index]
    colour, dash = COLOURS[index % len(COLOURS)], DASHES[index // len(COLOURS) % len(DASHES)]
    trace: dict[str, Any] = {"name": plotly_text(series.name), "x": _labels(series.x), "y": list(series.y)}
    if chart.kind == "bars":
        pattern = {"shape": "" if dash == "solid" else "/"}
        return {**trace, "type": "bar", "marker": {"color": colour, "pattern": pattern}}
    if chart.kind == "intervals":
        error = {
            "type": "data",
            "array": [high - y for high, y in zip(series.high or (), series.y, strict=True)],
            "arrayminus": [y - low for low, y in zip(series.low or (), series.y, strict=True)],
        }
        places = {"x": trace["y"], "y": trace["x"], "error_x": error}
        return {**trace, **places, "type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 9}}
    if chart.kind == "points":
        return {**trace, "type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 6, "opacity": 0.6}}
    return {**trace, "type": "scatter", "mode": "lines", "line": {"color": colour, "dash": dash, "width": 1.8}}


def _labels(values: Sequence[float | str]) -> list[float | str]:
    return [plotly_text(value) if isinstance(value, str) else value for value in values]


def _table_html(name: str, cells: TextTable, sentences: Sequence[str]) -> str:
    headings, rows = cells
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    listed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    below = f"<ul>{listed}</ul>" if listed else ""
    key, title = html.escape(f"table-{name}".replace(" ", "-")), html.escape(name.capitalize())
    return f'<section id="{key}"><h2>{title}</h2><div class="wide">{table}</div>{below}</section>'
