"""Charts as PNG, SVG and PDF files, drawn with matplotlib."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from queuewise.errors import InputError, optional_imports
from queuewise.plain_text import figure_label, figure_text
from queuewise.regular_files import check_regular
from queuewise.report.charts import Chart
from queuewise.runs import create_folder, replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("png", "svg", "pdf")
# The palette of Okabe and Ito, which is readable with colour blindness, with black last. From the ninth policy on, lines are dashed.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#8C8C00", "#000000")
DASHES = ("-", "--", ":")
WITHOUT_DATE: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # metadata of reproducible files
WIDTH, HEIGHT = 7.2, 4.0  # inches
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "svg.hashsalt": "queuewise",  # makes files reproducible
}


def check_matplotlib() -> None:
    """Raise an error that says how to install it, before long work."""
    with optional_imports():
        import matplotlib  # noqa: F401


def figure_target(path: str | os.PathLike[str]) -> tuple[Path, str]:
    """The file to write one figure to, and its format, which the suffix determines."""
    check_matplotlib()
    target = Path(path)
    extension = target.suffix.lstrip(".").lower()
    if extension not in FORMATS:
        raise InputError(f"cannot write a figure with the suffix {target.suffix!r}", where=str(target), hint=f"use .{', .'.join(FORMATS)}")
    if not target.parent.is_dir():
        raise InputError("no such folder", where=str(target.parent), hint="create it first")
    check_regular(target, "choose another name")
    return target, extension


def write_figures(charts: Iterable[Chart], folder: Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Write one file per chart and format."""
    with optional_imports():
        import matplotlib as mpl
    create_folder(folder)
    written = []
    with mpl.rc_context(STYLE):
        for chart in charts:
            figure = draw(chart)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # lay out once instead of for every format
            for extension in formats:
                path = folder / f"{chart.key}.{extension}"
                with replacing(path) as temporary:
                    figure.savefig(temporary, format=extension, dpi=160, metadata=WITHOUT_DATE.get(extension))
                written.append(path)
    return written


def draw(chart: Chart) -> Figure:
    """The chart as a matplotlib figure, without using pyplot's global state."""
    from matplotlib.figure import Figure

    rows = len(chart.series[0].x) if chart.kind == "intervals" else 0
    figure = Figure(figsize=(WIDTH, 0.3 * rows + 1.2 if rows else HEIGHT), layout="constrained")
    draw_on(figure.subplots(), chart)
    if len(chart.series) > 1:
        figure.legend(loc="outside right upper", frameon=False, fontsize=8)
    return figure


def draw_panels(charts: Sequence[Chart], title: str, path: str | os.PathLike[str]) -> None:
    """Write several charts to `path` as one figure with two columns, a single chart with one. The suffix determines the format."""
    target, extension = figure_target(path)
    with optional_imports():
        import matplotlib as mpl
        from matplotlib.figure import Figure
    columns = min(2, len(charts))
    rows = -(-len(charts) // columns)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(0.8 * WIDTH * columns, 0.8 * HEIGHT * rows), layout="constrained")
        panels = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, chart in zip(panels, charts, strict=False):
            draw_on(axes, chart)
        for axes in panels[len(charts) :]:
            axes.set_visible(False)
        panels[0].legend(frameon=False, fontsize=8, loc="lower right" if columns > 1 else "best")
        figure.suptitle(figure_text(title), x=0.01, ha="left", fontweight="bold")
        with replacing(target) as temporary:
            figure.savefig(temporary, format=extension, dpi=110, metadata=WITHOUT_DATE.get(extension))


def draw_on(axes: Axes, chart: Chart) -> None:
    """The chart without its legend, on axes of a figure."""
    {"line": _lines, "points": _points, "bars": _bars, "intervals": _intervals, "heatmap": _heatmap}[chart.kind](axes, chart)
    axes.set_title(figure_text(chart.title), loc="left", fontsize=10, fontweight="bold")
    axes.set_xlabel(figure_text(chart.x_label))
    axes.set_ylabel(figure_text(chart.y_label))
    if chart.log_x:
        axes.set_xscale("log", base=2 if chart.whole_x else 10)
    if chart.whole_x:
        _count_on_x(axes, chart.log_x)
    if chart.log_y:
        axes.set_yscale("log")
    if chart.log_y and chart.kind == "bars":
        axes.set_ylim(bottom=1)  # slowdowns start at 1: bars from any other value would mislead


def _count_on_x(axes: Axes, logarithmic: bool) -> None:
    """Plain whole numbers as ticks."""
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter

    if not logarithmic:
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _look(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index // len(COLOURS) % len(DASHES)]}


def _lines(axes: Axes, chart: Chart) -> None:
    for index, series in enumerate(chart.series):
        marks: dict[str, Any] = {"marker": "o", "markersize": 4} if series.marked else {}
        x = np.asarray(series.x, dtype=np.float64)
        axes.plot(x, series.y, label=figure_label(series.name), linewidth=1.3, **_look(index), **marks)
    if not chart.log_y:
        axes.set_ylim(bottom=0)


def _points(axes: Axes, chart: Chart) -> None:
    for index, series in enumerate(chart.series):
        x = np.asarray(series.x, dtype=np.float64)
        label, colour = figure_label(series.name), COLOURS[index % len(COLOURS)]
        axes.plot(x, series.y, "o", label=label, color=colour, markersize=3.5, alpha=0.6, markeredgewidth=0)


def _bars(axes: Axes, chart: Chart) -> None:
    place = {name: index for index, name in enumerate(chart.columns)}
    width = 0.8 / len(chart.series)
    for index, series in enumerate(chart.series):
        x = np.array([place[str(name)] for name in series.x]) - 0.4 + (index + 0.5) * width
        hatch = None if index < len(COLOURS) else "////"
        axes.bar(x, series.y, width, label=figure_label(series.name), color=COLOURS[index % len(COLOURS)], hatch=hatch)
    crowded = max(map(len, chart.columns)) * len(chart.columns) > 50
    axes.set_xticks(range(len(chart.columns)), list(map(figure_label, chart.columns)), rotation=35 if crowded else 0)
    for label in axes.get_xticklabels():
        label.set_horizontalalignment("right" if crowded else "center")
    axes.grid(visible=False, axis="x")


def _intervals(axes: Axes, chart: Chart) -> None:
    (series,) = chart.series
    y = np.arange(len(series.y))[::-1]
    middle = np.asarray(series.y)
    spread = np.abs(np.array([series.low, series.high], dtype=np.float64) - middle)
    axes.errorbar(middle, y, xerr=spread, fmt="o", color=COLOURS[0], markersize=4, capsize=3, linewidth=1.2)
    axes.set_yticks(y, [figure_label(str(name)) for name in series.x])
    axes.set_ylim(-0.6, len(y) - 0.4)


def _heatmap(axes: Axes, chart: Chart) -> None:
    values = np.array([[np.nan if v is None else v for v in row] for row in chart.z], dtype=np.float64)
    image = axes.imshow(values, aspect="auto", cmap="viridis", interpolation="nearest", vmin=0.0, vmax=chart.z_most)
    axes.set_yticks(range(len(chart.rows)), list(map(figure_label, chart.rows)))
    axes.set_xticks(range(0, len(chart.columns), 3), list(map(figure_label, chart.columns))[::3])
    axes.grid(visible=False)
    bar = axes.figure.colorbar(image, ax=axes)
    bar.set_label(figure_text(chart.z_label))
