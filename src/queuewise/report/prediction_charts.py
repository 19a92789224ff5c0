"""Calibration and errors of predicted runtimes as one figure."""

from __future__ import annotations

import os

from queuewise.errors import optional_imports
from queuewise.evaluation.prediction_quality import BEST, PredictionQuality
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import HEIGHT, STYLE, WIDTH, WITHOUT_DATE, draw_on, figure_target
from queuewise.runs import replacing


def prediction_charts(found: PredictionQuality) -> list[Chart]:
    """Calibration, and the share of good predictions by classes of jobs."""
    levels, shares = (list(column) for column in zip(*found.calibration, strict=True))
    caption = "Share of the jobs that ran no longer than a predicted quantile. On the diagonal, the quantiles keep their promise."
    lines = (Series(BEST, levels, shares), Series("as promised", levels, levels))
    charts = [Chart("prediction-calibration", "Calibration", caption, "line", "predicted quantile", "share of jobs below", lines)]
    for what, classes in found.by.items():
        names = list(classes)
        good = Series(BEST, names, [one.within_2x for one in classes.values()])
        title = f"Predicted within a factor of 2, by {what}"
        charts.append(Chart(f"prediction-{what.split()[0]}", title, title, "bars", what, "share of jobs", (good,), columns=names))
    return charts


def draw_predictions(found: PredictionQuality, path: str | os.PathLike[str]) -> None:
    """Write the charts to `path` as one figure. The suffix determines the format."""
    target, extension = figure_target(path)
    with optional_imports():
        import matplotlib as mpl
        from matplotlib.figure import Figure
    charts = prediction_charts(found)
    rows = -(-len(charts) // 2)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.6 * WIDTH, 0.8 * HEIGHT * rows), layout="constrained")
        panels = figure.subplots(rows, 2, squeeze=False).ravel()
        for axes, chart in zip(panels, charts, strict=False):
            draw_on(axes, chart)
        for axes in panels[len(charts) :]:
            axes.set_visible(False)
        panels[0].legend(frameon=False, fontsize=8, loc="lower right")
        figure.suptitle(f"Predicted runtimes of {found.log}", x=0.01, ha="left", fontweight="bold")
        with replacing(target) as temporary:
            figure.savefig(temporary, format=extension, dpi=110, metadata=WITHOUT_DATE.get(extension))
