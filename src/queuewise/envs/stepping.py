"""Stepping: the one compiled entry of all environments. It begins or steps a list of envs and writes what their agents see.

The engine moves time and hardware; this module says which of its moves an action means and when an episode ends (docs/mdp.md).
"""

from __future__ import annotations

import numpy as np

from queuewise.envs import rewards
from queuewise.envs.accounts import note_arrival, note_end, note_start, open_books, pass_time
from queuewise.envs.closing import close_books
from queuewise.envs.table import (
    BEGUN,
    BLOCKING,
    BUSY,
    CAPACITY,
    COMMIT,
    DISPATCH,
    ELAPSED,
    GANG,
    HELD,
    HORIZON,
    HOST,
    HOST_SLOTS,
    I8,
    IDLING,
    ILLEGAL,
    JOB,
    JOINT,
    MAX_STEPS,
    NO_CAP,
    NOBODY,
    ON_MACHINE,
    OVER,
    PROBLEM,
    RETURN,
    SKIP_FORCED,
    STEP_BEGAN,
    STEPS,
    TASKS_LEFT,
    TERMINAL,
    WAITING,
    WINDOW,
    Play,
    Task,
    as_output,
    as_play,
    as_task,
)
from queuewise.envs.task import class_fits, mark_legal, observe, room_on, shown_jobs
from queuewise.sim.compilation import entry, inline, kernel
from queuewise.sim.conservative import plan_queue
from queuewise.sim.kernel import backfill_queue, next_instant, reserve_bound
from queuewise.sim.lifecycle import start_placed
from queuewise.sim.pieces import put_tasks
from queuewise.sim.placement import place, runtime_factor
from queuewise.sim.schedule import QUEUED, RUNNING
from queuewise.sim.state import (
    ARRIVED,
    BACKFILL,
    CONSERVATIVE,
    NO_BACKFILL,
    NOW,
    NUM_JOBS,
    PLACED,
    RUNNING_JOBS,
    Machine,
    State,
    World,
    as_machine,
    as_state,
    as_world,
)

RUNS_ON, TERMINATED, TRUNCATED = range(3)  # what a step says of the episode


@kernel
def advance(w: World, m: Machine, s: State, k: Task, p: Play) -> bool:
    """Go to the next event time and keep the books; False if nothing lies ahead."""
    before = s.clock[NOW]
    arrived = s.count[ARRIVED]
    if not next_instant(w, m, s):
        return False
    if p.number[BEGUN]:
        pass_time(k, p, before, s.clock[NOW])
    p.number[BEGUN] = 1
    if s.count[RUNNING_JOBS] != p.number[ON_MACHINE]:
        _note_ends(w, m, s, k, p)
    for j in range(arrived, s.count[ARRIVED]):
        if s.status[j] == QUEUED:
            note_arrival(w, k, p, j)
    return True


@kernel
def _note_ends(w: World, m: Machine, s: State, k: Task, p: Play) -> None:
    at = 0
    while at < p.number[ON_MACHINE]:
        j = p.running[at]
        if s.status[j] == RUNNING:
            at += 1
            continue
        p.number[ON_MACHINE] -= 1
        p.running[at] = p.running[p.number[ON_MACHINE]]
        note_end(w, m, s, k, p, j)


@inline
def _try_start(w: World, m: Machine, s: State, k: Task, p: Play, j: int) -> bool:
    """Start job j where the placement rule puts it, if it fits."""
    c = w.job_class[j]
    if not place(w, m, s, c):
        return False
    start_placed(w, s, j, runtime_factor(w, s, c))
    note_start(w, m, s, k, p, j)
    return True


@kernel
def _fill_shade(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, head: int) -> None:
    """Let the backfill rule start what may start while the committed job waits."""
    rule = w.policy[BACKFILL]
    if rule == NO_BACKFILL or p.number[WAITING] == 1:
        return
    q = w.class_queue[w.job_class[head]]
    s.head[q] = head
    if rule == CONSERVATIVE:
        plan_queue(w, m, z, s, q)
    else:
        reserve_bound(w, m, z, s, q)
        backfill_queue(w, m, z, s, q)
    s.head[q] = NOBODY
    at = 0
    while at < p.number[WAITING]:
        j = p.waiting[at]
        if s.status[j] == RUNNING:
            note_start(w, m, s, k, p, j)  # takes j off the list
        else:
            at += 1


@kernel
def _commit(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, j: int) -> None:
    """Hold the machine for job j until it fits, then start it. Stops at the horizon, with the job still waiting."""
    while not _try_start(w, m, s, k, p, j):
        _fill_shade(w, m, z, s, k, p, j)
        if not advance(w, m, s, k, p) or s.clock[NOW] > k.scale[HORIZON]:
            return


