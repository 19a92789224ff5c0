"""What a simulation of the reference returns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Stay = tuple[int, float, float, tuple[tuple[int, int, int], ...]]  # job, start, end, pieces as (node, tasks, bit mask of GPUs)


@dataclass(frozen=True)
class Result:
    start: Floats  # [J] first start, inf if it never started
    end: Floats  # [J] inf if it was never finished
    status: NDArray[np.int8]  # [J]
    preemptions: NDArray[np.int32]  # [J] times stopped
    runs: list[Stay]  # by job, then as they happened
    sleeps: list[tuple[int, float, float]]  # node, from, to; by node and time

    @property
    def pieces(self) -> list[tuple[int, int, int, int]]:
        """(job, node, tasks, bit mask of GPUs) of all runs, sorted."""
        return sorted((job, *piece) for job, _, _, pieces in self.runs for piece in pieces)
