"""`queuewise report`: figures and tables for a run folder."""

from __future__ import annotations

import json as json_text
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
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print JSON: the page, the answer that it begins with, and the files that were written beside it."""

    def run(self) -> None:
        from queuewise.cli.console import note
        from queuewise.errors import MissingPackageError
        from queuewise.report.html import read_answer, write_report

        run = Path(self.run_folder)
        try:
            page = write_report(run, window=self.window, figures=self.figures, exports=self.exports)
        except MissingPackageError as error:
            error.hint += ", or add --no-figures"
            raise
        if self.json:
            files = sorted(str(file) for part in ("figures", "tables") if (run / part).is_dir() for file in (run / part).iterdir())
            print(json_text.dumps({"page": str(page), "answer": read_answer(page), "files": files}, indent=2))
            return
        note("open the file in a browser; it needs no other files")
        print(page)
