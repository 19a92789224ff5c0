"""The curve of `queuewise size` as a figure."""

from __future__ import annotations

import os

from queuewise.evaluation.sizing import Sizing, Target
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import draw_panels


def draw_sizes(found: Sizing, target: Target, title: str, path: str | os.PathLike[str]) -> None:
    """Write the figure to `path`. The suffix determines the format."""
    points = [point for point in found.curve if point.value is not None]
    scale, unit = (3600.0, " [h]") if target.in_seconds else (1.0, "")
    sizes = [float(point.nodes) for point in points]
    curve = Series(target.text.partition("<")[0].strip(), sizes, [(point.value or 0.0) / scale for point in points], marked=True)
    limit = Series("target", [sizes[0], sizes[-1]], [target.limit / scale] * 2)
    answer = "no size meets it" if found.nodes is None else f"{found.nodes:,} {found.unit} meet it"
    logarithmic = sizes[-1] >= 8 * sizes[0]  # enough room for ticks at powers of two
    chart = Chart(
        "sizes", f"{target.text}: {answer}", "", "line", found.unit, f"{curve.name}{unit}", (curve, limit), logarithmic, whole_x=True
    )
    draw_panels([chart], title, path)
