"""Migration: emptying one node for a blocked head (`defrag` of the normative page)."""

from __future__ import annotations

from typing import Protocol

from reference.placement import Placer, primary
from reference.state import Job, Piece, State

NODES_TRIED = 8


class Simulation(Protocol):
    state: State
    running: dict[int, Job]
    placer: Placer

    def old_enough(self, job: Job) -> bool: ...
    def migrate(self, moves: list[tuple[Job, list[Piece]]]) -> None: ...


def make_room(sim: Simulation, head: Job) -> bool:
    """Move the jobs of one node elsewhere so that the head fits, if there is such a node."""
    total = head.machine.total
    allowed = [n for n, cap in enumerate(head.caps) if cap and n not in sim.state.closed]
    asked = head.num_tasks * (head.demand.gpu or head.demand.cpu or head.demand.mem)
    if asked > sum(primary(head, sim.state, n) for n in allowed):
        return False
    in_use = [n for n in allowed if jobs_on(sim, n)]
    in_use.sort(key=lambda n: (primary(head, total, n) - primary(head, sim.state, n), n))
    for n in in_use[:NODES_TRIED]:
        moves = moves_from(sim, n, head)
        if moves is not None:
            sim.migrate(moves)
            return True
    return False


def jobs_on(sim: Simulation, n: int) -> list[Job]:
    return [sim.running[j] for j in sorted(sim.running) if n in sim.running[j].nodes]


def moves_from(sim: Simulation, n: int, head: Job) -> list[tuple[Job, list[Piece]]] | None:
    """New places for all jobs of node n such that the head fits then; None if there are none."""
    moving = jobs_on(sim, n)
    if not all(sim.old_enough(job) for job in moving):
        return None
    trial = sim.state.copy()
    for job in moving:
        trial.give_back(job.pieces, job.demand)
    trial.closed = sim.state.closed | {n}
    moves = []
    for job in moving:
        pieces = sim.placer.place(job, trial)
        if pieces is None:
            return None
        trial.take(pieces, job.demand)
        moves.append((job, pieces))
    trial.closed = sim.state.closed
    return moves if sim.placer.fits(head, trial) else None
