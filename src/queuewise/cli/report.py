"""`queuewise report`: pictures and tables of a run folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro


@dataclass(frozen=True)
class Report:
    """Write report.html (one file, works offline), figures (PNG, SVG, PDF), tables and traces of a run folder into it."""

    run_folder: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A folder that simulate or evaluate wrote with --out."""
    window: Annotated[int, tyro.conf.arg(metavar="I")] = 0
    """The window to draw, of a run over several."""
    figures: bool = True
    """Also write PNG, SVG and PDF figures."""
    exports: Literal["best", "all", "none"] = "best"
    """For which policies to write a trace for ui.perfetto.dev and Batsim's jobs.csv."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.report.html import write_report

        page = write_report(Path(self.run_folder), window=self.window, figures=self.figures, exports=self.exports)
        note("open it in a browser; everything is inside the file")
        print(page)
