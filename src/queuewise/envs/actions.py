"""Actions: which are legal, what replaces an illegal one, which of a batch is refused, and random legal ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from queuewise.envs import columns
from queuewise.envs.columns import EpisodeState, Frame, Task, as_episode_state, as_frame
from queuewise.sim.core.compilation import entry, inline, kernel
from queuewise.sim.core.tables import I8


@inline
def is_legal(k: Task, mask: I8, action: int, host: int) -> bool:
    """Whether the mask allows the action, and, in the joint problem, its host."""
    if not mask[action]:
        return False
    if k.config.problem != columns.JOINT or action == k.config.wait_action:
        return True
    return mask[k.config.window + 1 + action * k.config.host_slots + host] > 0


@kernel
def legal_instead(k: Task, mask: I8) -> tuple[int, int]:
    """The action that replaces an illegal one: wait if that is legal, otherwise the first legal action."""
    if mask[k.config.wait_action]:
        return k.config.wait_action, 0
    action = 0
    while not mask[action]:
        action += 1
    host = 0
    if k.config.problem == columns.JOINT:
        while not mask[k.config.window + 1 + action * k.config.host_slots + host]:
            host += 1
    return action, host


@kernel
def first_refused(f: Frame, num_envs: int) -> int:
    """The first env whose action is refused, -1 if there is none.

    An action is refused if it is outside the action space, or if it is illegal and the env is not lenient.
    """
    actions, hosts, lenient = f.space.actions, f.space.hosts, f.space.lenient
    for e in range(num_envs):
        action, host = f.actions[2 * e], f.actions[2 * e + 1]
        if action < 0 or action >= actions or host < 0 or host >= hosts:
            return e
        if lenient:
            continue
        row = e * f.space.mask_width
        if not f.mask[row + action]:
            return e
        if f.space.pairs and action != actions - 1 and not f.mask[row + actions + action * hosts + host]:
            return e
    return -1


@kernel
def draw_legal(f: Frame, p: EpisodeState, e: int) -> None:
    """Draw a uniformly random legal action for env e. In the joint problem: a job, then one of its hosts."""
    actions, hosts, row = f.space.actions, f.space.hosts, e * f.space.mask_width
    legal = p.count.legal
    number = _draw_below(f, e, legal)
    waits = f.mask[row + actions - 1] > 0
    action = actions - 1 if waits and number == legal - 1 else _find_legal(f, row, number)
    f.drawn[2 * e] = action
    f.drawn[2 * e + 1] = 0
    if f.space.pairs and action != actions - 1:
        row += actions + action * hosts
        f.drawn[2 * e + 1] = _find_legal(f, row, _draw_below(f, e, _count(f, row, hosts)))


@entry
def draw_for_all(frame, num_envs) -> None:  # type: ignore[no-untyped-def]
    f = as_frame(frame)
    for e in range(num_envs):
        draw_legal(f, as_episode_state(f.lists[e * columns.LISTS + columns.EPISODE_STATE_LIST]), e)


@inline
def _count(f: Frame, first: int, length: int) -> int:
    number = 0
    for a in range(first, first + length):
        number += f.mask[a]
    return number


@inline
def _find_legal(f: Frame, first: int, number: int) -> int:
    """Position of the legal action that has `number` legal actions before it."""
    a = first
    left = number - f.mask[a]
    while left >= 0:
        a += 1
        left -= f.mask[a]
    return a - first


@inline
def _draw_below(f: Frame, e: int, bound: int) -> Any:
    """Draw a number below the bound from the generator of env e (xorshift64)."""
    x = np.uint64(f.generator[e])
    x ^= x << np.uint64(13)
    x ^= x >> np.uint64(7)
    x ^= x << np.uint64(17)
    f.generator[e] = np.int64(x)
    return np.int64((x >> np.uint64(32)) * np.uint64(bound) >> np.uint64(32))
