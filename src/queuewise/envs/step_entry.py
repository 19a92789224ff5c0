"""The compiled entry of all environments: it begins or steps a list of envs and writes what their agents see."""

from __future__ import annotations

import numpy as np

from queuewise.envs import columns, rewards
from queuewise.envs.actions import draw_legal, is_legal, legal_instead
from queuewise.envs.bookkeeping import is_own
from queuewise.envs.columns import (
    TALLY_AT,
    EpisodeState,
    Frame,
    Output,
    Task,
    as_episode_state,
    as_frame,
    as_output,
    as_plain_task,
    as_plain_world,
    as_task,
)
from queuewise.envs.env_memory import CACHE_LINE
from queuewise.envs.masks import mark_legal
from queuewise.envs.observation import note_window, observe, take_over
from queuewise.envs.stepping import RUNS_ON, TERMINATED, TRUNCATED, begin, reward_of_step, step
from queuewise.envs.stopping import observe_running
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.events import first_job
from queuewise.sim.core.prefetch import fetch_job, fetch_pieces
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.core.table_types import fetch, words_at
from queuewise.sim.core.tables import I64

FETCHED = 2048  # bytes of an env: addresses, counters, and the smallest arrays
NUM_ADDRESSES = 2 * len(Machine.columns) + len(State.columns) + len(EpisodeState.columns)  # at the beginning of an env's block


@inline
def _fetch_counters(f: Frame, e: int) -> None:
    """Prefetch the beginning of an env that will be stepped soon.

    All envs together do not fit into the nearer caches.
    """
    block = words_at(f.home[e])
    for word in range(0, FETCHED // 8, CACHE_LINE // 8):
        fetch(block, word)


@inline
def _fetch_jobs(f: Frame, e: int) -> None:
    """Prefetch the jobs that start, end or arrive in the next step of env e. Its counters must have been fetched."""
    at = e * columns.LISTS
    w, s, k, p = as_world(f.lists[at]), as_state(f.lists[at + 3]), as_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5])
    action = f.actions[2 * e]
    if action != f.space.actions - 1:
        _fetch_job(w, s, k, p.waiting[min(action, p.count.waiting)])  # useless, but harmless, for an action that starts no job
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
def _write_tally(w: World, k: Task, p: EpisodeState, f: Frame, e: int, num_envs: int) -> None:
    """Write the sums of an episode that has ended, in the order of TALLY. Only the window's own jobs count."""
    ended = float(p.count.own_ended)
    unfinished = 0
    for i in range(p.count.waiting):
        unfinished += is_own(w, k, p.waiting[i])
    for i in range(p.count.on_machine):
        unfinished += is_own(w, k, p.running[i])
    f.tally[e + TALLY_AT.episode_return * num_envs] = p.value.episode_return
    f.tally[e + TALLY_AT.steps * num_envs] = float(p.count.steps)
    f.tally[e + TALLY_AT.illegal * num_envs] = float(p.count.illegal)
    f.tally[e + TALLY_AT.completed * num_envs] = ended
    f.tally[e + TALLY_AT.unfinished * num_envs] = float(unfinished)
    f.tally[e + TALLY_AT.mean_wait_s * num_envs] = p.value.wait_sum / max(ended, 1.0)
    f.tally[e + TALLY_AT.mean_jct_s * num_envs] = p.value.jct_sum / max(ended, 1.0)
    f.tally[e + TALLY_AT.mean_bounded_slowdown * num_envs] = p.value.bounded_sum / max(ended, 1.0)
    f.tally[e + TALLY_AT.stops * num_envs] = float(p.count.stops)


@kernel
def _load_next_episode(f: Frame, o: Output, e: int) -> None:
    """Keep the last observation of env e and copy the template of its next episode into its block."""
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
def _step_one(f: Frame, w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, o: Output, e: int, num_envs: int) -> int:
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    action, host = f.actions[2 * e], f.actions[2 * e + 1]
    if not is_legal(k, o.mask, action, host):
        p.count.illegal += 1
        p.term[rewards.ILLEGAL_ACTIONS] -= 1.0
        action, host = legal_instead(k, o.mask)
    outcome = step(w, m, z, s, k, p, action, host)
    f.rewards[e] = reward_of_step(k, p, outcome != RUNS_ON)
    if outcome != RUNS_ON:
        _write_tally(w, k, p, f, e, num_envs)
    f.outcome[e] = outcome
    f.terminated[e] = np.int8(outcome == TERMINATED)
    f.truncated[e] = np.int8(outcome == TRUNCATED)
    f.elapsed[e] = p.value.elapsed
    return outcome


