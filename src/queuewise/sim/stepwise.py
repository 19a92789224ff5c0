"""The engine one step at a time, for policies that decide in Python: go to the next instant, ask what fits, start a job."""

from __future__ import annotations

from queuewise.sim.compilation import entry, kernel
from queuewise.sim.kernel import next_instant
from queuewise.sim.lifecycle import start_placed
from queuewise.sim.machine import slots
from queuewise.sim.pieces import put_tasks, unplace
from queuewise.sim.placement import fits, place, runtime_factor
from queuewise.sim.power import is_over_cap
from queuewise.sim.state import DECISIONS, NUM_NODES, NUM_POOLS, PLACED, Machine, State, World, as_machine, as_state, as_world

NEXT_INSTANT, ASK_FIT, ASK_SLOTS, START, START_ON = range(5)


@kernel
def _slots_on(w: World, m: Machine, c: int, n: int) -> int:
    """Tasks of class c that any node can take now."""
    return slots(w, m, c, n) if w.class_allows[c * w.sizes[NUM_POOLS] + w.node_pool[n]] else 0


@kernel
def _place_on(w: World, m: Machine, s: State, c: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    """Put tasks[i] tasks on nodes[i], each node once, or leave m as it was and return False."""
    s.count[PLACED] = 0
    for i in range(len(nodes)):
        if _slots_on(w, m, c, nodes[i]) < tasks[i]:
            unplace(w, m, s, c)
            return False
        put_tasks(w, m, s, c, nodes[i], tasks[i], False)
    if is_over_cap(w, m):
        unplace(w, m, s, c)
        return False
    return True


@entry
def act(world, machine, state, action: int, j: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    """Do one thing; False if it cannot be done.

    NEXT_INSTANT goes to the next instant and its decision. ASK_FIT: does job j fit? ASK_SLOTS writes tasks[n], the tasks of job j that node
    n can take. START starts job j where the placement rule puts it, START_ON with tasks[i] tasks on nodes[i].
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    if action == NEXT_INSTANT:
        going = next_instant(w, m, s)
        s.count[DECISIONS] += going
        return going
    c = w.job_class[j]
    if action == ASK_FIT:
        return fits(w, m, s, c)
    if action == ASK_SLOTS:
        for n in range(w.sizes[NUM_NODES]):
            tasks[n] = _slots_on(w, m, c, n)
        return True
    placed = place(w, m, s, c) if action == START else _place_on(w, m, s, c, nodes, tasks)
    if placed:
        start_placed(w, s, j, runtime_factor(w, s, c))
    return placed
