"""Schedules of several policies by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from queuewise.api.shown import frame_of_figures, html_of, text_of_schedules, waits_table
from queuewise.sim.core.schedule import Schedule

if TYPE_CHECKING:
    import polars as pl


class Schedules(dict[str, Schedule]):
    """The schedules of one workload by policy, in the order in which the policies were given."""

    def to_frame(self) -> pl.DataFrame:
        """One row per policy with the figures of docs/metrics.md that `queuewise simulate --json` prints."""
        return frame_of_figures(list(self.values()))

    def __repr__(self) -> str:
        return text_of_schedules(list(self.values()))

    def _repr_html_(self) -> str:
        return html_of(waits_table(list(self.values())))
