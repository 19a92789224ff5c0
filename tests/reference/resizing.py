"""Running elastic jobs that change their number of tasks ("Resizing" of the normative page)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from reference.placement import Placer
from reference.state import Job, Piece, State


class Simulation(Protocol):
    state: State
    running: dict[int, Job]
    jobs: list[Job]
    placer: Placer

    @property
    def now(self) -> float: ...
    def queue_of(self, job: Job) -> int: ...
    def old_enough(self, job: Job) -> bool: ...
    def stop(self, job: Job, *, saved: bool) -> None: ...
    def start(self, job: Job, pieces: list[Piece]) -> None: ...


def resizable(sim: Simulation) -> list[Job]:
    """Running elastic jobs whose run did not start just now and may be stopped, by index."""
    running = (sim.jobs[j] for j in sorted(sim.running))
    return [job for job in running if len(job.sizes) > 1 and sim.old_enough(job)]


def count(pieces: Iterable[Piece]) -> int:
    return sum(piece.tasks for piece in pieces)


def split(job: Job) -> tuple[list[Piece], list[Piece]]:
    """What the job keeps with its fewest tasks, and the rest: tasks on the lowest nodes and GPUs stay."""
    left = job.sizes[-1].num_tasks
    kept, rest = [], []
    for piece in sorted(job.pieces, key=lambda piece: (piece.node, piece.gpus)):
        tasks = min(left, piece.tasks)
        gpus = len(piece.gpus) * tasks // piece.tasks
        if tasks:
            kept.append(Piece(piece.node, tasks, piece.gpus[:gpus]))
        if tasks < piece.tasks:
            rest.append(Piece(piece.node, piece.tasks - tasks, piece.gpus[gpus:]))
        left -= tasks
    return kept, rest


def shrink(sim: Simulation, q: int, head: Job) -> bool:
    """Let jobs of the queue have their fewest tasks, the last one first, until the head fits; none if it does not then."""
    tried = []
    fits = False
    for job in reversed([job for job in resizable(sim) if sim.queue_of(job) == q]):
        tried.append((job, *split(job)))
        sim.state.give_back(tried[-1][2], job.demand)
        fits = sim.placer.fits(head, sim.state)
        if fits:
            break
    for job, _, rest in tried:
        sim.state.take(rest, job.demand)
    for job, kept, rest in tried if fits else ():
        if rest:
            sim.stop(job, saved=True)
            sim.start(job, kept)
    return fits


def grow(sim: Simulation) -> None:
    """Let jobs be placed again, the first one first, where that gives them more tasks."""
    for job in resizable(sim):
        if count(job.pieces) == job.sizes[0].num_tasks:
            continue
        held = job.pieces
        sim.state.give_back(held, job.demand)
        pieces = sim.placer.place(job, sim.state)
        sim.state.take(held, job.demand)
        if pieces is not None and count(pieces) > count(held):
            sim.stop(job, saved=True)
            sim.start(job, pieces)
