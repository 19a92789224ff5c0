"""What users have had lately, for scoring functions: running jobs and decayed work, in State.users.

The rate of a user is the GPUs (cores, tasks) that the user's jobs hold, in milli: whole numbers, so that it returns to exactly zero.
"""

from __future__ import annotations

import math

from queuewise.sim import queue
from queuewise.sim.core.compilation import inline, kernel
from queuewise.sim.core.pieces import tasks_held
from queuewise.sim.core.state import State, World
from queuewise.sim.core.table_types import view
from queuewise.sim.queue.fair_orders import rate_of

DECAY = math.log(2.0) / queue.HALF_LIFE_S


@inline
def work_at(work: float, rate: float, passed: float) -> float:
    """The decayed work after some seconds at this rate."""
    kept = math.exp(-(passed * DECAY))
    return work * kept + rate / DECAY * (1.0 - kept)


@kernel
def charge_user(w: World, s: State, j: int, sign: int) -> None:
    """Job j has started (sign = 1) or stopped (sign = -1)."""
    user = view(w.facts, w.sizes.num_jobs)[j].user
    if user < 0:
        return
    at = user * queue.USER_SIZE
    s.users[at + queue.USER_WORK] = work_at(
        s.users[at + queue.USER_WORK], s.users[at + queue.USER_RATE] / 1000.0, s.clock.now - s.users[at + queue.USER_TIME]
    )
    s.users[at + queue.USER_TIME] = s.clock.now
    s.users[at + queue.USER_JOBS] += sign
    s.users[at + queue.USER_RATE] += sign * tasks_held(w, s, j) * rate_of(w, w.job_class[j])
