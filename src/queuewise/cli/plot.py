"""`queuewise plot`: learning curves of training runs, with bands over seeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of one or more training runs: the mean over seeds, and a band from the worst to the best."""

    runs: Annotated[tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Folders that queuewise train wrote."""
    metric: Annotated[str, tyro.conf.arg(metavar="NAME")] = "val/agent"
    """A column of metrics.csv: val/agent, episode/return, policy/entropy, …"""
    out: Annotated[Path, tyro.conf.arg(metavar="FILE")] = Path("curves.png")
    """The figure: .png, .svg or .pdf."""

    def run(self) -> None:
        from queuewise.agents.curves import draw_curves
        from queuewise.cli.console import figure, note, print_table
        from queuewise.errors import InputError

        if not self.runs:
            raise InputError("no run is given", hint="queuewise plot runs/a runs/b")
        if self.out.suffix not in (".png", ".svg", ".pdf"):
            raise InputError(f"{self.out} is no figure that can be written", hint="end its name in .png, .svg or .pdf")
        curves = draw_curves(self.runs, self.metric, self.out)
        rows = [
            [str(c.run), figure(len(c.values)), figure(c.frames[-1]), *(figure(x, 4) for x in (c.mean[-1], c.mean.min(), c.mean.max()))]
            for c in curves
        ]
        print_table(["run", "seeds", "frames", f"last {self.metric}", "least", "greatest"], rows)
        note(f"written to {self.out}")
