"""Nodes that fall asleep when they have been idle for long, and must wake before a job can begin on them.

Nothing happens when a node falls asleep: whether it sleeps follows from the time since which it is idle. Columns are there only where
World.policy.nodes_sleep says so.
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.core.compilation import inline, noinline
from queuewise.sim.core.state import State, World


@inline
def is_asleep(w: World, s: State, n: int) -> bool:
    return s.clock.now > s.idle_since[n] + w.costs.sleep_after


@inline
def tie_break(w: World, s: State, n: int) -> int:
    """What decides between nodes that a placement rule likes equally: least first."""
    return n + w.sizes.num_nodes if w.policy.nodes_sleep and is_asleep(w, s, n) else n


@noinline
def wake_nodes(w: World, s: State) -> float:
    """A run starts as placed in State.place_*: wake its nodes. Returns when all of them are awake."""
    now = s.clock.now
    awake = now
    for k in range(s.count.placed):
        n = s.place_node[k]
        if is_asleep(w, s, n):
            s.awake_at[n] = now + w.costs.wake
        s.idle_since[n] = np.inf
        s.node_pieces[n] += 1
        awake = max(awake, s.awake_at[n])
    return awake


@noinline
def leave_nodes(w: World, s: State, j: int) -> None:
    """The run of job j is over; a node that it leaves while still waking is idle from its waking on."""
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        s.node_pieces[n] -= 1
        if s.node_pieces[n] == 0:
            s.idle_since[n] = max(s.clock.now, s.awake_at[n])
