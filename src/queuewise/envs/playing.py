"""A trained network plays an env: decisions and steps in one compiled call, without Python in between."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from queuewise.envs import columns
from queuewise.envs.columns import Frame, as_frame, as_output
from queuewise.envs.step_entry import begin_or_step
from queuewise.envs.step_threads import ADDRESSES, STEP_SIGNATURE
from queuewise.envs.stepping import RUNS_ON
from queuewise.policies.learned import TrainedNetwork
from queuewise.policies.networks.interpreter import decide
from queuewise.sim.core.compilation import address_of, caller_by_address, entry, inline
from queuewise.sim.core.table_types import view

DECIDE_SIGNATURE = types.int64(ADDRESSES, types.float32[::1], types.int8[::1], types.boolean, types.boolean)
_decide = caller_by_address(DECIDE_SIGNATURE)
_begin_or_step = caller_by_address(STEP_SIGNATURE)


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
        steps += 1
    return steps


def play(network: TrainedNetwork, frame: Any, most: int) -> int:
    """The same for a network and the frame of a batch of one, whose episode has begun."""
    size = network.table.size
    decide(network.call, np.zeros(size.length, np.float32), np.zeros(size.actions, np.int8), True, False)  # compiles it
    functions = np.array([address_of(decide), address_of(begin_or_step)])
    steps: int = play_steps(functions, frame, np.zeros(1, np.int64), network.call, most)
    return steps
