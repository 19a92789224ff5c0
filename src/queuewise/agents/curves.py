"""Learning curves: VAL over frames.

Each run is a line (the mean of its seeds) and a band from its lowest to its highest seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from queuewise.agents.recording import read_rows, read_run_config
from queuewise.agents.train_settings import TrainSettings
from queuewise.config import validate
from queuewise.errors import InputError, optional_imports
from queuewise.plain_text import figure_label, figure_text
from queuewise.runs import replacing
from queuewise.sim.core.tables import F64

VAL = "val/agent"
DASHES: tuple[Any, ...] = ("--", ":", "-.", (0, (1, 4)), (0, (6, 3)), (0, (3, 1, 1, 1)))  # of baselines
WIDE = 2.0  # greatest ÷ least value above which the scale is logarithmic


@dataclass(frozen=True, eq=False)
class Curve:
    """One run. P points, S seeds."""

    run: Path
    metric: str
    frames: F64  # [P]
    values: F64  # [S, P]

    @property
    def mean(self) -> F64:
        mean: F64 = self.values.mean(axis=0)
        return mean


def read_curve(run: Path, metric: str) -> Curve:
    """Read one metric of a run over frames, at the points that all its seeds have."""
    _, seeds = read_run_config(run)
    per_seed = []
    for seed in seeds:
        rows = read_rows(run / f"seed-{seed}")
        points = {row["frames"]: float(row[metric]) for row in rows if row.get(metric) is not None}
        if not points:
            known = sorted({name for row in rows for name in row})
            raise InputError(
                f"seed {seed} has no metric called {metric!r}",
                where=str(run),
                hint=f"known: {', '.join(known)}" if known else "let it train first",
            )
        per_seed.append(points)
    shared = sorted(set.intersection(*(set(points) for points in per_seed)))
    if not shared:
        raise InputError("its seeds have no point in common", where=str(run), hint="train all seeds for the same number of frames")
    return Curve(run, metric, np.array(shared, np.float64), np.array([[points[at] for at in shared] for points in per_seed]))


def draw_curves(runs: Sequence[Path], metric: str, path: Path) -> list[Curve]:
    """Draw the curves of all runs in one figure, for VAL with the baselines of the first run as dashed lines."""
    curves = [read_curve(run, metric) for run in runs]
    with optional_imports():
        from matplotlib.figure import Figure
    figure = Figure(figsize=(8.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        label = f"{curve.run} ({len(curve.values)} seeds)" if len(curve.values) > 1 else str(curve.run)
        (line,) = axes.plot(curve.frames, curve.mean, label=figure_label(label))
        axes.fill_between(curve.frames, curve.values.min(axis=0), curve.values.max(axis=0), color=line.get_color(), alpha=0.2, linewidth=0)
    values = np.concatenate([curve.values.ravel() for curve in curves])
    if metric == VAL:
        baselines = _baselines(runs[0])
        for number, (name, value) in enumerate(sorted(baselines.items(), key=lambda item: item[1])):
            style = DASHES[number % len(DASHES)]
            axes.axhline(value, linestyle=style, linewidth=1.0, color="grey", label=figure_label(f"{name} {value:.4g}"))
        values = np.append(values, list(baselines.values()))
    if values.min() > 0 and values.max() > WIDE * values.min():  # so that one bad baseline does not flatten the rest
        axes.set_yscale("log")
        for ticks in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            ticks("{x:g}")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    score = validate(TrainSettings, read_run_config(runs[0])[0], source=str(runs[0])).objective
    axes.set(xlabel="frames", ylabel=f"{score} on VAL" if metric == VAL else figure_text(metric))
    axes.legend(fontsize="small")
    with replacing(path) as temporary:
        figure.savefig(temporary, format=path.suffix.removeprefix(".") or "png")
    return curves


def _baselines(run: Path) -> dict[str, float]:
    rows = read_rows(run / f"seed-{read_run_config(run)[1][0]}")
    row = next((row for row in rows if row.get(VAL) is not None), {})
    return {
        name.removeprefix("val/"): float(row[name])
        for name in sorted(row)
        if name.startswith("val/") and name != VAL and row[name] is not None
    }
