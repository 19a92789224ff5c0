"""A batch of envs in memory: E simulations side by side, stepped by one compiled call. `single` and `vector` are thin shells of it.

Each env owns one block of bytes that holds all its arrays (machine, spare machine, state, play). To reset it, the block
of the episode's template is copied over it and its rows of addresses are set anew; nothing is allocated once the block is large enough.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.spec import Cluster
from queuewise.envs import table
from queuewise.envs.episodes import Episode
from queuewise.envs.features import Layout
from queuewise.envs.settings import TaskSettings
from queuewise.envs.stepping import draw_legal, first_illegal, play
from queuewise.envs.table import F32, F64, I32, I64, Output, Play
from queuewise.errors import InputError
from queuewise.sim import state as engine
from queuewise.sim.compilation import JIT_DISABLED
from queuewise.sim.engine import schedule_of
from queuewise.sim.schedule import NEVER, RUNNING, Schedule
from queuewise.sim.state import Machine, State
from queuewise.sim.tables import clone

ALIGNMENT = 64
Table = TypeVar("Table", Machine, State, Play)
Bools = NDArray[np.bool_]


class Block:
    """The bytes of some tables of arrays, and where in them each array lies."""

    def __init__(self, *tables: Any) -> None:
        self._tables = tables
        owners: dict[int, tuple[NDArray[Any], int]] = {}
        size = 0
        for array in (array for arrays in tables for array in arrays):
            owner = _owner(array)
            if id(owner) not in owners:
                owners[id(owner)] = (owner, size)
                size += -(-owner.nbytes // ALIGNMENT) * ALIGNMENT
        self.bytes = np.zeros(size, np.uint8)
        for owner, at in owners.values():
            self.bytes[at : at + owner.nbytes] = np.frombuffer(owner.tobytes(), np.uint8)
        self.offsets = [
            np.array([owners[id(_owner(array))][1] + array.ctypes.data - _owner(array).ctypes.data for array in arrays], np.int64)
            for arrays in tables
        ]

    def view(self, number: int, memory: NDArray[np.uint8]) -> Any:
        """Table `number` as arrays in `memory`, which holds a copy of the bytes."""
        arrays = self._tables[number]
        offsets = self.offsets[number]
        return type(arrays)(*(
            np.ndarray(array.shape, array.dtype, memory.data, int(offset), array.strides)
            for array, offset in zip(arrays, offsets, strict=True)
        ))  # fmt: skip


def _owner(array: NDArray[Any]) -> NDArray[Any]:
    """The array whose memory this one looks at."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


class Template(NamedTuple):
    episode: Episode
    block: Block
    world: Any
    task: Any


MACHINE, SPARE, STATE, PLAY = range(4)  # tables of an env's block


def make_template(episode: Episode) -> Template:
    for arrays in (episode.machine, episode.state):
        engine.handle(arrays)  # checks the types
    table.handle(episode.play)
    block = Block(episode.machine, clone(episode.machine), episode.state, episode.play)
    return Template(episode, block, engine.handle(episode.world), table.handle(episode.task))


