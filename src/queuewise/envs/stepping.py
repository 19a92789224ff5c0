"""Stepping: the one compiled entry of all environments. It begins or steps a list of envs and writes what their agents see.

The engine moves time and hardware; this module says which of its moves an action means and when an episode ends (docs/mdp.md).
"""

from __future__ import annotations

import numpy as np

from queuewise.envs import rewards
from queuewise.envs.accounts import leave_running, note_arrival, note_end, note_start, open_books, pass_time, touch
from queuewise.envs.actions import draw_legal, is_legal, legal_instead
from queuewise.envs.closing import close_books
from queuewise.envs.masks import mark_legal
from queuewise.envs.stopping import observe_running, something_may_stop, stop_or_move
from queuewise.envs.table import (
    ACTIONS,
    BEGUN,
    BLOCKING,
    BOUNDED_SUM,
    BUSY,
    CAPACITY,
    COMMIT,
    DISPATCH,
    DRAWS,
    ELAPSED,
    ENDED,
    FITTING,
    GANG,
    HELD,
    HORIZON,
    HOST,
    IDLING,
    ILLEGAL,
    JCT_SUM,
    JOB,
    JOINT,
    LISTS,
    MAX_STEPS,
    NEXT_BLOCK,
    NEXT_BYTES,
    NEXT_SIZE,
    NEXT_TASK,
    NEXT_WORLD,
    NO_CAP,
    NOBODY,
    NUM_WEIGHTED,
    ON_MACHINE,
    OVER,
    PROBLEM,
    RETURN,
    SKIP_FORCED,
    STEP_BEGAN,
    STEPS,
    STOP_SLOTS,
    STOPS,
    TASK_LIST,
    TASKS_LEFT,
    TERMINAL,
    TOKENS,
    VIEW,
    WAIT_ACTION,
    WAIT_SUM,
    WAITING,
    WINDOW,
    WORLD_LIST,
    Frame,
    Output,
    Play,
    Task,
    as_frame,
    as_output,
    as_play,
    as_task,
)
from queuewise.envs.task import class_fits, note_window, observe, shown_jobs
from queuewise.sim.compilation import entry, inline, kernel
from queuewise.sim.conservative import plan_queue
from queuewise.sim.events import first_job
from queuewise.sim.fetching import fetch_job, fetch_pieces
from queuewise.sim.kernel import backfill_queue, next_instant, reserve_bound
from queuewise.sim.lifecycle import start_placed
from queuewise.sim.machine import slots_on
from queuewise.sim.pieces import put_tasks
from queuewise.sim.pins import UNSETTLED, place_first
from queuewise.sim.placement import runtime_factor
from queuewise.sim.schedule import QUEUED, RUNNING
from queuewise.sim.state import (
    ARRIVED,
    BACKFILL,
    CONSERVATIVE,
    EVENTS,
    NO_BACKFILL,
    NOW,
    NUM_JOBS,
    PINS,
    PLACED,
    RUNNING_JOBS,
    Machine,
    State,
    World,
    as_machine,
    as_state,
    as_world,
)
from queuewise.sim.tables import fetch, words_at

RUNS_ON, TERMINATED, TRUNCATED = range(3)  # what a step says of the episode
CACHE_LINE = 64  # bytes
FETCHED = 2048  # bytes of an env: addresses, counters, and the smallest arrays
NUM_ADDRESSES = 2 * len(Machine._fields) + len(State._fields) + len(Play._fields)  # with which an env's block begins


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
        if p.running_end[at] > s.clock[NOW] or s.status[j] == RUNNING:  # a job of length zero may yet be running
            at += 1
            continue
        leave_running(p, at)
        note_end(w, m, s, k, p, j)


@inline
def _try_start(w: World, m: Machine, s: State, k: Task, p: Play, j: int) -> bool:
    """Start job j where the placement rule puts it, if it fits."""
    c = w.job_class[j]
    if not place_first(w, m, s, j):
        return False
    start_placed(w, s, j, runtime_factor(w, s, c))
    note_start(w, m, s, k, p, j)
    return True


