"""Prefetching.

Jobs are scattered over memory, and waiting for one of them takes as long as about a hundred instructions.
"""

from __future__ import annotations

from queuewise.sim.core.compilation import inline
from queuewise.sim.core.events import first_job
from queuewise.sim.core.state import State, World
from queuewise.sim.core.table_types import fetch


@inline
def fetch_job(w: World, s: State, j: int) -> None:
    """Prefetch job j, which will start, end or be stopped soon."""
    fetch(w.runtime, j)
    fetch(s.end, j)
    if w.policy.can_restart:
        fetch(s.remaining, j)
        fetch(s.saved, j)  # the end of the same row
        fetch(s.heap_slot, j)
        fetch(w.width, j)


@inline
def fetch_pieces(s: State, j: int) -> None:
    """Prefetch the first piece of running job j, which will be needed soon."""
    piece = s.first_piece[j]
    fetch(s.piece_node, piece)
    fetch(s.piece_tasks, piece)
    fetch(s.piece_gpus, piece)
    fetch(s.piece_end, piece)


@inline
def fetch_next_event(w: World, s: State) -> None:
    if s.count.events > 0:
        j = first_job(s)
        fetch_job(w, s, j)
        fetch_pieces(s, j)
