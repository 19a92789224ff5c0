"""Reward terms and lists of jobs: how arrivals, starts, stops, ends and passing time change them.

Rewards may depend on true runtimes, observations must not. Everything that reaches an observation (node_until,
unit_until, usage) is therefore computed from estimates. With a decay β > 0, every term is discounted to the beginning
of its step, so a step's reward is correct for any length of the step. The step as a whole is then discounted by
exp(−β · elapsed).
"""

from __future__ import annotations

import numpy as np

from queuewise.cluster.conditions import HOURS_OF_DAY
from queuewise.envs import columns, rewards
from queuewise.envs.columns import EpisodeState, Task
from queuewise.envs.node_occupancy import hold_piece, release_piece, touch, update_load
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.machine import WHOLE
from queuewise.sim.core.schedule import QUEUED, RUNNING
from queuewise.sim.core.state import Machine, State, World
from queuewise.sim.preemption.restart import run_started

BOUND_S = 10.0  # of the bounded slowdown, as in evaluation.measure
HOUR_S = 3600.0
USAGE_HALF_LIFE_S = 86_400.0
MOST_HALF_LIVES = 900.0  # later starts of an episode have equal weights, because 2^1024 overflows float64


@inline
def discounted(s: State, k: Task, p: EpisodeState) -> float:
    """Discount factor from now back to the beginning of the step."""
    if k.scale.decay == 0.0:
        return 1.0
    return np.exp(-k.scale.decay * (s.clock.now - p.value.step_began))


@inline
def inverse(runtime: float) -> float:
    return 1.0 / runtime if runtime > 0.0 else 0.0


@inline
def is_own(w: World, k: Task, j: int) -> bool:
    """Whether job j is one of the window's own, which the episode does not begin with."""
    return w.submit[j] > k.scale.began


@inline
def _load_deviation(k: Task, p: EpisodeState) -> float:
    """Standard deviation of the nodes' loads."""
    number = max(k.scale.num_loaded, 1.0)
    mean = p.value.load_sum / number
    return np.sqrt(max(p.value.load_squares / number - mean * mean, 0.0))


@kernel
def _price_seconds(k: Task, begin: float, end: float) -> float:
    """∫ price of a kWh, which changes on the hour."""
    total = 0.0
    now = begin
    while now < end:
        hour = np.floor((now + k.scale.epoch) / HOUR_S)
        until = min((hour + 1.0) * HOUR_S - k.scale.epoch, end)
        if until <= now:  # rounding: the rest is less than a time can show
            until = end
        total += k.price[np.int64(hour) % HOURS_OF_DAY] * (until - now)
        now = until
    return total


@kernel
def pass_time(k: Task, p: EpisodeState, begin: float, end: float) -> None:
    """Add to the terms that grow with time. Nothing happened from `begin` to `end`."""
    lasted = end - begin
    if lasted <= 0.0:
        return
    x = p.value
    seconds = lasted
    decay = k.scale.decay
    if decay > 0.0:
        seconds = (np.exp(-decay * (begin - x.step_began)) - np.exp(-decay * (end - x.step_began))) / decay
    queued = float(p.count.waiting)
    present = queued + p.count.on_machine
    busy = x.busy / k.scale.capacity
    p.term[rewards.WAIT] -= queued * seconds
    p.term[rewards.JCT] -= present * seconds
    p.term[rewards.SLOWDOWN] -= x.inverse * seconds
    p.term[rewards.BOUNDED_SLOWDOWN] -= x.bounded_inverse * seconds
    p.term[rewards.UTILISATION] += busy * seconds
    p.term[rewards.FLOPS_UTILISATION] += x.flops / k.scale.all_flops * seconds
    p.term[rewards.IDLE_FEASIBLE] -= x.idling * (1.0 - busy) * seconds
    p.term[rewards.LOAD_BALANCE] -= _load_deviation(k, p) * seconds
    p.term[rewards.ENERGY] -= (k.scale.idle_watts + x.watts) * seconds
    if k.config.has_prices:
        p.term[rewards.ENERGY_COST] -= (k.scale.idle_watts + x.watts) * _price_seconds(k, begin, end) * seconds / lasted
    p.term[rewards.REMAINING_WORK] -= (x.queued_work + x.running_work - x.running_rate * lasted / 2.0) * seconds
    p.term[rewards.AGE] -= (queued * (begin + end) / 2.0 - x.submit_sum) * seconds
    p.term[rewards.ELAPSED_TIME] -= seconds
    x.running_work = max(x.running_work - x.running_rate * lasted, 0.0)
    x.busy_seconds += busy * lasted
    x.elapsed += lasted


