"""Integer programs solved by HiGHS within a limit of work, so that the same program always has the same answer.

One HiGHS object is kept. A program of the shape of the last one is changed in place: only costs and bounds are set.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.errors import optional_imports
from queuewise.workload.jobs import Floats

Whole = NDArray[np.int64]
DEFAULT_WORK = 200  # nodes of the search; each may take ITERATIONS_PER_NODE simplex iterations
ITERATIONS_PER_NODE = 50
WHOLE_TOLERANCE = 1e-6
# Presolve and general heuristics take longer than the search of programs as small as these.
OPTIONS: dict[str, Any] = {
    "output_flag": False, "threads": 1, "parallel": "off", "random_seed": 0, "presolve": "off", "mip_rel_gap": 0.0,
    "mip_detect_symmetry": False, "mip_heuristic_effort": 0.0, "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_rins": False, "mip_heuristic_run_rens": False, "mip_heuristic_run_root_reduced_cost": False,
}  # fmt: skip

THOROUGH: dict[str, Any] = {
    "presolve": "choose", "mip_heuristic_effort": 0.05, "mip_heuristic_run_feasibility_jump": True, "mip_heuristic_run_rins": True,
    "mip_heuristic_run_rens": True, "mip_heuristic_run_root_reduced_cost": True,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Rows:
    """lower ≤ A x ≤ upper, A given by its entries."""

    row: NDArray[np.int64]
    column: NDArray[np.int64]
    value: Floats
    lower: Floats
    upper: Floats


@dataclass(frozen=True, eq=False)
class Solved:
    values: Floats | None  # whole numbers; None: no solution was found within the limit
    bound: float  # no solution has a lower objective


class IntegerProgram:
    """min c·x over whole x with 0 ≤ x ≤ upper."""

    def __init__(self, work: int, limit_s: float | None = None) -> None:
        """`limit_s` is for the live service: with it, equal programs may have different answers."""
        with optional_imports():
            import highspy
        self._highspy: Any = highspy
        self._highs = self._highspy.Highs()
        for name, value in OPTIONS.items():
            self._highs.setOptionValue(name, value)
        self._highs.setOptionValue("mip_max_nodes", work)
        self._highs.setOptionValue("simplex_iteration_limit", work * ITERATIONS_PER_NODE)
        if limit_s is not None:
            self._highs.setOptionValue("time_limit", limit_s)
        self._shape: tuple[bytes, ...] = ()
        self.changed_in_place = 0  # how many programs needed no new model

    def load(self, upper: Floats, rows: Rows) -> None:
        """Set the program; its costs are given to `minimise`."""
        shape = rows.row.tobytes(), rows.column.tobytes(), rows.value.tobytes()
        self._num_columns = len(upper)
        if shape == self._shape and len(upper) == self._highs.getNumCol():
            earlier = np.arange(len(rows.lower), self._highs.getNumRow(), dtype=np.int32)  # bounds on levels of the last program
            self._highs.deleteRows(len(earlier), earlier)
            self._highs.changeColsBounds(len(upper), np.arange(len(upper), dtype=np.int32), np.zeros(len(upper)), upper)
            self._highs.changeRowsBounds(len(rows.lower), np.arange(len(rows.lower), dtype=np.int32), rows.lower, rows.upper)
            self.changed_in_place += 1
            return
        self._shape = shape
        self._highs.passModel(self._new_model(upper, rows))

    def minimise(self, cost: Floats, *, whole_costs: bool) -> Solved:
        """Costs that are whole numbers let the search end as soon as no better whole objective is possible."""
        highs, highspy = self._highs, self._highspy
        highs.changeColsCost(self._num_columns, np.arange(self._num_columns, dtype=np.int32), cost)
        highs.clearSolver()  # no trace of earlier programs: equal programs have equal answers
        highs.setOptionValue("mip_abs_gap", 0.999 if whole_costs else 1e-9)
        highs.setOptionValue("solve_relaxation", True)
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return Solved(None, -np.inf)
        values = np.array(highs.getSolution().col_value)
        relaxed = float(highs.getInfo().objective_function_value)
        rounded = np.round(values)
        if np.abs(values - rounded).max(initial=0.0) <= WHOLE_TOLERANCE:
            return Solved(rounded, float(cost @ rounded))
        highs.setOptionValue("solve_relaxation", False)
        highs.run()
        if highs.getInfo().primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            self._try_harder()
        info = highs.getInfo()
        bound = max(relaxed, float(info.mip_dual_bound)) if np.isfinite(info.mip_dual_bound) else relaxed
        if info.primal_solution_status != highspy.SolutionStatus.kSolutionStatusFeasible:
            return Solved(None, bound)
        rounded = np.round(np.array(highs.getSolution().col_value))
        proven = highs.getModelStatus() == highspy.HighsModelStatus.kOptimal
        return Solved(rounded, float(cost @ rounded) if proven else bound)

    def _try_harder(self) -> None:
        """Search once more, with everything that HiGHS does to find a first solution."""
        for name, value in THOROUGH.items():
            self._highs.setOptionValue(name, value)
        self._highs.clearSolver()
        self._highs.run()
        for name in THOROUGH:
            self._highs.setOptionValue(name, OPTIONS[name])

    def keep_at_most(self, cost: Floats, value: float) -> None:
        """Allow only solutions with cost·x ≤ value from now on."""
        used = np.flatnonzero(cost).astype(np.int32)
        self._highs.addRow(-self._highspy.kHighsInf, value, len(used), used, cost[used])

    def _new_model(self, upper: Floats, rows: Rows) -> Any:
        order = np.lexsort((rows.row, rows.column))
        lp = self._highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(upper), len(rows.lower)
        lp.col_cost_, lp.col_lower_, lp.col_upper_ = np.zeros(len(upper)), np.zeros(len(upper)), upper
        lp.row_lower_, lp.row_upper_ = rows.lower, rows.upper
        lp.a_matrix_.format_ = self._highspy.MatrixFormat.kColwise
        starts = np.searchsorted(rows.column[order], np.arange(len(upper) + 1))
        lp.a_matrix_.start_ = starts.astype(np.int32)
        lp.a_matrix_.index_, lp.a_matrix_.value_ = rows.row[order].astype(np.int32), rows.value[order]
        lp.integrality_ = [self._highspy.HighsVarType.kInteger] * len(upper)
        return lp
