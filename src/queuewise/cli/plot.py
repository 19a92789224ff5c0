"""`queuewise plot`: learning curves of training runs, with bands over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Plot:
    """Plot the learning curves of one or more training runs: the mean over seeds, with a band from the worst seed to the best."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders written by queuewise train."""
    metric: Annotated[str, tyro.conf.arg(metavar="NAME")] = "val/agent"
    """Column of metrics.csv to plot: val/agent, episode/return, policy/entropy, …"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.png")
    """File to write: .png, .svg or .pdf."""

    def run(self) -> None:
        from queuewise.agents.curves import draw_curves
        from queuewise.cli.console import note, print_table
        from queuewise.errors import InputError
        from queuewise.report.readable import figure

        if not self.runs:
            raise InputError("no run folder given", hint="for example queuewise plot runs/a runs/b")
        if self.out.suffix not in (".png", ".svg", ".pdf"):
            raise InputError(f"cannot write a figure to {self.out}", hint="use a name that ends in .png, .svg or .pdf")
        curves = draw_curves(self.runs, self.metric, self.out)
        names = [c.run.name for c in curves]
        labels = [name if names.count(name) == 1 else str(c.run) for name, c in zip(names, curves, strict=True)]
        rows = [
            [label, figure(len(c.values)), figure(c.frames[-1]), *(figure(x, 4) for x in (c.mean[-1], c.mean.min(), c.mean.max()))]
            for label, c in zip(labels, curves, strict=True)
        ]
        print_table(["run", "seeds", "frames", f"last {self.metric}", "minimum", "maximum"], rows)
        note(f"written to {self.out}")
