"""`queuewise report`: figures and tables for a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Report:
    """Write report.html (a single file that works offline), figures (PNG, SVG, PDF), tables and traces into a run folder."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder written by queuewise simulate --out or queuewise evaluate --out."""
    window: Annotated[int, tyro.conf.arg(metavar="I")] = 0
    """Window to draw, if the run has several."""
    figures: bool = True
    """Also write PNG, SVG and PDF figures."""
    exports: Literal["best", "all", "none"] = "best"
    """Policies for which to write a trace for ui.perfetto.dev and Batsim's jobs.csv."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.report.html import write_report

        page = write_report(Path(self.run_folder), window=self.window, figures=self.figures, exports=self.exports)
        note("open the file in a browser; it needs no other files")
        print(page)