@kernel
def _put_on_host(w: World, m: Machine, s: State, k: Task, p: Play, j: int, n: int) -> None:
    """Give host n as many of the job's remaining tasks as it takes; the last one starts the job."""
    c = w.job_class[j]
    if p.number[GANG] == NOBODY or p.number[TASKS_LEFT] == w.class_tasks[c]:
        p.number[GANG] = j
        p.number[TASKS_LEFT] = w.class_tasks[c]
        s.count[PLACED] = 0
    tasks = min(p.number[TASKS_LEFT], room_on(w, m, c, n))
    put_tasks(w, m, s, c, n, tasks, False)
    p.number[TASKS_LEFT] -= tasks
    if p.number[TASKS_LEFT] == 0:
        p.number[GANG] = NOBODY
        start_placed(w, s, j, runtime_factor(w, s, c))
        note_start(w, m, s, k, p, j)


@kernel
def _something_fits(w: World, m: Machine, s: State, k: Task, p: Play) -> bool:
    for q in range(shown_jobs(k, p)):  # noqa: SIM110 (no generators in kernels)
        if class_fits(w, m, s, p, w.job_class[p.waiting[q]]):
            return True
    return False


@kernel
def _wait(w: World, m: Machine, s: State, k: Task, p: Play) -> None:
    """Let time pass until the next event."""
    p.number[GANG] = NOBODY
    if _something_fits(w, m, s, k, p):
        idle = 1.0 - p.scalar[BUSY] / k.scale[CAPACITY]
        p.term[rewards.NOOP_FEASIBLE] -= idle
        p.scalar[IDLING] = 1.0
    advance(w, m, s, k, p)
    p.scalar[IDLING] = 0.0


@kernel
def _name_next_job(w: World, m: Machine, s: State, k: Task, p: Play) -> None:
    """Host problem: the first job shown that fits (the first one only, if it blocks the others) is the one to place."""
    p.number[GANG] = NOBODY
    for q in range(1 if k.config[BLOCKING] and p.number[WAITING] > 0 else shown_jobs(k, p)):
        j = p.waiting[q]
        if class_fits(w, m, s, p, w.job_class[j]):
            p.number[GANG] = j
            p.number[TASKS_LEFT] = w.class_tasks[w.job_class[j]]
            return


@kernel
def _settle(w: World, m: Machine, s: State, k: Task, p: Play) -> int:
    """After an action: play on to the next decision, or to the end when none is left."""
    in_gang = k.config[PROBLEM] != JOB and p.number[GANG] != NOBODY
    while not in_gang:
        if p.number[WAITING] == 0 and s.count[ARRIVED] == w.sizes[NUM_JOBS]:
            while advance(w, m, s, k, p):  # only ends are left
                pass
            return TERMINATED
        if s.clock[NOW] > k.scale[HORIZON]:
            return TRUNCATED
        if k.config[PROBLEM] == HOST:
            _name_next_job(w, m, s, k, p)
        if k.config[DISPATCH] == COMMIT:
            forced = p.number[WAITING] == 0
        elif not k.config[SKIP_FORCED]:
            forced = False
        elif k.config[PROBLEM] == HOST:
            forced = p.number[GANG] == NOBODY
        else:
            forced = not _something_fits(w, m, s, k, p)
        if not forced:
            break
        advance(w, m, s, k, p)
    if k.config[MAX_STEPS] != NO_CAP and p.number[STEPS] >= k.config[MAX_STEPS]:
        return TRUNCATED
    return RUNS_ON


@kernel
def _act(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, action: int, host: int) -> None:
    """Do what a legal action says."""
    problem = k.config[PROBLEM]
    if action == (k.config[HOST_SLOTS] if problem == HOST else k.config[WINDOW]):
        _wait(w, m, s, k, p)
    elif problem == HOST:
        _put_on_host(w, m, s, k, p, p.number[GANG], action)
    elif problem == JOINT:
        _put_on_host(w, m, s, k, p, p.waiting[action], host)
    elif k.config[DISPATCH] == COMMIT:
        _commit(w, m, z, s, k, p, p.waiting[action])
    else:
        _try_start(w, m, s, k, p, p.waiting[action])


@kernel
def begin(w: World, m: Machine, s: State, k: Task, p: Play) -> None:
    """Go to the first decision of an episode that was just laid out."""
    open_books(w, m, k, p)
    p.number[GANG] = NOBODY
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    while p.number[WAITING] == 0 and advance(w, m, s, k, p):
        pass
    p.scalar[STEP_BEGAN] = s.clock[NOW]
    p.scalar[ELAPSED] = 0.0
    p.number[OVER] = p.number[WAITING] == 0
    if k.config[PROBLEM] == HOST:
        _name_next_job(w, m, s, k, p)


