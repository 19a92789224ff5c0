"""The engine's loop: events, starts and ends, and the scheduling pass.

`replay` runs until no event is left. At each instant: completions, arrivals, then one pass over the queues. A pass starts jobs from the
head of each queue while they fit; a blocked head hands over to the backfill rule, which only has to say, class by class, how long a job
may be to start now (`State.stretch`).
"""

from __future__ import annotations

import numpy as np

from queuewise.sim.compilation import entry, inline, kernel
from queuewise.sim.conservative import plan_queue
from queuewise.sim.defrag import make_room_by_migration
from queuewise.sim.events import COMPLETION, RELEASE, first_job, is_next, pop_event
from queuewise.sim.fetching import fetch_next_event
from queuewise.sim.keys import estimate_left
from queuewise.sim.lifecycle import arrive, finish, release, start_placed
from queuewise.sim.outages import handle_outages
from queuewise.sim.pieces import unplace
from queuewise.sim.pins import place_first
from queuewise.sim.placement import fits, place, runtime_factor
from queuewise.sim.preempt import preempt_in_queue, ring_timer
from queuewise.sim.queue import ANY_LENGTH, FORBIDDEN, PRIMARY, SECONDARY, dequeue, enqueue, first_in_order, note_depth
from queuewise.sim.quotas import OVER, standing
from queuewise.sim.reserve import head_keeps_place, note_outliving, reserve_head
from queuewise.sim.resize import grow_running, grows, shrink_for_head, shrinks
from queuewise.sim.scoring import score_pending
from queuewise.sim.state import (
    ARRIVED,
    BACKFILL,
    BOUND,
    CONSERVATIVE,
    DECISIONS,
    DEFRAG,
    DEPTH,
    DISPATCH,
    DYNAMIC,
    EASY,
    EASY_STRICT,
    EVENTS,
    FICKLE,
    GREEDY,
    KEYS,
    LOG_FULL,
    LOG_SIZE,
    MOST_PIECES,
    NO_BACKFILL,
    NO_LIMIT,
    NOW,
    NUM_JOBS,
    NUM_OUTAGES,
    NUM_QUEUES,
    OUTAGES_SEEN,
    PENDING_JOBS,
    PIECES,
    PINS,
    QUOTAS,
    REORDER,
    RESERVES,
    RESIZES,
    RESTARTS,
    RESTLESS,
    RUNNING_JOBS,
    STOP_AT,
    Machine,
    State,
    World,
    as_machine,
    as_state,
    as_world,
)


@kernel
def _start_heads(w: World, m: Machine, s: State, q: int) -> None:
    """Start jobs from the front while they fit; leaves the blocked head in State.head, -1 if the queue is empty."""
    if w.policy[DISPATCH] == REORDER and (w.policy[DYNAMIC] or w.policy[QUOTAS]):
        s.head[q] = -1  # the order may have changed: look again
    while True:
        head = s.head[q]
        if head < 0 or standing(w, s, w.job_class[head]) == OVER:
            head = first_in_order(w, s, q, PRIMARY, False)
            s.head[q] = head
            if head < 0:
                return
        c = w.job_class[head]
        if not place_first(w, m, s, head):
            return
        start_placed(w, s, head, runtime_factor(w, s, c))
        s.head[q] = -1
        s.shadow_head[q] = -1  # it may have taken the place that was reserved for a head it overtook


@kernel
def _stretch(w: World, m: Machine, z: Machine, s: State, q: int, c: int) -> float:
    """What State.stretch is to hold for class c beside the blocked head."""
    if standing(w, s, c) == OVER or not place(w, m, s, c):
        return FORBIDDEN
    unplace(w, m, s, c)
    if s.shadow_time[q] == np.inf:  # always under greedy
        return ANY_LENGTH
    if w.policy[BACKFILL] == EASY and head_keeps_place(w, z, s, q, w.job_class[s.head[q]], c):
        return ANY_LENGTH
    return runtime_factor(w, s, c)


