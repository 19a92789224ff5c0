"""The power cap: what jobs draw together stays within what idle nodes leave of it. In whole milliwatts, so that sums are exact."""

from __future__ import annotations

from queuewise.sim.compilation import inline
from queuewise.sim.state import NO_LIMIT, NUM_POOLS, POWER_BUDGET, Machine, World


@inline
def is_capped(w: World) -> bool:
    return w.policy[POWER_BUDGET] != NO_LIMIT


@inline
def draw_of(w: World, c: int, n: int, tasks: int) -> int:
    """What tasks of class c on node n draw; only with a cap."""
    return tasks * w.task_draw[c * w.sizes[NUM_POOLS] + w.node_pool[n]]


@inline
def draw(w: World, m: Machine, c: int, n: int, tasks: int) -> None:
    """Tasks of class c begin to draw on node n, or cease to if there are less than 0 of them."""
    if is_capped(w):
        m.drawn[0] += draw_of(w, c, n, tasks)


@inline
def is_over_cap(w: World, m: Machine) -> bool:
    return is_capped(w) and m.drawn[0] > w.policy[POWER_BUDGET]