@kernel
def _fill_shade(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, head: int) -> None:
    """Let the backfill rule start what may start while the committed job waits."""
    rule = w.policy[BACKFILL]
    if rule == NO_BACKFILL or (p.number[WAITING] == 1 and not w.policy[PINS]):
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
    s.plan_stamp[w.class_queue[w.job_class[j]]] = UNSETTLED  # the last plan may have had the job behind others
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
    tasks = min(p.number[TASKS_LEFT], slots_on(w, m, c, n))
    put_tasks(w, m, s, c, n, tasks, False)
    touch(p, n)
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
    if p.number[FITTING] > 0:
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
            forced = not _something_fits(w, m, s, k, p) and not (k.config[STOP_SLOTS] > 0 and something_may_stop(w, m, s, k, p))
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
    if action == k.config[WAIT_ACTION]:
        _wait(w, m, s, k, p)
    elif problem == HOST:
        _put_on_host(w, m, s, k, p, p.number[GANG], action)
    elif problem == JOINT:
        _put_on_host(w, m, s, k, p, p.waiting[action], host)
    elif action >= k.config[WINDOW]:
        stop_or_move(w, m, s, k, p, action - k.config[WINDOW])
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
def _step(w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, action: int, host: int) -> int:
    """One legal action of one env; terms are left in Play.term."""
    p.scalar[STEP_BEGAN] = s.clock[NOW]
    p.scalar[ELAPSED] = 0.0
    p.number[STEPS] += 1
    if not p.number[OVER]:
        _act(w, m, z, s, k, p, action, host)
    outcome = _settle(w, m, s, k, p)
    if outcome != RUNS_ON:
        close_books(w, s, k, p, outcome == TRUNCATED)
        p.number[OVER] = 1
    return outcome


@kernel
def _pay(k: Task, p: Play, over: bool) -> float:
    """The step's reward; with terminal pay everything is held back until the end."""
    reward = 0.0
    for i in range(k.config[NUM_WEIGHTED]):
        t = k.weighted[i]
        reward += k.weight[t] * p.term[t]
    if k.config[TERMINAL]:
        p.scalar[HELD] += reward
        reward = p.scalar[HELD] if over else 0.0
    p.scalar[RETURN] += reward
    return reward


