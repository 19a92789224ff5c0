"""`report.html`: a single file with data, code and plotly.js. It works offline and makes no network requests.

`write_report` reads a run folder of `simulate` or `evaluate` and adds the page, figures for papers, tables and exports to it.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.experiment import Cell, measure_window
from queuewise.evaluation.judging import Result, judge
from queuewise.evaluation.measure import Measurement, measure
from queuewise.evaluation.metrics import all_metrics
from queuewise.evaluation.protocol import Window
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
from queuewise.evaluation.statistics import SAME
from queuewise.evaluation.wait_causes import WaitCauses
from queuewise.report.answer import answer_of, drawn_part, name_coinciding, read_answer
from queuewise.report.batsim import write_batsim_jobs
from queuewise.report.charts import Chart, make_charts, packing_charts
from queuewise.report.chrome_trace import write_trace
from queuewise.report.figures import write_figures
from queuewise.report.gantt import gantt_data
from queuewise.report.lanes import count_bars
from queuewise.report.page import fill_page
from queuewise.report.plotly_charts import plotly_figure
from queuewise.report.text_tables import TextTable, metric_table, score_table, to_latex, to_markdown
from queuewise.report.validation_charts import validation_charts, validation_table, verdict_sentences
from queuewise.report.waiting_tables import waiting_sentences, waiting_tables
from queuewise.runs import create_folder, file_name, locked, write_text
from queuewise.sim.core.schedule import Schedule

MAX_BARS = 400_000  # in all Gantt charts of a page: about 20 MB
MAX_FIRST_BARS = 1_500_000  # the best policy may use more than that

SCROLLS = '<p class="scrolls" hidden>The table is wider than the page: it scrolls sideways.</p>'

__all__ = ["read_answer", "render", "write_report"]

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
    windows = 1 + max(read_facts(replay).get("window", 0) for replay in find_replays(run))
    tables["metrics"] = metric_table(rows, marks, readable=True)  # in files, seconds
    changes = check_run(run).get("what_if", "")  # in folders of earlier versions, a table
    part = drawn_part(replays[0], window, windows, in_days=result is not None and result.in_days)
    if changes and isinstance(changes, str):
        part = f"{changes[0].upper()}{changes[1:]}. {part}"
    page = render(replays, charts, reasons, tables, sentences, answer_of(replays, causes, result), part)
    write_text(run / "report.html", page)
    return run / "report.html"


def _evaluation(run: Path) -> tuple[Result, list[dict[str, Any]], dict[str, Any]]:
    cells = read_cells(run)
    summary = read_summary(run)
    if not cells or not summary or not summary[0].get("score"):
        raise InputError("contains no replay", where=str(run), hint="run evaluate again")
    same = summary[0].get("same_below_percent", 100 * SAME) / 100
    result = judge(cells, parse_score(summary[0]["score"]), same=same)
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
    replays = [_measure(read_schedule(run, replay), config, window) for replay, _ in chosen]
    causes = {m.schedule.policy: read_causes(replay, m.schedule) for m, (replay, _) in zip(replays, chosen, strict=True)}
    return replays, {policy: its for policy, its in causes.items() if its is not None}


def _measure(schedule: Schedule, config: Mapping[str, Any], index: int) -> Measurement:
    """The jobs that count in the tables. `config` is what an evaluation was measured under, empty for runs of other commands."""
    trimming = {key: float(config.get(key, 0.0)) for key in ("warmup", "cooldown")}
    windows = config.get("windows", ())
    if index >= len(windows):
        return measure(schedule, **trimming)
    return measure_window(schedule, Window.from_list(windows[index]), str(config.get("start", "empty")), **trimming)


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


def _machine(cluster: Cluster) -> str:
    """12 nodes, 96 GPUs; of a cluster without GPUs its cores."""
    nodes = f"{cluster.num_nodes:,} node{'s' * (cluster.num_nodes != 1)}"
    if cluster.num_gpus:
        return f"{nodes}, {cluster.num_gpus:,} GPU{'s' * (cluster.num_gpus != 1)}"
    return nodes if cluster.num_cores == float("inf") else f"{nodes}, {cluster.num_cores:,.0f} cores"


def render(
    replays: Sequence[Measurement],
    charts: Sequence[Chart],
    reasons: Sequence[str],
    tables: dict[str, TextTable],
    sentences: Mapping[str, Sequence[str]] = MappingProxyType({}),
    answer: str = "",
    part: str = "",
) -> str:
    """The page as text. `sentences` are listed below the table of that name; `answer` comes first, `part` says what is drawn."""
    first = replays[0].schedule
    gantts, left_out = _gantts(replays)
    data = {"charts": [plotly_figure(chart) for chart in charts], "gantts": gantts}
    facts = (
        f"{len(first.workload):,} jobs of {_title(first)} "
        f"({_machine(first.cluster)}) under {len(replays)} "
        f"{'policies' if len(replays) > 1 else 'policy'}; dispatch {first.dispatch}, estimates {first.estimates}."
    )
    texts = {
        "title": html.escape(_title(first)),
        "answer": html.escape(answer or answer_of(replays, {}, None)),
        "facts": html.escape(facts),
        "part": html.escape(part or drawn_part(replays[0], 0, 1)),
        "tables": "".join(_table_html(name, cells, sentences.get(name, ())) for name, cells in tables.items()),
        "charts": "".join(
            f'<figure id="{html.escape(chart.key)}"><h2>{html.escape(chart.title)}</h2><div class="plot"></div>'
            f"<figcaption>{html.escape(chart.caption + name_coinciding(chart))}</figcaption></figure>"
            for chart in charts
        ),
        "notes": "".join(f"<li>{html.escape(reason)}</li>" for reason in [*reasons, *left_out]),
    }
    return fill_page(texts, data)


def _title(schedule: Schedule) -> str:
    """The log and the cluster. A cluster that was made from the log has its name."""
    log, cluster = schedule.workload.name, schedule.cluster.name
    return f"{log} on the nodes of the log" if log == cluster else f"{log} on {cluster}"


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


def _table_html(name: str, cells: TextTable, sentences: Sequence[str]) -> str:
    headings, rows = cells
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in headings)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    listed = "".join(f"<li>{html.escape(sentence)}</li>" for sentence in sentences)
    below = f"<ul>{listed}</ul>" if listed else ""
    key, title = html.escape(f"table-{name}".replace(" ", "-")), html.escape(name.capitalize())
    wide = f'<div class="wide" tabindex="0" role="region" aria-label="{title}">{table}</div>'
    return f'<section id="{key}"><h2>{title}</h2>{wide}{SCROLLS}{below}</section>'