@kernel
def _step(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, action: int, host: int, users: int) -> int:
    """One legal action of one env; terms are left in Play.term."""
    p.scalar[STEP_BEGAN] = s.clock[NOW]
    p.scalar[ELAPSED] = 0.0
    p.number[STEPS] += 1
    if not p.number[OVER]:
        _act(w, m, z, s, k, p, action, host)
    outcome = _settle(w, m, s, k, p)
    if outcome != RUNS_ON:
        close_books(w, s, k, p, users, outcome == TRUNCATED)
        p.number[OVER] = 1
    return outcome


@inline
def _is_legal(k: Task, mask: I8, action: int, host: int) -> bool:
    if not mask[action]:
        return False
    if k.config[PROBLEM] != JOINT or action == k.config[WINDOW]:
        return True
    return mask[k.config[WINDOW] + 1 + action * k.config[HOST_SLOTS] + host] > 0


@kernel
def _pay(k: Task, p: Play, over: bool) -> float:
    """The step's reward; with terminal pay everything is held back until the end."""
    reward = 0.0
    for t in range(rewards.NUM_TERMS):
        reward += k.weight[t] * p.term[t]
    if k.config[TERMINAL]:
        p.scalar[HELD] += reward
        reward = p.scalar[HELD] if over else 0.0
    p.scalar[RETURN] += reward
    return reward


@entry
def play(tables, outputs, fresh, envs, begins, actions, users, rewards_out, outcome, elapsed) -> None:  # type: ignore[no-untyped-def]
    """Begin or step every env in `envs`; all other arrays, and each of the six tables, have one row an env.

    An illegal action counts, and becomes a wait, or the first legal action where waiting is not possible.
    """
    worlds, machines, spares, states, tasks, plays = tables
    for i in range(len(envs)):
        e = envs[i]
        w, m, z, s = as_world(worlds[e]), as_machine(machines[e]), as_machine(spares[e]), as_state(states[e])
        k, p, o = as_task(tasks[e]), as_play(plays[e]), as_output(outputs[e])
        if begins:
            begin(w, m, s, k, p)
            outcome[e] = RUNS_ON
            rewards_out[e] = 0.0
            elapsed[e] = 0.0
        else:
            for t in range(rewards.NUM_TERMS):
                p.term[t] = 0.0
            action, host = actions[e, 0], actions[e, 1]
            if not _is_legal(k, o.mask, action, host):
                p.number[ILLEGAL] += 1
                p.term[rewards.ILLEGAL_ACTIONS] -= 1.0
                action, host = _instead(k, o.mask)
            outcome[e] = _step(w, m, z, s, k, p, action, host, users[e])
            rewards_out[e] = _pay(k, p, outcome[e] != RUNS_ON)
            elapsed[e] = p.scalar[ELAPSED]
        observe(w, m, s, k, p, o.observation, fresh or begins)
        mark_legal(w, m, s, k, p, o.mask)


@kernel
def _instead(k: Task, mask: I8) -> tuple[int, int]:
    """What is done in place of an illegal action: wait, or else the first legal one."""
    wait = k.config[HOST_SLOTS] if k.config[PROBLEM] == HOST else k.config[WINDOW]
    if mask[wait]:
        return wait, 0
    action = 0
    while not mask[action]:
        action += 1
    host = 0
    if k.config[PROBLEM] == JOINT:
        while not mask[k.config[WINDOW] + 1 + action * k.config[HOST_SLOTS] + host]:
            host += 1
    return action, host


@entry
def first_illegal(mask, actions, window, hosts, joint) -> int:  # type: ignore[no-untyped-def]
    """The first env whose action is not legal, -1 if all are."""
    for e in range(len(actions)):
        action = actions[e, 0]
        if not mask[e, action]:
            return e
        if joint and action != window and not mask[e, window + 1 + action * hosts + actions[e, 1]]:
            return e
    return -1


@entry
def draw_legal(mask, window, hosts, joint, state, actions) -> None:  # type: ignore[no-untyped-def]
    """A uniformly random legal action for every env (joint: a job, then one of its hosts). `state` [E] uint64 is stepped."""
    for e in range(len(actions)):
        length = window + 1 if joint else mask.shape[1]
        actions[e, 0] = _draw(mask, e, 0, length, state)
        actions[e, 1] = 0
        if joint and actions[e, 0] != window:
            actions[e, 1] = _draw(mask, e, window + 1 + actions[e, 0] * hosts, hosts, state)


@kernel
def _draw(mask, e, first, length, state) -> int:  # type: ignore[no-untyped-def]
    number = 0
    for a in range(first, first + length):
        number += mask[e, a]
    x = state[e]
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    state[e] = x
    left = np.int64((x >> np.uint64(11)) % np.uint64(number))
    for a in range(first, first + length):
        if mask[e, a]:
            if left == 0:
                return a - first
            left -= 1
    return 0