@inline
def _fetch_ahead(f: Frame, envs: I64, i: int, begins: bool) -> None:
    if i + 2 < len(envs):
        _fetch_counters(f, envs[i + 2])
    if i + 1 < len(envs) and not begins:
        _fetch_jobs(f, envs[i + 1])


@inline
def _visit(
    f: Frame, w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, o: Output, e: int, num_envs: int,
    begins: bool, fresh: bool,
) -> int:  # fmt: skip
    """Begin or step env e and write what its agent sees. Returns the outcome."""
    outcome = RUNS_ON
    if begins:
        begin(w, m, z, s, k, p)
    else:
        outcome = _step_one(f, w, m, z, s, k, p, o, e, num_envs)
    if k.config.observation_view == columns.TOKENS:
        if f.space.turned and not (fresh or begins):
            take_over(k, p, o.observation, o.before, o.job_rows[0], f.length[0])
        observe(w, m, s, k, p, o.observation, fresh or begins)
        o.job_rows[0] = p.count.shown
        if k.config.stop_slots > 0:
            observe_running(w, m, s, k, p, o.observation, f.running_at[0])
    else:
        note_window(w, m, s, k, p)
    mark_legal(w, m, z, s, k, p, o.mask)
    if f.space.draws and (begins or outcome == RUNS_ON):
        draw_legal(f, p, e)
    return outcome


@inline
def _goes_on(f: Frame, o: Output, e: int, outcome: int) -> bool:
    """Whether env e, after a step with this outcome, begins its next episode at once: it is copied over the old one."""
    if outcome == RUNS_ON or f.next[e * columns.NEXT_SIZE + columns.NEXT_BLOCK] == 0:
        return False
    _load_next_episode(f, o, e)
    return True


@entry
def begin_or_step(frame, envs, begins, fresh, num_envs) -> int:  # type: ignore[no-untyped-def]
    """Begin or step every env in `envs` and return how many of their episodes ended.

    An illegal action is counted and replaced by a wait, or by the first legal action if waiting is illegal. An env
    whose episode ends goes on with its next episode if one is prepared (Frame.next): the loop visits it a second time
    to begin it.
    """
    f = as_frame(frame)
    over = 0
    i = 0
    at_beginning = begins
    while i < len(envs):
        e = envs[i]
        _fetch_ahead(f, envs, i, begins)
        at = e * columns.LISTS
        w, m, z, s = as_world(f.lists[at]), as_machine(f.lists[at + 1]), as_machine(f.lists[at + 2]), as_state(f.lists[at + 3])
        k, p, o = as_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5]), as_output(f.lists[at + 6])
        outcome = _visit(f, w, m, z, s, k, p, o, e, num_envs, at_beginning, fresh)
        over += outcome != RUNS_ON
        goes_on = _goes_on(f, o, e, outcome)
        i += not goes_on
        at_beginning = begins or goes_on
    return over


@entry
def begin_or_step_plain(frame, envs, begins, fresh, num_envs) -> int:  # type: ignore[no-untyped-def]
    """The same for envs whose tables have the known values PLAIN_WORLD and PLAIN_TASK."""
    f = as_frame(frame)
    over = 0
    i = 0
    at_beginning = begins
    while i < len(envs):
        e = envs[i]
        _fetch_ahead(f, envs, i, begins)
        at = e * columns.LISTS
        w, m, z, s = as_plain_world(f.lists[at]), as_machine(f.lists[at + 1]), as_machine(f.lists[at + 2]), as_state(f.lists[at + 3])
        k, p, o = as_plain_task(f.lists[at + 4]), as_episode_state(f.lists[at + 5]), as_output(f.lists[at + 6])
        outcome = _visit(f, w, m, z, s, k, p, o, e, num_envs, at_beginning, fresh)
        over += outcome != RUNS_ON
        goes_on = _goes_on(f, o, e, outcome)
        i += not goes_on
        at_beginning = begins or goes_on
    return over