@inline
def _fetch_counters(f: Frame, e: int) -> None:
    """Ask for the beginning of an env that will be stepped soon: envs are many and do not fit into the nearer caches together."""
    block = words_at(f.home[e])
    for word in range(0, FETCHED // 8, CACHE_LINE // 8):
        fetch(block, word)


@inline
def _fetch_jobs(f: Frame, e: int) -> None:
    """Ask for the jobs that the next step of env e has to do with, once its counters are at hand: who starts, ends or arrives."""
    at = e * LISTS
    w, s, k, p = as_world(f.lists[at]), as_state(f.lists[at + 3]), as_task(f.lists[at + 4]), as_play(f.lists[at + 5])
    action = f.actions[2 * e]
    if action != f.space[ACTIONS] - 1:
        _fetch_job(w, s, k, p.waiting[min(action, p.number[WAITING])])  # of an action that starts none, it is the wrong one
        return
    _fetch_job(w, s, k, s.count[ARRIVED])
    if s.count[EVENTS] > 0:
        j = first_job(s)
        _fetch_job(w, s, k, j)
        fetch_pieces(s, j)


@inline
def _fetch_job(w: World, s: State, k: Task, j: int) -> None:
    fetch_job(w, s, j)
    fetch(w.submit, j)
    fetch(k.job_work, j)


@kernel
def _take_stock(s: State, p: Play, f: Frame, e: int, num_envs: int) -> None:
    """Write the sums of an episode that has ended, in the order of TALLY."""
    ended = float(p.number[ENDED])
    started = ended + p.number[ON_MACHINE]
    f.tally[e] = p.scalar[RETURN]
    f.tally[e + num_envs] = float(p.number[STEPS])
    f.tally[e + 2 * num_envs] = float(p.number[ILLEGAL])
    f.tally[e + 3 * num_envs] = ended
    f.tally[e + 4 * num_envs] = float(p.number[WAITING] + p.number[ON_MACHINE])
    f.tally[e + 5 * num_envs] = p.scalar[WAIT_SUM] / max(started, 1.0)
    f.tally[e + 6 * num_envs] = p.scalar[JCT_SUM] / max(ended, 1.0)
    f.tally[e + 7 * num_envs] = p.scalar[BOUNDED_SUM] / max(ended, 1.0)
    f.tally[e + 8 * num_envs] = float(p.number[STOPS])


@kernel
def _go_on(f: Frame, o: Output, e: int) -> None:
    """Keep the last observation of env e and lay out its next episode."""
    for i in range(f.length[0]):
        o.final[i] = o.observation[i]
    following = e * NEXT_SIZE
    home = f.home[e]
    block, words = words_at(home), words_at(f.next[following + NEXT_BLOCK])
    for i in range(f.next[following + NEXT_BYTES] // 8):
        block[i] = words[i]
    for i in range(NUM_ADDRESSES):
        block[i] += home
    f.lists[e * LISTS + WORLD_LIST] = f.next[following + NEXT_WORLD]
    f.lists[e * LISTS + TASK_LIST] = f.next[following + NEXT_TASK]
    f.next[following + NEXT_BLOCK] = 0


@inline
def _step_and_pay(f: Frame, w: World, m: Machine, z: Machine, s: State, k: Task, p: Play, o: Output, e: int, num_envs: int) -> int:
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    action, host = f.actions[2 * e], f.actions[2 * e + 1]
    if not is_legal(k, o.mask, action, host):
        p.number[ILLEGAL] += 1
        p.term[rewards.ILLEGAL_ACTIONS] -= 1.0
        action, host = legal_instead(k, o.mask)
    outcome = _step(w, m, z, s, k, p, action, host)
    f.rewards[e] = _pay(k, p, outcome != RUNS_ON)
    if outcome != RUNS_ON:
        _take_stock(s, p, f, e, num_envs)
    f.outcome[e] = outcome
    f.terminated[e] = np.int8(outcome == TERMINATED)
    f.truncated[e] = np.int8(outcome == TRUNCATED)
    f.elapsed[e] = p.scalar[ELAPSED]
    return outcome


@entry
def play(frame, envs, begins, fresh, num_envs) -> int:  # type: ignore[no-untyped-def]
    """Begin or step every env in `envs` and return how many of their episodes have ended.

    An illegal action counts, and becomes a wait, or the first legal action where waiting is not possible. An env whose episode ends goes
    on with the next one if there is one (Frame.next): it is then looked at a second time, to begin.
    """
    f = as_frame(frame)
    over = 0
    i = 0
    anew = begins
    while i < len(envs):
        e = envs[i]
        if i + 2 < len(envs):
            _fetch_counters(f, envs[i + 2])
        if i + 1 < len(envs) and not begins:
            _fetch_jobs(f, envs[i + 1])
        at = e * LISTS
        w, m, z, s = as_world(f.lists[at]), as_machine(f.lists[at + 1]), as_machine(f.lists[at + 2]), as_state(f.lists[at + 3])
        k, p, o = as_task(f.lists[at + 4]), as_play(f.lists[at + 5]), as_output(f.lists[at + 6])
        outcome = RUNS_ON
        if anew:
            begin(w, m, s, k, p)
        else:
            outcome = _step_and_pay(f, w, m, z, s, k, p, o, e, num_envs)
            over += outcome != RUNS_ON
        if k.config[VIEW] == TOKENS:
            observe(w, m, s, k, p, o.observation, fresh or anew)
            if k.config[STOP_SLOTS] > 0:
                observe_running(w, m, s, k, p, o.observation, f.running_at[0])
        else:
            note_window(w, m, s, k, p)
        mark_legal(w, m, s, k, p, o.mask)
        goes_on = outcome != RUNS_ON and f.next[e * NEXT_SIZE + NEXT_BLOCK] != 0
        if f.space[DRAWS] and (anew or outcome == RUNS_ON):
            draw_legal(f, p, e)
        if goes_on:
            _go_on(f, o, e)
        else:
            i += 1
        anew = begins or goes_on
    return over
