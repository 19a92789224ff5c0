"""The engine, one action at a time, for policies that decide in Python and for replaying a log.

Callers advance to the next instant, ask what fits, and start, stop or move jobs.
"""

from __future__ import annotations

from queuewise.sim import backfill
from queuewise.sim.conditions.power_cap import is_over_cap
from queuewise.sim.core.compilation import entry, kernel
from queuewise.sim.core.lifecycle import end_run, put_back, queue_again, start_placed, stop_to_move, take_off
from queuewise.sim.core.loop import next_instant
from queuewise.sim.core.machine import give, piece_is_free, slots_on, take_exactly
from queuewise.sim.core.pieces import put_tasks, unplace
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.placement.placement_rules import fits, place, runtime_factor
from queuewise.sim.preemption.restart import may_be_stopped, policy_saves

NEXT_INSTANT, ASK_FIT, ASK_SLOTS, START, START_ON, START_THERE, STOP, MOVE, MOVE_TO = range(9)


@kernel
def _place_on(w: World, m: Machine, s: State, c: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    """Put tasks[i] tasks on nodes[i]; the nodes must be distinct.

    If they do not fit, change nothing and return False.
    """
    s.count.placed = 0
    for i in range(len(nodes)):
        if slots_on(w, m, c, nodes[i]) < tasks[i]:
            unplace(w, m, s, c)
            return False
        put_tasks(w, m, s, c, nodes[i], tasks[i], False)
    if is_over_cap(w, m):
        unplace(w, m, s, c)
        return False
    return True


@kernel
def _place_there(w: World, m: Machine, s: State, c: int) -> bool:
    """Take the pieces in State.place_*. If one of them is not free, change nothing and return False."""
    for k in range(s.count.placed):
        if m.closed[s.place_node[k]] or not piece_is_free(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k]):
            for back in range(k):
                give(w, m, c, s.place_node[back], s.place_tasks[back], s.place_gpus[back])
            return False
        take_exactly(w, m, c, s.place_node[k], s.place_tasks[k], s.place_gpus[k])
    return True


@kernel
def _place_for_action(w: World, m: Machine, s: State, c: int, action: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    if action == START_THERE:
        return _place_there(w, m, s, c)
    if action in (START_ON, MOVE_TO):
        return _place_on(w, m, s, c, nodes, tasks)
    return place(w, m, s, c)


@kernel
def _stop(w: World, m: Machine, s: State, j: int) -> None:
    take_off(w, m, s, j)
    end_run(w, s, j, policy_saves(w) or w.policy.backfill == backfill.DEFRAG or w.policy.resizes != 0)  # both stop only to move
    queue_again(w, s, j)


@entry
def act(world, machine, state, action: int, j: int, nodes, tasks) -> bool:  # type: ignore[no-untyped-def]
    """Execute one action. Returns False if that is not possible.

    - NEXT_INSTANT advances to the next instant and its decision.
    - ASK_FIT returns whether job j fits.
    - ASK_SLOTS writes tasks[n], the number of tasks of job j that node n can take.
    - START starts job j where the placement rule puts it, START_ON with tasks[i] tasks on nodes[i], START_THERE on the
      pieces in State.place_*.
    - STOP stops running job j and queues it again, unless its run is younger than the quantum.
    - MOVE and MOVE_TO let it continue elsewhere at once, stopped as by `suspend`. What it holds counts as free.
    """
    w = as_world(world)
    m = as_machine(machine)
    s = as_state(state)
    if action == NEXT_INSTANT:
        going = next_instant(w, m, s)
        s.count.decisions += going
        return going
    c = w.job_class[j]
    if action == ASK_FIT:
        return fits(w, m, s, c)
    if action == ASK_SLOTS:
        for n in range(w.sizes.num_nodes):
            tasks[n] = slots_on(w, m, c, n)
        return True
    moves = action in (MOVE, MOVE_TO)
    if (moves or action == STOP) and not may_be_stopped(w, s, j):
        return False
    if action == STOP:
        _stop(w, m, s, j)
        return True
    if moves:
        take_off(w, m, s, j)
    placed = _place_for_action(w, m, s, c, action, nodes, tasks)
    if moves and not placed:
        put_back(w, m, s, j)
    elif moves:
        stop_to_move(w, s, j)
    if placed:
        start_placed(w, s, j, runtime_factor(w, s, c))
    return placed
