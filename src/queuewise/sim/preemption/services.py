"""Services of jobs that have ended, and what they say of jobs that have not: the keys of levels under `gittins` (docs/simulator.md).

A key is the rank of the Gittins index at the service where the level begins. The keys are computed when the number of known services has
reached State.count.learn_at, which is then doubled, so all computations together cost little more than the last one.
"""

from __future__ import annotations

from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.state import State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.preemption import FIRST_COMPUTATION
from queuewise.sim.preemption.keys import rank_all_again
from queuewise.sim.preemption.restart import attained_now
from queuewise.sim.preemption.room import forget_rooms
from queuewise.sim.preemption.victim_lists import seat_job

GROWTH = 2


@inline
def note_service(w: World, s: State, j: int) -> None:
    """Running job j has ended."""
    if not w.policy.learns_keys:
        return
    service = attained_now(w, s, j)
    if service > 0.0:
        s.service[s.count.services] = service
        s.count.services += 1


@kernel
def _gittins_index(s: State, attained: float, first: int) -> float:
    """The greatest chance of ending within some more service, per service expected to be spent on it.

    Services ascend; from the first one on they are greater than what is attained.
    """
    above = s.count.services - first
    best = 0.0
    spent = 0.0
    for k in range(1, above + 1):
        more = s.service[first + k - 1] - attained
        spent += more
        best = max(best, k / (spent + (above - k) * more))
    return best


@kernel
def learn_level_keys(w: World, s: State) -> None:
    """Compute the keys of all levels from the services known by now, and sort all jobs by them."""
    view(s.service, s.count.services).sort()
    levels = w.sizes.num_levels + 1
    first = 0
    for i in range(levels):
        attained = w.level_bound[i - 1] if i > 0 else 0.0
        while first < s.count.services and s.service[first] <= attained:
            first += 1
        s.scratch[i] = -_gittins_index(s, attained, first)
    for i in range(levels):
        rank = 0
        for other in range(levels):
            rank += s.scratch[other] < s.scratch[i]
        s.level_key[i] = rank
    s.count.learn_at = max(GROWTH * s.count.services, FIRST_COMPUTATION)
    rank_all_again(w, s)
    for slot in range(s.count.running_jobs):
        seat_job(w, s, s.running[slot])
    forget_rooms(w, s)
    for q in range(w.sizes.num_queues):
        s.dirty[q] = 1