class Batch:
    """E envs. The arrays below are written by `begin` and `step`; `observations` may be exchanged for a buffer of the caller's."""

    def __init__(self, size: int, cluster: Cluster, settings: TaskSettings, layout: Layout, threads: int | None = None) -> None:
        self.size, self.cluster, self.settings, self.layout = size, cluster, settings, layout
        self.joint = settings.problem == "joint"
        self.num_actions = layout.hosts + 1 if settings.problem == "host" else layout.window + 1
        width = self.num_actions + (layout.window * layout.hosts if self.joint else 0)
        self.observations: F32 = np.zeros((size, layout.size), np.float32)
        self.mask: Bools = np.zeros((size, width), np.bool_)
        self.rewards: F64 = np.zeros(size)
        self.outcome: I64 = np.zeros(size, np.int64)
        self.elapsed: F64 = np.zeros(size)
        self._actions: I64 = np.zeros((size, 2), np.int64)
        self._users: I64 = np.zeros(size, np.int64)
        self._memory = [np.zeros(0, np.uint8) for _ in range(size)]
        self._templates: list[Template | None] = [None] * size
        self._rows: list[Any] = [None] * 6  # world, machine, spare, state, task, play: one row of addresses an env
        self._everyone = np.arange(size)
        self._outputs = self._rows_of(self.observations)
        self._strayed = False  # whether the last step was written to a buffer of the caller's
        self._threads = max(1, min(threads or os.cpu_count() or 1, size))
        self._pool = ThreadPoolExecutor(self._threads - 1) if self._threads > 1 else None
        self._slices = np.array_split(self._everyone, self._threads)

    def begin(self, envs: Iterable[int], templates: Iterable[Template], out: F32 | None = None) -> None:
        """Put these envs at the beginning of these episodes; observations go to `out` if given."""
        chosen = []
        for e, template in zip(envs, templates, strict=True):
            self._load(e, template)
            chosen.append(e)
        self._play(np.array(chosen, np.int64), True, self._outputs if out is None else self._rows_of(out), True)

    def _load(self, e: int, template: Template) -> None:
        block = template.block
        if len(self._memory[e]) < len(block.bytes):
            self._memory[e] = _aligned(len(block.bytes))
        memory = self._memory[e]
        memory[: len(block.bytes)] = block.bytes
        if JIT_DISABLED:
            rows = [template.world, *(block.view(number, memory) for number in range(3)), template.task, block.view(PLAY, memory)]
        else:
            home = memory.ctypes.data
            rows = [template.world, *(home + offsets for offsets in block.offsets[:3]), template.task, home + block.offsets[PLAY]]
        for number, row in enumerate(rows):
            if self._rows[number] is None:
                self._rows[number] = [row] * self.size if JIT_DISABLED else np.tile(row, (self.size, 1))
            self._rows[number][e] = row
        self._templates[e] = template
        self._users[e] = template.episode.users

    def step(self, actions: NDArray[Any], out: F32 | None = None) -> None:
        """Step all envs. `actions` is [E], or [E, 2] for the joint problem; observations go to `out` if given."""
        self._actions[:, : 2 if self.joint else 1] = actions if self.joint else np.reshape(actions, (-1, 1))
        self._check_actions()
        outputs = self._outputs if out is None else self._rows_of(out)
        fresh = out is not None or self._strayed
        self._strayed = out is not None
        if self._pool is None:
            self._play(self._everyone, False, outputs, fresh)
            return
        others = [self._pool.submit(self._play, part, False, outputs, fresh) for part in self._slices[1:]]
        self._play(self._slices[0], False, outputs, fresh)
        for other in others:
            other.result()

    def _play(self, envs: I64, begins: bool, outputs: Any, fresh: bool) -> None:
        play(tuple(self._rows), outputs, fresh, envs, begins, self._actions, self._users, self.rewards, self.outcome, self.elapsed)

    def _rows_of(self, observations: F32) -> Any:
        """Where each env writes, for a buffer [E, F]."""
        mask = self.mask.view(np.int8)
        if observations.shape != (self.size, self.layout.size) or observations.dtype != np.float32 or observations.strides[1] != 4:
            raise InputError(
                f"a buffer for observations is {observations.dtype} {observations.shape}",
                hint=f"give float32 ({self.size}, {self.layout.size}) with contiguous rows",
            )
        if JIT_DISABLED:
            return [Output(observations[e], mask[e]) for e in range(self.size)]
        columns = [array.ctypes.data + self._everyone * array.strides[0] for array in (observations, mask)]
        return np.ascontiguousarray(np.column_stack(columns))

    def _check_actions(self) -> None:
        """Refuse actions outside the action space, and illegal ones unless they shall count as waits."""
        if (self._actions < 0).any() or (self._actions >= (self.num_actions, self.layout.hosts)).any():
            raise InputError("an action is outside the action space", hint=f"actions of this env are below {self.num_actions}")
        if self.settings.illegal == "wait":
            return
        e = first_illegal(self.mask, self._actions, self.layout.window, self.layout.hosts, self.joint)
        if e >= 0:
            action = self._actions[e].tolist() if self.joint else int(self._actions[e, 0])
            raise InputError(
                f"action {action} is not legal in env {e}",
                hint='choose where info["action_mask"] is true, or make the env with illegal="wait"',
            )

    def draw_legal(self, state: NDArray[np.uint64]) -> I64:
        """Random legal actions [E] or [E, 2], drawn by compiled code; `state` [E] holds the generators, all above zero."""
        draw_legal(self.mask, self.layout.window, self.layout.hosts, self.joint, state, self._actions)
        return self._actions if self.joint else self._actions[:, 0]

    def episode(self, e: int) -> Episode:
        return self._template(e).episode

    def _template(self, e: int) -> Template:
        template = self._templates[e]
        if template is None:
            raise InputError("the environment has not been reset", hint="call reset() first")
        return template

    def state(self, e: int) -> State:
        """The live arrays of env e."""
        return self._template(e).block.view(STATE, self._memory[e])

    def play_of(self, e: int) -> Play:
        return self._template(e).block.view(PLAY, self._memory[e])

    def machine(self, e: int) -> Machine:
        return self._template(e).block.view(MACHINE, self._memory[e])

    def window_jobs(self, e: int) -> I32:
        """[Q] the job in each slot of the window, -1 where it is empty."""
        play_arrays = self.play_of(e)
        jobs = np.full(self.layout.window, -1, np.int32)
        shown = min(int(play_arrays.number[table.WAITING]), self.layout.window)
        jobs[:shown] = play_arrays.waiting[:shown]
        return jobs

    def schedule(self, e: int, policy: str = "env") -> Schedule:
        """What has happened in env e so far."""
        episode = self.episode(e)
        state: State = self._template(e).block.view(STATE, self._memory[e].copy())
        num_jobs = len(episode.workload)
        state = state._replace(status=state.status[:num_jobs], start=state.start[:num_jobs], end=state.end[:num_jobs])
        state.end[state.status == RUNNING] = NEVER  # when a running job will end is nobody's business
        return schedule_of(episode.workload, self.cluster, episode.rules, state, episode.estimate, policy, self.settings.estimates, 0.0)

    def tally(self, e: int) -> dict[str, float]:
        """Sums of env e's episode that cost nothing to tell; all figures of docs/metrics.md are in `schedule`."""
        block, memory = self._template(e).block, self._memory[e]
        number = np.ndarray(table.NUMBER_SIZE, np.int64, memory.data, int(block.offsets[PLAY][0]))
        scalar = np.ndarray(table.SCALAR_SIZE, np.float64, memory.data, int(block.offsets[PLAY][1]))
        ended = int(number[table.ENDED])
        return {
            "return": float(scalar[table.RETURN]),
            "steps": int(number[table.STEPS]),
            "illegal": int(number[table.ILLEGAL]),
            "completed": ended,
            "unfinished": int(number[table.WAITING] + number[table.ON_MACHINE]),
            "mean_wait_s": float(scalar[table.WAIT_SUM]) / max(ended + int(number[table.ON_MACHINE]), 1),
            "mean_jct_s": float(scalar[table.JCT_SUM]) / max(ended, 1),
            "mean_bounded_slowdown": float(scalar[table.BOUNDED_SUM]) / max(ended, 1),
        }

    def bytes_per_env(self) -> int:
        """Memory of one env: its block of arrays, and its rows of the buffers."""
        rows = (self.observations, self.mask, self.rewards, self.outcome, self.elapsed, self._actions)
        return max(len(memory) for memory in self._memory) + sum(row.nbytes for row in rows) // self.size

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()


def _aligned(size: int) -> NDArray[np.uint8]:
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    return memory[-memory.ctypes.data % ALIGNMENT :][:size]