@kernel
def _stretch_all(w: World, m: Machine, z: Machine, s: State, q: int, only_those_that_fit: bool) -> None:
    for slot in range(s.queue_first[q], s.queue_first[q] + s.queue_active[q]):
        c = s.active[slot]
        if only_those_that_fit and s.stretch[c] == FORBIDDEN:
            continue
        s.stretch[c] = _stretch(w, m, z, s, q, c)


@kernel
def _start_candidate(w: World, m: Machine, z: Machine, s: State, q: int, j: int) -> None:
    c = w.job_class[j]
    place(w, m, s, c)
    factor = runtime_factor(w, s, c)
    if w.policy[BACKFILL] == EASY and s.clock[NOW] + estimate_left(w, s, j) * factor > s.shadow_time[q]:
        note_outliving(w, z, s, q, w.job_class[s.head[q]], c)
    start_placed(w, s, j, factor)


@kernel
def backfill_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Start, again and again, the first candidate that may start."""
    # What does not fit will not fit after another start, so the head and its class are out, unless the rule is fickle.
    fickle = w.policy[FICKLE] == 1
    if fickle or w.policy[DEPTH] != NO_LIMIT:
        dequeue(w, s, s.head[q])
    if w.policy[DEPTH] != NO_LIMIT:
        note_depth(w, s, q)
    _stretch_all(w, m, z, s, q, False)
    while True:
        j = first_in_order(w, s, q, SECONDARY, True)
        if j < 0:
            break
        _start_candidate(w, m, z, s, q, j)
        _stretch_all(w, m, z, s, q, not fickle)
    if fickle or w.policy[DEPTH] != NO_LIMIT:
        enqueue(w, s, s.head[q])


@kernel
def reserve_bound(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """Set the bound that candidates have to keep."""
    if w.policy[BACKFILL] not in (GREEDY, DEFRAG):
        reserve_head(w, m, z, s, q, s.head[q])
    shadow = s.shadow_time[q]
    s.clock[BOUND] = np.nextafter(shadow, -np.inf) if w.policy[BACKFILL] == EASY_STRICT else shadow


@inline
def _time_changes_things(w: World, s: State, q: int) -> bool:
    """Whether a pass may end otherwise than the last one only because the clock has moved."""
    if w.policy[RESTLESS]:
        return True
    reserves = w.policy[BACKFILL] in (EASY, EASY_STRICT)
    return reserves and s.clock[NOW] >= s.shadow_time[q]  # running jobs are overdue


@kernel
def _start_newcomer(w: World, m: Machine, z: Machine, s: State, q: int) -> bool:
    """One job has arrived behind the blocked head and nothing else has changed since the last pass: only it can start. Does it?"""
    j = s.newcomer[q]
    c = w.job_class[j]
    if not fits(w, m, s, c):
        return False
    reserve_bound(w, m, z, s, q)
    stretch = _stretch(w, m, z, s, q, c)
    if stretch == FORBIDDEN or s.clock[NOW] + estimate_left(w, s, j) * stretch > s.clock[BOUND]:
        return False
    _start_candidate(w, m, z, s, q, j)
    return True


@kernel
def schedule_queue(w: World, m: Machine, z: Machine, s: State, q: int) -> None:
    """One pass over queue q."""
    if w.policy[KEYS]:
        preempt_in_queue(w, m, s, q)
        return
    if not s.dirty[q] and not _time_changes_things(w, s, q):
        if s.newcomer[q] < 0:
            return
        started = _start_newcomer(w, m, z, s, q)
        s.newcomer[q] = -1
        if not started:
            return
    s.dirty[q] = 0
    s.newcomer[q] = -1
    _start_heads(w, m, s, q)
    if w.policy[BACKFILL] == DEFRAG:
        while s.head[q] >= 0 and make_room_by_migration(w, m, s, s.head[q]):
            _start_heads(w, m, s, q)
        if s.count[LOG_FULL]:
            s.dirty[q] = 1
            return
    if s.head[q] < 0 or w.policy[BACKFILL] == NO_BACKFILL or (s.count[PENDING_JOBS] == 1 and not w.policy[PINS]):
        return
    if w.policy[BACKFILL] == CONSERVATIVE:
        plan_queue(w, m, z, s, q)
        return
    reserve_bound(w, m, z, s, q)
    backfill_queue(w, m, z, s, q)


@kernel
def decide(w: World, m: Machine, z: Machine, s: State, scorer, second_scorer) -> None:  # type: ignore[no-untyped-def]
    """The scheduling pass."""
    s.count[DECISIONS] += 1
    unscored = w.policy[DYNAMIC] != 0
    for q in range(w.sizes[NUM_QUEUES] if s.count[PENDING_JOBS] > 0 else 0):
        going = s.queue_active[q] > 0
        while going:
            if unscored:
                score_pending(w, m, s, scorer, second_scorer)
            schedule_queue(w, m, z, s, q)
            going = shrinks(w) and s.head[q] >= 0 and shrink_for_head(w, m, s, q)
            unscored = going and w.policy[DYNAMIC] != 0  # scores are lost with the places of jobs that a pass has moved
    if grows(w) and s.count[PENDING_JOBS] == 0:
        grow_running(w, m, s)


@kernel
def next_instant(w: World, m: Machine, s: State) -> bool:
    """Move the clock to the next event time and handle completions and arrivals there; False if there is none."""
    completion = s.event_time[0] if s.count[EVENTS] > 0 else np.inf
    arrived = s.count[ARRIVED]
    arrival = w.submit[arrived] if arrived < w.sizes[NUM_JOBS] else np.inf
    time = min(completion, arrival)
    seen = s.count[OUTAGES_SEEN]
    if seen < w.sizes[NUM_OUTAGES] and (time < np.inf or s.count[PENDING_JOBS] > 0):
        time = min(time, w.outage_time[seen])
    if time == np.inf or time > s.clock[STOP_AT]:
        return False
    s.clock[NOW] = time
    if w.policy[RESERVES]:
        m.time[0] = time
    if w.policy[BACKFILL] == EASY_STRICT:  # as its paper has it: one event at a time, arrivals first
        if arrival == time:
            arrive(w, s, arrived)
            s.count[ARRIVED] = arrived + 1
        elif is_next(s, time, COMPLETION):
            finish(w, m, s, pop_event(s))
        elif seen < w.sizes[NUM_OUTAGES] and w.outage_time[seen] == time:
            handle_outages(w, m, s, time, 1)
        else:
            release(w, s, pop_event(s))
        return True
    while is_next(s, time, COMPLETION):
        finish(w, m, s, pop_event(s))
    handle_outages(w, m, s, time, w.sizes[NUM_OUTAGES])
    while s.count[EVENTS] > 0 and s.event_time[0] == time:
        if is_next(s, time, RELEASE):
            release(w, s, pop_event(s))
        else:
            ring_timer(w, s, first_job(s))
    while arrived < w.sizes[NUM_JOBS] and w.submit[arrived] == time:
        arrive(w, s, arrived)
        arrived += 1
    s.count[ARRIVED] = arrived
    return True


@inline
def _log_might_fill(w: World, s: State) -> bool:
    """Whether the next pass, if it starts all that waits, may write more than there is room for. A preemptive pass looks for itself."""
    if not w.policy[RESTARTS] or w.policy[KEYS]:
        return False
    starts = s.count[PENDING_JOBS] + (s.count[RUNNING_JOBS] if w.policy[RESIZES] else 0)
    return s.count[PIECES] + starts * w.sizes[MOST_PIECES] > w.sizes[LOG_SIZE]


@entry
def replay(world, machine, spare, state, scorer, second_scorer) -> None:  # type: ignore[no-untyped-def]
    """Run until nothing is left to happen, or until the log of pieces must grow (LOG_FULL); then call again."""
    w = as_world(world)
    m = as_machine(machine)
    z = as_machine(spare)
    s = as_state(state)
    if s.count[LOG_FULL]:
        s.count[LOG_FULL] = 0
        s.count[DECISIONS] -= 1
        decide(w, m, z, s, scorer, second_scorer)
    while not s.count[LOG_FULL] and next_instant(w, m, s):
        fetch_next_event(w, s)
        if _log_might_fill(w, s):
            s.count[LOG_FULL] = 1
            s.count[DECISIONS] += 1
        else:
            decide(w, m, z, s, scorer, second_scorer)
