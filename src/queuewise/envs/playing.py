"""A trained network plays an env: decisions and steps in one compiled call, without Python in between.

`play`: it acts as an agent does, as in its training. `play_in_order`: it only gives the order of the queue, and the engine starts and
backfills jobs in that order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from queuewise.envs import columns
from queuewise.envs.bookkeeping import note_starts
from queuewise.envs.columns import EpisodeState, Frame, Task, as_episode_state, as_frame, as_output, as_task
from queuewise.envs.masks import lies_ahead
from queuewise.envs.observation import note_window, observe, shown_jobs
from queuewise.envs.step_threads import ADDRESSES, STEP_SIGNATURE
from queuewise.envs.stepping import RUNS_ON, TERMINATED, advance
from queuewise.envs.stopping import observe_running
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.networks.interpreter import decide
from queuewise.policies.networks.program_table import NetworkProgram, as_program
from queuewise.sim import backfill, queue
from queuewise.sim.backfill.easy import some_class_fits
from queuewise.sim.core.compilation import JIT_DISABLED, address_of, caller_by_address, entry, inline, kernel
from queuewise.sim.core.loop import schedule_queue
from queuewise.sim.core.state import Machine, State, World, as_machine, as_state, as_world
from queuewise.sim.core.stepwise import start_overdue
from queuewise.sim.core.table_types import view
from queuewise.sim.queue.overdue import has_bound

DECIDE_SIGNATURE = types.int64(ADDRESSES, types.float32[::1], types.int8[::1], types.boolean, types.boolean)
PUBLISH_SIGNATURE = types.none(ADDRESSES, types.int64[::1])
_decide = caller_by_address(DECIDE_SIGNATURE)
_begin_or_step = caller_by_address(STEP_SIGNATURE)
_publish = caller_by_address(PUBLISH_SIGNATURE)


@inline
def _take(f: Frame, action: int) -> None:
    """Write a flat action as env 0 takes it: in the joint problem a pair of slot and host, last of all the wait."""
    waits = f.space.actions - 1
    if not f.space.pairs:
        f.actions[0], f.actions[1] = action, 0
    elif action == waits * f.space.hosts:
        f.actions[0], f.actions[1] = waits, 0
    else:
        f.actions[0], f.actions[1] = action // f.space.hosts, action % f.space.hosts


@entry
def play_steps(functions, frame, envs, network, most) -> int:  # type: ignore[no-untyped-def]
    """Let the network play the only env until its episode ends, for at most `most` steps. Returns how many it took."""
    f = as_frame(frame)
    o = as_output(f.lists[columns.LISTS - 1])
    observation, mask = view(o.observation, f.length[0]), view(o.mask, f.space.mask_width)
    wait = f.space.actions - 1
    choices = mask[wait + 1 :] if f.space.pairs else mask[:wait]
    steps = 0
    while steps < most and f.outcome[0] == RUNS_ON:
        _take(f, _decide(functions[0], network, observation, choices, mask[wait] != 0, False))
        _begin_or_step(functions[1], frame, envs, False, False, 1)
        if functions[2] != 0:
            _publish(functions[2], frame, envs)
        steps += 1
    return steps


def play(network: TrainedNetwork, frame: Any, step: Any, publish: Any, most: int) -> int:
    """The same for a network and the frame of a batch of one, whose episode has begun.

    `step` is the entry that has begun it, and `publish` writes a published view, if any.
    """
    _compile_decisions(network)
    functions = np.array([address_of(decide), address_of(step), address_of(publish) if publish is not None else 0])
    steps: int = play_steps(functions, frame, np.zeros(1, np.int64), network.call, most)
    return steps


def _compile_decisions(network: TrainedNetwork) -> None:
    size = network.table.size
    if not JIT_DISABLED:
        decide(network.call, np.zeros(size.length, np.float32), np.zeros(size.actions, np.int8), True, False)


# --- the network as an order


@inline
def _order_matters(w: World, m: Machine, s: State) -> bool:
    """Whether the order of the queue can change anything now: a job may start, or the engine plans or commits by it."""
    if w.policy.backfill == backfill.CONSERVATIVE or w.policy.dispatch == queue.COMMIT:
        return True
    for q in range(w.sizes.num_queues):  # noqa: SIM110 (no generators in kernels)
        if some_class_fits(w, m, s, q):
            return True
    return False


@kernel
def _score_queue(n: NetworkProgram, s: State, p: EpisodeState, shown: int) -> None:
    """Write what the engine orders the queue by: shown jobs by descending score of the network, then the others as they wait."""
    scores = n.means if n.size.outputs > 1 else n.score
    for q in range(shown):
        place = 0
        for other in range(shown):
            place += scores[other] > scores[q] or (scores[other] == scores[q] and other < q)
        s.score[s.pending_slot[p.waiting[q]]] = place
    for at in range(shown, p.count.waiting):
        s.score[s.pending_slot[p.waiting[at]]] = at


@inline
def _is_committed(w: World, s: State) -> bool:
    """Whether a job of some queue holds the machine until it starts."""
    committed = False
    for q in range(w.sizes.num_queues):
        committed = committed or s.head[q] >= 0
    return committed and w.policy.dispatch == queue.COMMIT


@kernel
def _schedule(w: World, m: Machine, z: Machine, s: State, k: Task, p: EpisodeState, waits: bool) -> None:
    """Start jobs in the order of State.score, or none but overdue ones if the network prefers to wait."""
    before = s.count.starts
    if waits:
        if has_bound(w) and not _is_committed(w, s):
            start_overdue(w, m, z, s)
    else:
        for q in range(w.sizes.num_queues):
            if s.queue_active[q] > 0:
                schedule_queue(w, m, z, s, q)
    if s.count.starts > before:
        note_starts(w, m, s, k, p)


@entry
def play_instants(functions, frame, envs, network, most) -> int:  # type: ignore[no-untyped-def]
    """Let the network order the queue of the only env until its episode ends, for at most `most` instants. Returns how many there were."""
    f = as_frame(frame)
    n = as_program(network)
    w, m, z, s = as_world(f.lists[0]), as_machine(f.lists[1]), as_machine(f.lists[2]), as_state(f.lists[3])
    k, p, o = as_task(f.lists[4]), as_episode_state(f.lists[5]), as_output(f.lists[6])
    observation, mask = view(o.observation, f.length[0]), view(o.mask, f.space.mask_width)
    wait = f.space.actions - 1
    instants = 0
    while instants < most and f.outcome[0] == RUNS_ON:
        s.count.decisions += 1
        if p.count.waiting > 0 and _order_matters(w, m, s):
            if functions[1] != 0:
                note_window(w, m, s, k, p)
                _publish(functions[1], frame, envs)
            else:
                observe(w, m, s, k, p, o.observation, False)
                if k.config.stop_slots > 0:
                    observe_running(w, m, s, k, p, o.observation, f.running_at[0])
            shown = shown_jobs(k, p)
            for q in range(wait):
                mask[q] = np.int8(q < shown)
            mask[wait] = np.int8(lies_ahead(w, s))
            action = _decide(functions[0], network, observation, mask[:wait], mask[wait] != 0, False)
            if action != wait:
                _score_queue(n, s, p, shown)
            _schedule(w, m, z, s, k, p, action == wait)
        if not advance(w, m, s, k, p):
            f.outcome[0] = TERMINATED
        instants += 1
    return instants


def play_in_order(network: TrainedNetwork, frame: Any, publish: Any, most: int) -> int:
    """The same for a network and the frame of a batch of one. `publish` is that of `play`."""
    _compile_decisions(network)
    functions = np.array([address_of(decide), address_of(publish) if publish is not None else 0])
    instants: int = play_instants(functions, frame, np.zeros(1, np.int64), network.call, most)
    return instants
