"""Charts as data and layout for plotly's basic bundle, which has lines, points and bars. A heat map is drawn with bars.

Colours of text, grid and background are left to the page, which knows whether it is light or dark.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from typing import Any

from queuewise.report.charts import Chart
from queuewise.report.figures import COLOURS

DASHES = ("solid", "dash", "dot")
SECONDS = " [s]"  # end of the label of an axis with times
TICKS = {
    1: "1 s", 10: "10 s", 60: "1 min", 600: "10 min", 3_600: "1 h", 21_600: "6 h", 86_400: "1 d", 604_800: "7 d", 2_592_000: "30 d",
    31_536_000: "1 y",
}  # fmt: skip
STEPS_S = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 172_800, 432_000, 864_000)
MOST_TICKS = 6
VIRIDIS = ((68, 1, 84), (59, 82, 139), (33, 145, 140), (94, 201, 98), (253, 231, 37))


def plotly_text(text: str) -> str:
    """Text for plotly, which reads labels as HTML with links."""
    return html.escape(text, quote=False)


def plotly_figure(chart: Chart) -> dict[str, Any]:
    """A chart as data and layout for plotly."""
    layout: dict[str, Any] = {
        "xaxis": _axis(chart.x_label, chart.log_x, [value for series in chart.series for value in series.x]),
        "yaxis": _axis(chart.y_label, chart.log_y, [value for series in chart.series for value in series.y]),
        "showlegend": len(chart.series) > 1,
    }
    if chart.kind == "heatmap":
        return {"key": chart.key, "data": _cells(chart), "layout": layout | _cell_axes(chart, layout)}
    if chart.kind == "bars":
        layout |= {"barmode": "group", "xaxis": layout["xaxis"] | {"type": "category", "categoryarray": _labels(chart.columns)}}
        if chart.log_y:  # slowdowns start at 1 = 10⁰: bars from any other value would mislead
            layout["yaxis"]["range"] = [0, math.log10(max(max(series.y) for series in chart.series)) * 1.05]
    elif chart.kind == "intervals":
        layout["xaxis"], layout["yaxis"] = _axis(chart.x_label, chart.log_x, []), _axis("", False, [])
        rows = max((len(series.x) for series in chart.series), default=1)
        layout["yaxis"] |= {"type": "category", "range": [rows - 0.5, -0.5]}  # from above, with half a row at either end
    elif chart.kind == "line" and not chart.log_y:
        layout["yaxis"]["rangemode"] = "tozero"
    return {"key": chart.key, "data": [_trace(chart, index) for index in range(len(chart.series))], "layout": layout}


def _axis(label: str, log: bool, values: Sequence[float | str]) -> dict[str, Any]:
    """An axis. One with seconds has ticks such as 10 min and 6 h."""
    axis: dict[str, Any] = {"automargin": True, "zeroline": False, "type": "log" if log else "-"}
    numbers = [value for value in values if not isinstance(value, str) and math.isfinite(value)]
    if label.endswith(SECONDS) and numbers:
        ticks = TICKS if log else _even_ticks(max(numbers))
        axis |= {"tickvals": list(ticks), "ticktext": list(ticks.values())}
        label = label.removesuffix(SECONDS)
    return axis | {"title": {"text": plotly_text(label)}}


def _even_ticks(most: float) -> dict[int, str]:
    step = next((step for step in STEPS_S if most / step <= MOST_TICKS), max(STEPS_S[-1], math.ceil(most / MOST_TICKS)))
    name, unit = next(((name, unit) for name, unit in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)) if step % unit == 0), ("s", 1))
    return {number * step: f"{number * step / unit:g} {name}" if number else "0" for number in range(int(most // step) + 2)}


def _cells(chart: Chart) -> list[dict[str, Any]]:
    """One bar of height 1 per cell that has a value, and points without a place, which have the colour bar."""
    cells = [(c, r, value) for r, row in enumerate(chart.z) for c, value in enumerate(row) if value is not None]
    columns, rows = _labels(chart.columns), _labels(chart.rows)
    values = [value for *_, value in cells]
    unit = chart.z_label.partition("[")[2].rstrip("]")
    bars = {
        "type": "bar", "x": [c for c, *_ in cells], "y": [1] * len(cells), "base": [r - 0.5 for _, r, _ in cells], "width": 1,
        "marker": {"color": [_viridis(value / chart.z_most) for value in values], "line": {"width": 0}},
        "hoverinfo": "text", "textposition": "none", "hovertext": [f"{rows[r]} {columns[c]}: {value:,.4g} {unit}" for c, r, value in cells],
    }  # fmt: skip
    colorbar = {"title": {"text": plotly_text(chart.z_label), "side": "right"}, "outlinewidth": 0}
    marker = {"color": [0, chart.z_most], "cmin": 0, "cmax": chart.z_most, "colorscale": "Viridis", "showscale": True, "colorbar": colorbar}
    scale = {"type": "scatter", "mode": "markers", "x": [None, None], "y": [None, None], "marker": marker, "hoverinfo": "skip"}
    return [bars, scale]


def _viridis(share: float) -> str:
    """A colour of the map Viridis, between its stops."""
    at = min(max(share, 0.0), 1.0) * (len(VIRIDIS) - 1)
    low = min(int(at), len(VIRIDIS) - 2)
    parts = (round(a + (at - low) * (b - a)) for a, b in zip(VIRIDIS[low], VIRIDIS[low + 1], strict=True))
    return "#" + "".join(f"{part:02x}" for part in parts)


def _cell_axes(chart: Chart, layout: dict[str, Any]) -> dict[str, Any]:
    columns, rows = _labels(chart.columns), _labels(chart.rows)
    shown = range(0, len(columns), 3)
    x = layout["xaxis"] | {"tickvals": list(shown), "ticktext": [columns[c] for c in shown], "range": [-0.5, len(columns) - 0.5]}
    y = layout["yaxis"] | {"tickvals": list(range(len(rows))), "ticktext": rows, "range": [len(rows) - 0.5, -0.5]}
    return {"xaxis": x | {"showgrid": False}, "yaxis": y | {"showgrid": False}, "barmode": "overlay", "bargap": 0}


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