@inline
def _insert_waiting(w: World, p: EpisodeState, j: int) -> None:
    at = p.count.waiting
    p.count.waiting = at + 1
    while at > 0 and w.rank[p.waiting[at - 1]] > w.rank[j]:
        p.waiting[at] = p.waiting[at - 1]
        at -= 1
    p.waiting[at] = j


@kernel
def note_arrival(w: World, k: Task, p: EpisodeState, j: int) -> None:
    """Job j was queued. Insert it into the waiting list, which is in the order of the window (World.rank)."""
    _insert_waiting(w, p, j)
    x = p.value
    x.queued_work += k.job_work[j]
    x.submit_sum += w.submit[j]
    x.inverse += inverse(w.runtime[j])
    x.bounded_inverse += 1.0 / max(w.runtime[j], BOUND_S)


@inline
def _work_left(w: World, s: State, k: Task, j: int) -> float:
    """Work that job j had left when its last run began or, if it was stopped, when that run ended."""
    if w.policy.can_restart and w.runtime[j] > 0.0:
        return k.job_work[j] * s.remaining[j] / w.runtime[j]
    return k.job_work[j]


@inline
def _run_start(w: World, s: State, j: int) -> float:
    if w.policy.nodes_sleep:
        return s.begin[j]  # when its nodes were awake
    return run_started(s, j) if w.policy.can_restart else s.start[j]


@inline
def time_waited(w: World, s: State, p: EpisodeState, j: int, on_machine: bool) -> float:
    """Seconds since its submission in which job j did not run: up to the start of its present or last run, or up to now."""
    until = _run_start(w, s, j) if on_machine else s.clock.now
    return until - w.submit[j] - (p.served[j] if w.policy.can_restart else 0.0)


@inline
def _rate_of(w: World, s: State, k: Task, j: int) -> float:
    """Work per second of running job j: the work left when the run began, spread evenly over the run."""
    lasts = s.end[j] - _run_start(w, s, j)
    return _work_left(w, s, k, j) / lasts if lasts > 0.0 else 0.0


@inline
def _piece_flops(w: World, s: State, k: Task, piece: int, c: int) -> float:
    return s.piece_tasks[piece] * w.class_milli[c] / WHOLE * k.node_flops[s.piece_node[piece]]


@inline
def _piece_watts(w: World, s: State, piece: int, c: int) -> float:
    n = s.piece_node[piece]
    return s.piece_tasks[piece] * (w.class_milli[c] / WHOLE * w.node_gpu_watts[n] + w.class_cpu[c] / 1000 * w.node_core_watts[n])


