"""Nodes that fall asleep after they have been idle for a while, and must wake before a job can begin on them.

There is no event for falling asleep: whether a node sleeps follows from the time at which it became idle. The columns
have one entry per node only if World.policy.nodes_sleep is set.
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
    """Break ties between nodes that a placement rule ranks equally. The lowest comes first; awake nodes are lower."""
    return n + w.sizes.num_nodes if w.policy.nodes_sleep and is_asleep(w, s, n) else n


@noinline
def wake_nodes(w: World, s: State) -> float:
    """Wake the nodes of a run that starts as placed in State.place_*.

    Returns the time at which all of them are awake.
    """
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
    """Release the nodes of job j, whose run is over.

    A node that is still waking counts as idle from the time it is awake.
    """
    for k in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        n = s.piece_node[k]
        s.node_pieces[n] -= 1
        if s.node_pieces[n] == 0:
            s.idle_since[n] = max(s.clock.now, s.awake_at[n])
