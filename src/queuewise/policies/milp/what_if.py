"""Where one waiting job of a snapshot would go: the optimum, what the engine's rules would do instead, and every term of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from queuewise.cluster.conditions import PERFECT
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.budgets import Budgets
from queuewise.policies.known import Jobs
from queuewise.policies.milp.placement_solver import ROOM_JOBS, PlacementSolver
from queuewise.policies.milp.terms import TERMS, Objective
from queuewise.policies.names import parse_policy
from queuewise.policies.resuming import rules_after, start_from
from queuewise.policies.snapshot import JobId, Place, Snapshot
from queuewise.policies.snapshot_jobs import jobs_of
from queuewise.sim import placement
from queuewise.sim.core.compilation import JIT_DISABLED
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.tables import addresses_of
from queuewise.sim.placement import gang_moves, node_states

ALTERNATIVES = {
    "tier": placement.TIER, "pack": placement.PACK, "fgd": placement.FGD, "spread": placement.SPREAD, "first": placement.FIRST,
}  # fmt: skip


@dataclass(frozen=True)
class PlacementOption:
    """One way to place the job."""

    rule: str
    places: tuple[Place, ...]
    terms: dict[str, float]  # all of them, also those that the objective does not have
    levels: tuple[float, ...]  # of the objective
    why: str  # compared with the first option

    def as_dict(self) -> dict[str, Any]:
        return {
            "rule": self.rule, "places": [[*place] for place in self.places], "terms": self.terms, "levels": list(self.levels),
            "why": self.why,
        }  # fmt: skip


def placement_options(
    snapshot: Snapshot, cluster: Cluster, option: str, *, job_id: JobId | None = None, budgets: Budgets
) -> tuple[JobId, list[PlacementOption]]:
    """The job (by default the first that waits and fits), and its placements: the optimum first. None if it does not fit now."""
    case = _Case(snapshot, cluster, option, budgets)
    chosen = case.first_fitting() if job_id is None else case.row_of(job_id)
    found = case.options(chosen)
    return case.workload.job_id[chosen].item(), found


class _Case:
    def __init__(self, snapshot: Snapshot, cluster: Cluster, option: str, budgets: Budgets) -> None:
        if not snapshot.queue:
            raise InputError("no job waits in the snapshot", hint="take one with a queue")
        index = {one.job.job_id: n for n, one in enumerate(snapshot.jobs)}
        self.workload, estimate = jobs_of(snapshot, cluster, PERFECT, lambda one: index[one])
        jobs = Jobs.of(self.workload, estimate, cluster=cluster, budgets=budgets)
        rules = rules_after(snapshot, parse_policy(f"fcfs+greedy@milp{option}").rules(jobs, "reorder"))
        assert isinstance(rules.solver, PlacementSolver)
        self.solver = rules.solver
        self.solver.lookahead = 1 + ROOM_JOBS  # the term `room` is shown, whether it is minimised or not
        self.objective: Objective = self.solver.objective
        self.world, self.machine, state = lay_out(self.workload, cluster, rules, runtime=estimate, estimate=estimate).tables
        self.state = start_from(snapshot, self.workload, [], self.world, self.machine, state)
        self.waiting = [one.job.job_id for one in snapshot.queue]
        kept = [addresses_of(table) for table in (self.world, self.machine, self.state)]
        self._kept = kept
        self._tables = kept if JIT_DISABLED else [int(one.ctypes.data) for one in kept]

    def row_of(self, job_id: JobId) -> int:
        rows = np.flatnonzero(self.workload.job_id == job_id)
        if job_id not in self.waiting or not len(rows):
            raise InputError(f"job {job_id} does not wait in the snapshot", hint=f"waiting: {', '.join(map(str, self.waiting[:8]))}")
        return int(rows[0])

    def first_fitting(self) -> int:
        for job_id in self.waiting:
            row = self.row_of(job_id)
            if self.world.job_class[row] >= 0 and self._by_rule(int(self.world.job_class[row]), placement.PACK) is not None:
                return row
        raise InputError("no waiting job of the snapshot fits now", hint="name one with --job to see why, or wait")

    def options(self, row: int) -> list[PlacementOption]:
        c = int(self.world.job_class[row])
        if c < 0 or self._by_rule(c, placement.PACK) is None:
            raise InputError(f"job {self.workload.job_id[row]} does not fit now", hint="choose another with --job")
        values = np.zeros(gang_moves.PLACED_VALUES)
        make = partial(self._option, values=values)
        world, machine, state = self._tables
        placed = self.solver.place(world, machine, state, c)
        self.solver.raise_failure()
        assert placed
        places = self._places()
        gang_moves.weigh_and_remove(world, machine, state, c, self._room(c), True, values)
        best = make("milp", places, None)
        found = [best]
        for name, rule in ALTERNATIVES.items():
            its = self._by_rule(c, rule, values)
            if its is not None:
                found.append(make(name, its, best))
        return [best, *sorted(found[1:], key=lambda one: one.levels)]

    def _option(self, rule: str, places: tuple[Place, ...], best: PlacementOption | None, values: Any) -> PlacementOption:
        terms = {name: round(self.solver.term_of(name, values), 6) for name in TERMS}
        levels = tuple(round(value, 6) for value in self.solver.levels_of(values))
        return PlacementOption(rule, places, terms, levels, "the optimum" if best is None else self._why(levels, best.levels))

    def _why(self, levels: tuple[float, ...], best: tuple[float, ...]) -> str:
        for level, mine, its in zip(self.objective.levels, levels, best, strict=True):
            if mine != its:
                names = " + ".join(name if weight == 1 else f"{weight:g} {name}" for weight, name in level)
                return f"{'worse' if mine > its else 'better'} by {names}: {mine:g} against {its:g}"
        return "as good"

    def _by_rule(self, c: int, rule: int, values: Any = None) -> tuple[Place, ...] | None:
        """Where one of the engine's rules puts the job; None if it finds no place."""
        values = np.zeros(gang_moves.PLACED_VALUES) if values is None else values
        world, machine, state = self._tables
        if not gang_moves.weigh_rule(world, machine, state, c, rule, self._room(c), True, False, values):
            return None
        return self._places()

    def _room(self, c: int) -> Any:
        ahead = np.zeros(1 + ROOM_JOBS, np.int64)
        return ahead[1 : node_states.next_classes(self._tables[0], self._tables[2], c, ahead)]

    def _places(self) -> tuple[Place, ...]:
        found = np.zeros((len(self.state.place_node), 3), np.int64)
        number = gang_moves.read_placed(self._tables[2], found)
        return tuple(Place(n, tasks, tuple(g for g in range(64) if mask >> g & 1)) for n, tasks, mask in found[:number].tolist())
