"""Stepping: the one compiled entry of all environments. It begins or steps a list of envs and writes what their agents see.

The engine moves time and hardware; this module says which of its moves an action means and when an episode ends (docs/mdp.md).
"""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns, rewards
from queuewise.envs.actions import draw_legal, is_legal, legal_instead
from queuewise.envs.bookkeeping import leave_running, note_arrival, note_end, note_start, open_books, pass_time, touch
from queuewise.envs.columns import TALLY_AT, EpisodeState, Frame, Output, Task, as_episode_state, as_frame, as_output, as_task
from queuewise.envs.episode_end import close_books
from queuewise.envs.masks import mark_legal
from queuewise.envs.observation import class_fits, note_window, observe, shown_jobs
from queuewise.envs.stopping import observe_running, something_may_stop, stop_or_move
from queuewise.sim import backfill
from queuewise.sim.backfill.conservative import plan_queue
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.events import first_job
from queuewise.sim.core.lifecycle import start_placed
from queuewise.sim.core.loop import backfill_queue, next_instant, reserve_bound
from queuewise.sim.core.machine import slots_on
from queuewise.sim.core.pieces import put_tasks
from queuewise.sim.core.prefetch import fetch_job, fetch_pieces
from queuewise.sim.core.schedule import QUEUED, RUNNING
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.core.table_types import fetch, words_at
from queuewise.sim.placement.placement_rules import place, runtime_factor

RUNS_ON, TERMINATED, TRUNCATED = range(3)  # what a step says of the episode
CACHE_LINE = 64  # bytes
FETCHED = 2048  # bytes of an env: addresses, counters, and the smallest arrays
NUM_ADDRESSES = 2 * len(Machine.columns) + len(State.columns) + len(EpisodeState.columns)  # with which an env's block begins


