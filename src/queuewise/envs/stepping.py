"""One step of one env: what an action does to the engine, and when an episode ends (docs/mdp.md).

The engine advances time and starts jobs. This module translates actions into calls of the engine.
"""

from __future__ import annotations

from queuewise.envs import columns, rewards
from queuewise.envs.bookkeeping import (
    discounted,
    leave_running,
    note_arrival,
    note_end,
    note_failure,
    note_later_ends,
    note_snapshot,
    note_start,
    note_starts,
    note_stop,
    pass_time,
)
from queuewise.envs.class_fit import fit_changes_with_time
from queuewise.envs.columns import EpisodeState, Task
from queuewise.envs.episode_end import add_final_terms
from queuewise.envs.masks import first_choice, may_be_head
from queuewise.envs.node_occupancy import reset_occupancy, touch, update_load
from queuewise.envs.observation import shown_jobs
from queuewise.envs.stopping import something_may_stop, stop_or_move
from queuewise.policies.ordering import score_live
from queuewise.sim import backfill
from queuewise.sim.backfill.conservative import plan_queue
from queuewise.sim.backfill.easy import some_class_fits
from queuewise.sim.backfill.pins import place_first
from queuewise.sim.conditions.quotas import OVER, standing
from queuewise.sim.core.compilation import inline, kernel, noinline
from queuewise.sim.core.lifecycle import start_placed
from queuewise.sim.core.loop import backfill_queue, next_instant, reserve_bound
from queuewise.sim.core.machine import slots_on
from queuewise.sim.core.pieces import put_tasks
from queuewise.sim.core.schedule import FAILED, QUEUED, RUNNING
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.core.stepwise import start_beside_overdue, start_overdue
from queuewise.sim.core.table_types import view
from queuewise.sim.placement.placement_rules import runtime_factor
from queuewise.sim.queue import PARAMS_SIZE
from queuewise.sim.queue.overdue import has_bound, oldest_overdue

RUNS_ON, TERMINATED, TRUNCATED = range(3)  # outcome of a step


