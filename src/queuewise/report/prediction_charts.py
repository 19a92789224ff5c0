"""Calibration and errors of predicted runtimes as one figure."""

from __future__ import annotations

import os

from queuewise.evaluation.prediction_quality import BEST, PredictionQuality
from queuewise.report.charts import Chart, Series
from queuewise.report.figures import draw_panels


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
    draw_panels(prediction_charts(found), f"Predicted runtimes of {found.log}", path)