@kernel
def advance(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Go to the next event time and keep the books; False if nothing lies ahead."""
    before = s.clock.now
    arrived = s.count.arrived
    if not next_instant(w, m, s):
        return False
    if p.count.begun:
        pass_time(k, p, before, s.clock.now)
    p.count.begun = 1
    if s.count.running_jobs != p.count.on_machine:
        _note_ends(w, m, s, k, p)
    for j in range(arrived, s.count.arrived):
        if s.status[j] == QUEUED:
            note_arrival(w, k, p, j)
    return True


@kernel
def _note_ends(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    at = 0
    while at < p.count.on_machine:
        j = p.running[at]
        if p.running_end[at] > s.clock.now or s.status[j] == RUNNING:  # a job of length zero may yet be running
            at += 1
            continue
        leave_running(p, at)
        note_end(w, m, s, k, p, j)


@inline
def _try_start(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    """Start job j where the placement rule puts it, if it fits."""
    c = w.job_class[j]
    if not place(w, m, s, c):
        return False
    start_placed(w, s, j, runtime_factor(w, s, c))
    note_start(w, m, s, k, p, j)
    return True


@kernel
def _fill_shade(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, head: int) -> None:
    """Let the backfill rule start what may start while the committed job waits."""
    rule = w.policy.backfill
    if rule == backfill.NO_BACKFILL or p.count.waiting == 1:
        return
    q = w.class_queue[w.job_class[head]]
    s.head[q] = head
    if rule == backfill.CONSERVATIVE:
        plan_queue(w, m, z, s, q)
    else:
        reserve_bound(w, m, z, s, q)
        backfill_queue(w, m, z, s, q)
    s.head[q] = columns.NOBODY
    at = 0
    while at < p.count.waiting:
        j = p.waiting[at]
        if s.status[j] == RUNNING:
            note_start(w, m, s, k, p, j)  # takes j off the list
        else:
            at += 1


@kernel
def _commit(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, j: int) -> None:
    """Hold the machine for job j until it fits, then start it. Stops at the horizon, with the job still waiting."""
    while not _try_start(w, m, s, k, p, j):
        _fill_shade(w, m, z, s, k, p, j)
        if not advance(w, m, s, k, p) or s.clock.now > k.scale.horizon:
            return


@kernel
def _put_on_host(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int, n: int) -> None:
    """Give host n as many of the job's remaining tasks as it takes; the last one starts the job."""
    c = w.job_class[j]
    if p.count.gang == columns.NOBODY or p.count.tasks_left == w.class_tasks[c]:
        p.count.gang = j
        p.count.tasks_left = w.class_tasks[c]
        s.count.placed = 0
    tasks = min(p.count.tasks_left, slots_on(w, m, c, n))
    put_tasks(w, m, s, c, n, tasks, False)
    touch(p, n)
    p.count.tasks_left -= tasks
    if p.count.tasks_left == 0:
        p.count.gang = columns.NOBODY
        start_placed(w, s, j, runtime_factor(w, s, c))
        note_start(w, m, s, k, p, j)


@kernel
def _something_fits(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    for q in range(shown_jobs(k, p)):  # noqa: SIM110 (no generators in kernels)
        if class_fits(w, m, s, p, w.job_class[p.waiting[q]]):
            return True
    return False


@kernel
def _wait(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Let time pass until the next event."""
    p.count.gang = columns.NOBODY
    if p.count.fitting > 0:
        idle = 1.0 - p.value.busy / k.scale.capacity
        p.term[rewards.NOOP_FEASIBLE] -= idle
        p.value.idling = 1.0
    advance(w, m, s, k, p)
    p.value.idling = 0.0


@kernel
def _name_next_job(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Host problem: the first job shown that fits (the first one only, if it blocks the others) is the one to place."""
    p.count.gang = columns.NOBODY
    for q in range(1 if k.config.blocking and p.count.waiting > 0 else shown_jobs(k, p)):
        j = p.waiting[q]
        if class_fits(w, m, s, p, w.job_class[j]):
            p.count.gang = j
            p.count.tasks_left = w.class_tasks[w.job_class[j]]
            return


@kernel
def _settle(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> int:
    """After an action: play on to the next decision, or to the end when none is left."""
    in_gang = k.config.problem != columns.JOB and p.count.gang != columns.NOBODY
    while not in_gang:
        if p.count.waiting == 0 and s.count.arrived == w.sizes.num_jobs:
            while advance(w, m, s, k, p):  # only ends are left
                pass
            return TERMINATED
        if s.clock.now > k.scale.horizon:
            return TRUNCATED
        if k.config.problem == columns.HOST:
            _name_next_job(w, m, s, k, p)
        if k.config.dispatch == columns.COMMIT:
            forced = p.count.waiting == 0
        elif not k.config.skip_forced:
            forced = False
        elif k.config.problem == columns.HOST:
            forced = p.count.gang == columns.NOBODY
        else:
            forced = not _something_fits(w, m, s, k, p) and not (k.config.stop_slots > 0 and something_may_stop(w, m, s, k, p))
        if not forced:
            break
        advance(w, m, s, k, p)
    if k.config.max_steps != columns.NO_CAP and p.count.steps >= k.config.max_steps:
        return TRUNCATED
    return RUNS_ON


@kernel
def _act(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, action: int, host: int) -> None:
    """Do what a legal action says."""
    problem = k.config.problem
    if action == k.config.wait_action:
        _wait(w, m, s, k, p)
    elif problem == columns.HOST:
        _put_on_host(w, m, s, k, p, p.count.gang, action)
    elif problem == columns.JOINT:
        _put_on_host(w, m, s, k, p, p.waiting[action], host)
    elif action >= k.config.window:
        stop_or_move(w, m, s, k, p, action - k.config.window)
    elif k.config.dispatch == columns.COMMIT:
        _commit(w, m, z, s, k, p, p.waiting[action])
    else:
        _try_start(w, m, s, k, p, p.waiting[action])


@kernel
def begin(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Go to the first decision of an episode that was just laid out."""
    open_books(w, m, k, p)
    p.count.gang = columns.NOBODY
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    while p.count.waiting == 0 and advance(w, m, s, k, p):
        pass
    p.value.step_began = s.clock.now
    p.value.elapsed = 0.0
    p.count.over = p.count.waiting == 0
    if k.config.problem == columns.HOST:
        _name_next_job(w, m, s, k, p)


@kernel
def _step(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, action: int, host: int) -> int:
    """One legal action of one env; terms are left in EpisodeState.term."""
    p.value.step_began = s.clock.now
    p.value.elapsed = 0.0
    p.count.steps += 1
    if not p.count.over:
        _act(w, m, z, s, k, p, action, host)
    outcome = _settle(w, m, s, k, p)
    if outcome != RUNS_ON:
        close_books(w, s, k, p, outcome == TRUNCATED)
        p.count.over = 1
    return outcome


@kernel
def _pay(k: Task, p: EpisodeState, over: bool) -> float:
    """The step's reward; with terminal pay everything is held back until the end."""
    reward = 0.0
    for i in range(k.config.num_weighted):
        t = k.weighted[i]
        reward += k.weight[t] * p.term[t]
    if k.config.terminal:
        p.value.held += reward
        reward = p.value.held if over else 0.0
    p.value.episode_return += reward
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
    at = e * columns.LISTS
    w, s, k, p = as_world(f.lists[at]), as_state(f.lists[at + 3]), as_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5])
    action = f.actions[2 * e]
    if action != f.space.actions - 1:
        _fetch_job(w, s, k, p.waiting[min(action, p.count.waiting)])  # of an action that starts none, it is the wrong one
        return
    _fetch_job(w, s, k, s.count.arrived)
    if s.count.events > 0:
        j = first_job(s)
        _fetch_job(w, s, k, j)
        fetch_pieces(s, j)


@inline
def _fetch_job(w: World, s: State, k: Task, j: int) -> None:
    fetch_job(w, s, j)
    fetch(w.submit, j)
    fetch(k.job_work, j)


@kernel
def _write_tally(s: State, p: EpisodeState, f: Frame, e: int, num_envs: int) -> None:
    """Write the sums of an episode that has ended, in the order of TALLY."""
    ended = float(p.count.ended)
    started = ended + p.count.on_machine
    f.tally[e + TALLY_AT.episode_return * num_envs] = p.value.episode_return
    f.tally[e + TALLY_AT.steps * num_envs] = float(p.count.steps)
    f.tally[e + TALLY_AT.illegal * num_envs] = float(p.count.illegal)
    f.tally[e + TALLY_AT.completed * num_envs] = ended
    f.tally[e + TALLY_AT.unfinished * num_envs] = float(p.count.waiting + p.count.on_machine)
    f.tally[e + TALLY_AT.mean_wait_s * num_envs] = p.value.wait_sum / max(started, 1.0)
    f.tally[e + TALLY_AT.mean_jct_s * num_envs] = p.value.jct_sum / max(ended, 1.0)
    f.tally[e + TALLY_AT.mean_bounded_slowdown * num_envs] = p.value.bounded_sum / max(ended, 1.0)
    f.tally[e + TALLY_AT.stops * num_envs] = float(p.count.stops)


@kernel
def _go_on(f: Frame, o: Output, e: int) -> None:
    """Keep the last observation of env e and lay out its next episode."""
    for i in range(f.length[0]):
        o.final[i] = o.observation[i]
    following = e * columns.NEXT_SIZE
    home = f.home[e]
    block, words = words_at(home), words_at(f.next[following + columns.NEXT_BLOCK])
    for i in range(f.next[following + columns.NEXT_BYTES] // 8):
        block[i] = words[i]
    for i in range(NUM_ADDRESSES):
        block[i] += home
    f.lists[e * columns.LISTS + columns.WORLD_LIST] = f.next[following + columns.NEXT_WORLD]
    f.lists[e * columns.LISTS + columns.TASK_LIST] = f.next[following + columns.NEXT_TASK]
    f.next[following + columns.NEXT_BLOCK] = 0


@inline
def _step_and_pay(f: Frame, w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, o: Output, e: int, num_envs: int) -> int:
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    action, host = f.actions[2 * e], f.actions[2 * e + 1]
    if not is_legal(k, o.mask, action, host):
        p.count.illegal += 1
        p.term[rewards.ILLEGAL_ACTIONS] -= 1.0
        action, host = legal_instead(k, o.mask)
    outcome = _step(w, m, z, s, k, p, action, host)
    f.rewards[e] = _pay(k, p, outcome != RUNS_ON)
    if outcome != RUNS_ON:
        _write_tally(s, p, f, e, num_envs)
    f.outcome[e] = outcome
    f.terminated[e] = np.int8(outcome == TERMINATED)
    f.truncated[e] = np.int8(outcome == TRUNCATED)
    f.elapsed[e] = p.value.elapsed
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
        at = e * columns.LISTS
        w, m, z, s = as_world(f.lists[at]), as_machine(f.lists[at + 1]), as_machine(f.lists[at + 2]), as_state(f.lists[at + 3])
        k, p, o = as_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5]), as_output(f.lists[at + 6])
        outcome = RUNS_ON
        if anew:
            begin(w, m, s, k, p)
        else:
            outcome = _step_and_pay(f, w, m, z, s, k, p, o, e, num_envs)
            over += outcome != RUNS_ON
        if k.config.observation_view == columns.TOKENS:
            observe(w, m, s, k, p, o.observation, fresh or anew)
            if k.config.stop_slots > 0:
                observe_running(w, m, s, k, p, o.observation, f.running_at[0])
        else:
            note_window(w, m, s, k, p)
        mark_legal(w, m, s, k, p, o.mask)
        goes_on = outcome != RUNS_ON and f.next[e * columns.NEXT_SIZE + columns.NEXT_BLOCK] != 0
        if f.space.draws and (anew or outcome == RUNS_ON):
            draw_legal(f, p, e)
        if goes_on:
            _go_on(f, o, e)
        else:
            i += 1
        anew = begins or goes_on
    return over