@kernel
def advance(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Go to the next event time and update reward terms and episode state.

    Returns False if there is no further event, or if the episode has only one instant.
    """
    if k.config.one_instant:
        return False
    before = s.clock.now
    arrived, released, outages = s.count.arrived, s.count.released, s.count.outages_seen
    if not next_instant(w, m, s):
        return False
    if p.count.begun:
        pass_time(k, p, before, s.clock.now)
    p.value.idling = 0.0
    p.count.begun = 1
    p.count.turn = 0
    p.count.instants += fit_changes_with_time(w)
    if s.count.running_jobs != p.count.on_machine:
        _note_ends(w, m, s, k, p)
    if w.policy.guesses:
        note_later_ends(w, s, k, p)
    for i in range(outages, s.count.outages_seen):
        update_load(m, k, p, w.outage_node[i])
    if w.policy.has_dependencies:
        for i in range(released, s.count.released):
            note_arrival(w, k, p, s.released[i])
        return True
    for j in range(arrived, s.count.arrived):
        if s.status[j] == QUEUED:
            note_arrival(w, k, p, j)
    return True


@kernel
def _note_ends(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Note the jobs that have ended, or that a failure has stopped."""
    may_fail = w.sizes.num_outages > 0
    at = 0
    while at < p.count.on_machine:
        j = p.running[at]
        if (p.running_end[at] > s.clock.now and not may_fail) or s.status[j] == RUNNING:  # a job of length zero may still be running
            at += 1
        elif s.status[j] == QUEUED:
            note_stop(w, m, s, k, p, at)
        elif s.status[j] == FAILED:
            note_failure(w, m, s, k, p, at)
        else:
            leave_running(p, at)
            note_end(w, m, s, k, p, j)


@inline
def _try_start(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    """Start job j where the placement rule puts it, if it fits."""
    c = w.job_class[j]
    if standing(w, s, c) == OVER or not place_first(w, m, s, j):
        return False
    start_beside_overdue(w, z, s, j, c)
    note_start(w, m, s, k, p, j)
    return True


@noinline
def _score_candidates(w: World, s: State) -> None:
    """Score the waiting jobs by the order of backfill, which changes with time."""
    number = s.count.pending_jobs
    facts = view(w.second_facts if w.policy.second_facts else w.facts, w.sizes.num_jobs)
    nothing, params = view(s.outlook, 0), view(w.second_params, PARAMS_SIZE)
    score_live(facts, view(s.pending, number), number, s.clock.now, nothing, nothing, params, view(s.second_score, number))


@kernel
def _backfill_behind(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, head: int) -> None:
    """Let the backfill rule start jobs behind the committed or named job, which waits."""
    rule = w.policy.backfill
    if rule == backfill.NO_BACKFILL or (p.count.waiting == 1 and not w.policy.plans_all):
        return
    q = w.class_queue[w.job_class[head]]
    s.head[q] = head
    if w.policy.scans_queue:
        _score_candidates(w, s)
    if rule == backfill.CONSERVATIVE:
        plan_queue(w, m, z, s, q)
    else:
        reserve_bound(w, m, z, s, q)
        backfill_queue(w, m, z, s, q)
    s.head[q] = columns.NOBODY
    note_starts(w, m, s, k, p)


@kernel
def _commit(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, j: int) -> bool:
    """Advance until job j fits, then start it. Returns False at the horizon, or if it will never fit, with the job still waiting."""
    s.plan_state[w.class_queue[w.job_class[j]]] = backfill.UNSETTLED  # the last plan may have had the job behind others
    while not _try_start(w, m, z, s, k, p, j):
        _backfill_behind(w, m, z, s, k, p, j)
        if not advance(w, m, s, k, p):
            p.count.stuck = 1
            return False
        if s.clock.now > k.scale.horizon:
            return False
    return True


@kernel
def _name_head(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, j: int) -> None:
    """Start job j of the queue whose turn it is. If it does not fit, it is the head: others are backfilled behind it, and the turn ends."""
    q = p.count.turn
    if _try_start(w, m, z, s, k, p, j):
        s.shadow_head[q] = columns.NOBODY  # it may have taken the place that was reserved for another
        return
    s.plan_state[q] = backfill.UNSETTLED  # the last plan may have had the job behind others
    _backfill_behind(w, m, z, s, k, p, j)
    p.count.turn += 1


@kernel
def _may_name(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Whether the agent sees a job of the queue whose turn it is and, if forced steps are skipped, naming one can change anything."""
    q = p.count.turn
    if s.queue_active[q] == 0:
        return False
    if k.config.skip_forced and w.policy.backfill != backfill.CONSERVATIVE and not some_class_fits(w, m, s, q):
        return False
    for row in range(shown_jobs(k, p)):  # noqa: SIM110 (no generators in kernels)
        if may_be_head(w, s, p, p.waiting[row]):
            return True
    return False


@kernel
def _find_turn(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Go on to the next queue whose head the agent names at this instant, False if there is none. Overdue jobs are heads unnamed."""
    while p.count.turn < w.sizes.num_queues:
        j = oldest_overdue(w, s, p.count.turn)
        if j >= 0:
            _name_head(w, m, z, s, k, p, j)
        elif _may_name(w, m, s, k, p):
            return True
        else:
            p.count.turn += 1
    return False


@kernel
def _serve_overdue(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Let overdue jobs go first, whatever the agent would choose. Those that do not fit get a reservation or, with commit, are awaited."""
    if not has_bound(w) or k.config.dispatch == columns.BY_ENGINE:
        return
    if k.config.dispatch != columns.COMMIT:
        start_overdue(w, m, z, s)
        note_starts(w, m, s, k, p)
        return
    going = True
    while going:
        first = columns.NOBODY
        for q in range(w.sizes.num_queues):
            j = oldest_overdue(w, s, q)
            if j >= 0 and (first == columns.NOBODY or j < first):
                first = j
        going = first != columns.NOBODY and _commit(w, m, z, s, k, p, first)


@kernel
def _put_on_host(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int, n: int) -> None:
    """Put as many of the job's remaining tasks on host n as fit. The job starts when its last task is placed."""
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
def _wait(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Advance to the next event. With dispatch head, leave the queue whose turn it is without a head."""
    p.count.gang = columns.NOBODY
    if p.count.fitting > 0:
        idle = 1.0 - p.value.busy / k.scale.capacity
        p.term[rewards.NOOP_FEASIBLE] -= idle
        p.value.idling = 1.0
        p.count.declined = 1
    if k.config.dispatch == columns.HEAD:
        p.count.turn += 1
    elif not k.config.one_event:
        p.count.stuck = not advance(w, m, s, k, p)


@kernel
def _choose_next_job(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Host problem: choose the job to place, the first one shown that fits.

    If the head blocks, only the head can be chosen.
    """
    p.count.gang = columns.NOBODY
    j = first_choice(w, m, z, s, p, 1 if k.config.blocking and p.count.waiting > 0 else shown_jobs(k, p))
    if j != columns.NOBODY:
        p.count.gang = j
        p.count.tasks_left = w.class_tasks[w.job_class[j]]


@kernel
def _advance_to_decision(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> int:
    """After an action: advance to the next decision, or to the end of the episode if none is left.

    Returns the outcome. The episode also ends where jobs wait but nothing happens any more: their nodes are gone for good.
    """
    in_gang = k.config.problem != columns.JOB and p.count.gang != columns.NOBODY
    while not in_gang:
        if has_bound(w) and k.config.dispatch != columns.HEAD and s.clock.now <= k.scale.horizon:
            _serve_overdue(w, m, z, s, k, p)
        if p.count.stuck:
            return TERMINATED
        if p.count.waiting == 0 and s.count.arrived == w.sizes.num_jobs:  # only ends, or jobs that come back, are left
            if not advance(w, m, s, k, p):
                return TERMINATED
            continue
        if s.clock.now > k.scale.horizon:
            return TRUNCATED
        if k.config.problem == columns.HOST:
            _choose_next_job(w, m, z, s, k, p)
        if k.config.dispatch == columns.HEAD:
            forced = not _find_turn(w, m, z, s, k, p)
        elif k.config.dispatch == columns.COMMIT:
            forced = p.count.waiting == 0
        elif not k.config.skip_forced:
            forced = False
        elif k.config.problem == columns.HOST:
            forced = p.count.gang == columns.NOBODY
        else:
            forced = first_choice(w, m, z, s, p, shown_jobs(k, p)) == columns.NOBODY
            forced = forced and not (k.config.stop_slots > 0 and something_may_stop(w, m, s, k, p))
        if not forced:
            break
        p.count.stuck = not advance(w, m, s, k, p)
    if k.config.max_steps != columns.NO_CAP and p.count.steps >= k.config.max_steps:
        return TRUNCATED
    return RUNS_ON


@kernel
def _let_one_event_pass(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> int:
    """After an action of a task with one event per step: go on by one arrival or end. Several at one instant take a step each.

    Returns the outcome. The episode ends with the last job, not with the last decision.
    """
    if p.count.pending_events > 0:
        p.count.pending_events -= 1
    else:
        arrived, ended = s.count.arrived, p.count.ended
        if advance(w, m, s, k, p):
            p.count.pending_events = s.count.arrived - arrived + p.count.ended - ended - 1
    if p.count.waiting == 0 and p.count.on_machine == 0 and s.count.arrived == w.sizes.num_jobs:
        return TERMINATED
    over = s.clock.now >= k.scale.horizon or (k.config.max_steps != columns.NO_CAP and p.count.steps >= k.config.max_steps)
    return TRUNCATED if over else RUNS_ON


@kernel
def _act(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, action: int, host: int) -> None:
    """Execute a legal action."""
    problem = k.config.problem
    if action == k.config.wait_action:
        _wait(w, m, s, k, p)
    elif problem == columns.HOST:
        _put_on_host(w, m, s, k, p, p.count.gang, action)
    elif problem == columns.JOINT:
        _put_on_host(w, m, s, k, p, p.waiting[action], host)
    elif k.config.stop_slots and action >= k.config.window:
        stop_or_move(w, m, s, k, p, action - k.config.window)
    elif k.config.dispatch == columns.COMMIT:
        _commit(w, m, z, s, k, p, p.waiting[action])
    elif k.config.dispatch == columns.HEAD:
        _name_head(w, m, z, s, k, p, p.waiting[action])
    else:
        _try_start(w, m, z, s, k, p, p.waiting[action])


@kernel
def _is_asked(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> bool:
    """Serve overdue jobs at the first instants of an episode. Returns whether there is something to decide then."""
    if k.config.dispatch == columns.HEAD:
        _find_turn(w, m, z, s, k, p)
    else:
        _serve_overdue(w, m, z, s, k, p)
    return p.count.waiting > 0


@kernel
def begin(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Advance a new episode to its first decision."""
    reset_occupancy(w, k, p)
    p.count.gang = columns.NOBODY
    for t in range(rewards.NUM_TERMS):
        p.term[t] = 0.0
    if s.count.arrived > 0:
        note_snapshot(w, m, s, k, p)
    asked = False
    going = k.config.one_instant or advance(w, m, s, k, p)  # what the snapshot shows has been decided
    while going:
        asked = _is_asked(w, m, z, s, k, p)
        going = not asked and advance(w, m, s, k, p)
    p.value.step_began = s.clock.now
    p.value.elapsed = 0.0
    p.count.pending_events = 0
    p.count.over = not asked
    if k.config.problem == columns.HOST:
        _choose_next_job(w, m, z, s, k, p)


@kernel
def step(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, action: int, host: int) -> int:
    """Execute one legal action of one env. The reward terms are left in EpisodeState.term."""
    p.value.step_began = s.clock.now
    p.value.elapsed = 0.0
    p.count.steps += 1
    p.count.declined = 0
    if not p.count.over:
        _act(w, m, z, s, k, p, action, host)
    if k.config.one_event and not p.count.over:
        outcome = _let_one_event_pass(w, m, s, k, p)
    else:
        outcome = _advance_to_decision(w, m, z, s, k, p)
    left = (p.value.queued_work + p.value.running_work) * discounted(s, k, p)
    p.term[rewards.WORK_BEHIND] -= p.value.elapsed * left
    p.term[rewards.NOOP_WORK] -= p.count.declined * left
    if outcome != RUNS_ON:
        add_final_terms(w, s, k, p, outcome == TRUNCATED or p.count.waiting > 0)
        p.count.over = 1
    return outcome


@kernel
def reward_of_step(k: Task, p: EpisodeState, over: bool) -> float:
    """The reward of the step. With terminal pay, rewards are held back and paid at the end of the episode."""
    reward = 0.0
    for i in range(k.config.num_weighted):
        t = k.weighted[i]
        reward += k.weight[t] * p.term[t]
    if k.config.terminal:
        p.value.held += reward
        reward = p.value.held if over else 0.0
    p.value.episode_return += reward
    return reward
