"""A figure of a workload: arrivals over time and by hour, sizes, runtimes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from queuewise.errors import optional_imports
from queuewise.plain_text import figure_text
from queuewise.report.figures import COLOURS, HEIGHT, STYLE, WIDTH, figure_target
from queuewise.runs import replacing
from queuewise.workload.info import rhythm
from queuewise.workload.jobs import Workload

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BINS = 100


def draw_workload(workload: Workload, path: str | os.PathLike[str]) -> None:
    """Write the figure to `path`. The suffix determines the format."""
    target, extension = figure_target(path)
    with optional_imports():
        import matplotlib as mpl
        from matplotlib.figure import Figure
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(1.5 * WIDTH, 1.6 * HEIGHT), layout="constrained")
        (arrivals, hours), (sizes, runtimes) = figure.subplots(2, 2)
        arrivals.hist((workload.submit - workload.submit[0]) / 86_400, bins=BINS, color=COLOURS[0])
        _label(arrivals, "Submissions", "days since the first submission", "jobs")
        hours.bar(np.arange(24), rhythm(workload)[0], color=COLOURS[0])
        _label(hours, "Submissions by hour of day", "hour", "jobs")
        values, counts = np.unique(workload.size, return_counts=True)
        sizes.loglog(values, counts, "o", color=COLOURS[1], markersize=3)
        _label(sizes, "Sizes", "GPUs (or cores)", "jobs")
        runtimes.semilogx(np.sort(np.maximum(workload.runtime, 1)), np.arange(1, len(workload) + 1) / len(workload), color=COLOURS[2])
        _label(runtimes, "Runtimes", "seconds", "cumulative share of jobs")
        figure.suptitle(figure_text(f"{workload.name}: {len(workload):,} jobs"), x=0.01, ha="left", fontweight="bold")
        with replacing(target) as temporary:
            figure.savefig(temporary, format=extension, dpi=120)


def _label(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