@inline
def _note_run(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> float:
    """Job j, which waited, runs. Returns the mean load of its nodes."""
    c = w.job_class[j]
    x = p.value
    _remove_waiting(p, j)
    p.running[p.count.on_machine] = j
    p.running_end[p.count.on_machine] = s.end[j]
    p.running_until[p.count.on_machine] = s.expected[j]
    rate = _rate_of(w, s, k, j)
    p.running_rate[p.count.on_machine] = rate
    p.count.on_machine += 1
    p.count.without_gpu += w.class_milli[c] == 0
    work = _work_left(w, s, k, j)
    x.queued_work -= work
    x.submit_sum -= w.submit[j]
    x.running_work += work
    x.running_rate += rate
    x.busy += k.job_amount[j]
    use = 0.0
    for piece in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        hold_piece(w, s, k, p, piece, c, columns.FREE, s.expected[j])
        use += update_load(m, k, p, s.piece_node[piece])
        x.flops += _piece_flops(w, s, k, piece, c)
        x.watts += _piece_watts(w, s, piece, c)
    return use / s.num_pieces[j]


@kernel
def note_start(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> None:
    """Job j was waiting and has started. Terms that count once per job are added at its first start."""
    use = _note_run(w, m, s, k, p, j)
    if w.policy.can_restart and s.stops[j] > 0:
        return
    worth = discounted(s, k, p)
    p.term[rewards.STARTED] += worth
    p.term[rewards.HOST_USE] += use * worth
    p.term[rewards.HOST_USE_SQUARED] += use * use * worth
    if k.job_user[j] >= 0:
        halvings = min((s.clock.now - k.scale.first_time) / USAGE_HALF_LIFE_S, MOST_HALF_LIVES)
        charge = k.job_size[j] * w.estimate[j] * np.exp2(halvings)
        p.usage[k.job_user[j]] += charge
        p.value.usage_sum += charge


@kernel
def note_snapshot(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Note the jobs that wait and run in the snapshot that the episode starts from. EpisodeState.usage and served are set already."""
    x = p.value
    for j in range(s.count.arrived):
        if s.status[j] == QUEUED or s.status[j] == RUNNING:
            note_arrival(w, k, p, j)
            x.queued_work += _work_left(w, s, k, j) - k.job_work[j]
    for i in range(s.count.running_jobs):
        j = s.running[i]
        _note_run(w, m, s, k, p, j)
        x.running_work -= p.running_rate[p.count.on_machine - 1] * max(s.clock.now - _run_start(w, s, j), 0.0)
    for user in range(k.config.num_users + 1):
        x.usage_sum += p.usage[user]
    p.count.begun = 1


@kernel
def note_starts(w: World, m: Machine, s: State, k: Task, p: EpisodeState) -> None:
    """Note all waiting jobs that the engine has started."""
    at = 0
    while at < p.count.waiting:
        j = p.waiting[at]
        if s.status[j] == RUNNING:
            note_start(w, m, s, k, p, j)  # removes j from the list
        else:
            at += 1


@inline
def _remove_waiting(p: EpisodeState, j: int) -> None:
    last = p.count.waiting - 1
    at = 0
    while p.waiting[at] != j:
        at += 1
    while at < last:
        p.waiting[at] = p.waiting[at + 1]
        at += 1
    p.count.waiting = last


@kernel
def _note_release(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> None:
    """Release what job j held. It is no longer in EpisodeState.running."""
    c = w.job_class[j]
    x = p.value
    p.count.without_gpu -= w.class_milli[c] == 0
    x.busy -= k.job_amount[j]
    for piece in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
        release_piece(w, s, k, p, piece, c, s.expected[j])
        update_load(m, k, p, s.piece_node[piece])
        x.flops -= _piece_flops(w, s, k, piece, c)
        x.watts -= _piece_watts(w, s, piece, c)
    if p.count.on_machine == 0:  # sums of floats drift, so reset them when the machine is empty
        x.running_work = x.running_rate = x.busy = x.flops = x.watts = x.load_sum = x.load_squares = 0.0


@inline
def leave_running(p: EpisodeState, at: int) -> None:
    """Remove the job at position `at` of EpisodeState.running."""
    p.value.running_rate -= p.running_rate[at]
    p.count.on_machine -= 1
    p.running[at] = p.running[p.count.on_machine]
    p.running_end[at] = p.running_end[p.count.on_machine]
    p.running_until[at] = p.running_until[p.count.on_machine]
    p.running_rate[at] = p.running_rate[p.count.on_machine]


@kernel
def note_later_ends(w: World, s: State, k: Task, p: EpisodeState) -> None:
    """Note which running jobs have outlived their estimates and are expected to end later than before."""
    for at in range(p.count.on_machine):
        j = p.running[at]
        if p.running_until[at] == s.expected[j]:
            continue
        for piece in range(s.first_piece[j], s.first_piece[j] + s.num_pieces[j]):
            hold_piece(w, s, k, p, piece, w.job_class[j], p.running_until[at], s.expected[j])
            touch(p, s.piece_node[piece])
        p.running_until[at] = s.expected[j]


@kernel
def _leave_unfinished(w: World, m: Machine, s: State, k: Task, p: EpisodeState, at: int) -> None:
    """The run of the job at position `at` of EpisodeState.running has ended early. The engine has already freed what it held."""
    j = p.running[at]
    left = p.running_rate[at] * (p.running_end[at] - s.clock.now)
    leave_running(p, at)
    p.value.running_work = max(p.value.running_work - left, 0.0)
    _note_release(w, m, s, k, p, j)


@kernel
def note_stop(w: World, m: Machine, s: State, k: Task, p: EpisodeState, at: int) -> None:
    """The job at position `at` of EpisodeState.running was stopped, has left the machine and is queued again."""
    j = p.running[at]
    _leave_unfinished(w, m, s, k, p, at)
    p.served[j] += max(s.clock.now - _run_start(w, s, j), 0.0)
    _insert_waiting(w, p, j)
    x = p.value
    x.queued_work += _work_left(w, s, k, j)
    x.submit_sum += w.submit[j]
    for q in range(p.count.shown):
        if p.row_job[q] == j:
            p.row_job[q] = columns.NOBODY  # its row is written again, because less work is left


@kernel
def note_failure(w: World, m: Machine, s: State, k: Task, p: EpisodeState, at: int) -> None:
    """The job at position `at` of EpisodeState.running has failed for good. Terms for completed jobs do not count it."""
    j = p.running[at]
    _leave_unfinished(w, m, s, k, p, at)
    p.value.inverse -= inverse(w.runtime[j])
    p.value.bounded_inverse -= 1.0 / max(w.runtime[j], BOUND_S)


@kernel
def note_end(w: World, m: Machine, s: State, k: Task, p: EpisodeState, j: int) -> None:
    """Job j has ended. It is no longer in EpisodeState.running.

    A job that the episode began with is charged from then on; it is not in the sums of the window's own jobs.
    """
    x = p.value
    own = is_own(w, k, j)
    charged = s.end[j] - max(w.submit[j], k.scale.began)
    service = s.end[j] - _run_start(w, s, j)
    if w.policy.can_restart:
        service += p.served[j]
    x.inverse -= inverse(w.runtime[j])
    x.bounded_inverse -= 1.0 / max(w.runtime[j], BOUND_S)
    _note_release(w, m, s, k, p, j)
    worth = discounted(s, k, p)
    slowdown = charged * inverse(service)
    bounded = charged / max(service, BOUND_S)
    if own:
        bounded = max(1.0, bounded)
    p.term[rewards.COMPLETED_WORK] += k.job_work[j] * worth
    p.term[rewards.PRIORITY_COMPLETION] += k.priority[j] * worth
    # `pass_time` charged the time in the system at a rate given by the reference runtime. Make the sum exact.
    p.term[rewards.SLOWDOWN] += (charged * inverse(w.runtime[j]) - slowdown) * worth
    p.term[rewards.BOUNDED_SLOWDOWN] += (charged / max(w.runtime[j], BOUND_S) - bounded) * worth
    if s.end[j] > k.deadline[j]:
        p.term[rewards.DEADLINE] -= worth
    p.count.ended += 1
    if not own:
        return
    p.count.own_ended += 1
    x.wait_sum += time_waited(w, s, p, j, True)
    x.jct_sum += charged
    x.slowdown_sum += slowdown
    x.bounded_sum += bounded
    if k.job_user[j] >= 0:
        p.user_slowdown[k.job_user[j]] += bounded
        p.user_ended[k.job_user[j]] += 1.0
