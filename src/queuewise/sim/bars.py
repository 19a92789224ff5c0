"""Whether a node is reserved for others while a job would run there. Asked where a node's slots are counted."""

from __future__ import annotations

from queuewise.sim.compilation import inline, seldom
from queuewise.sim.state import NUM_LIFTS, NUM_NODES, RESERVES, World


@seldom
def _is_barred(w: World, c: int, n: int, time: float) -> bool:
    row = w.class_crowd[c] * w.sizes[NUM_NODES] + n
    until = time + w.class_length[c]
    for k in range(w.bar_first[row], w.bar_first[row + 1]):
        if time < w.bar_end[k] and (w.bar_start[k] <= time or w.bar_start[k] < until):
            return True
    return False


@inline
def is_barred(w: World, c: int, n: int, time: float) -> bool:
    """Whether others have node n reserved at some time of a run of class c that starts at `time`."""
    return w.policy[RESERVES] != 0 and _is_barred(w, c, n, time)


@inline
def first_lift_after(w: World, time: float) -> int:
    """Of the ends of reservations the first after `time`; NUM_LIFTS if there is none."""
    lift = 0
    while lift < w.sizes[NUM_LIFTS] and w.lift_time[lift] <= time:
        lift += 1
    return lift
