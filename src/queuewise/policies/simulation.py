"""A replay that can be stopped at any time, copied, stored in a file and continued: for planning and "what if".

Everything that changes lies in one block of memory (except the log of pieces, which only grows), so a snapshot is one
copy of it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.following import LogFollower, logged_state
from queuewise.policies.names import parse_policy
from queuewise.policies.replaying import known_estimates, known_jobs
from queuewise.runs import replacing
from queuewise.sim.core.engine import PIECE_COLUMNS, compiled_replay, limited_runtime, run_kernel, schedule_of
from queuewise.sim.core.schedule import DONE, KILLED, Schedule
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.state import Machine, State
from queuewise.workload.jobs import Floats, Workload

# Columns that carry nothing from one instant to the next. (`room` is stored, but room_key says whether it is valid.)
SCRATCH = (
    "scratch", "scratch_jobs", "scratch_nodes", "place_node", "place_tasks", "place_gpus", "victim_key", "victim_job", "taken",
    "frontier", "gain", "planned", "aside", "stretch", "node_facts", "node_score", "demand", "hold",
)  # fmt: skip
ALIGNMENT = 64


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A simulation at one instant. Valid only for simulations of the same jobs, cluster and policy."""

    now: float
    memory: NDArray[np.uint8]
    pieces: tuple[NDArray[Any], ...]  # PIECE_COLUMNS, those written so far

    def same_as(self, other: Snapshot) -> bool:
        """Whether both are equal, bit for bit."""
        same_pieces = all(mine.tobytes() == its.tobytes() for mine, its in zip(self.pieces, other.pieces, strict=True))
        return np.array_equal(self.memory, other.memory) and same_pieces


class Simulation:
    """One replay, from the beginning."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        *,
        dispatch: str = "reorder",
        estimates: str | Floats = "requested",
        seed: int = 0,
        kill_at_limit: bool = False,
        conditions: Conditions = PERFECT,
        max_wait: str | None = None,
        params: Sequence[float] | None = None,
    ) -> None:
        parsed = parse_policy(policy).bounded(max_wait)
        if parsed.decides_in_python:
            raise InputError(f"{policy} keeps its state in Python, which a snapshot cannot hold", hint="use a score function, or simulate")
        name, known = known_estimates(workload, cluster, estimates, seed)
        jobs = known_jobs(parsed, workload, cluster, known, seed, conditions)
        rules = parsed.rules(jobs, dispatch, params)
        runtime, self._killed = limited_runtime(workload, kill_at_limit)
        world, machine, state = lay_out(
            workload, cluster, rules, runtime=runtime, estimate=known, history=jobs.history, conditions=conditions
        )
        self._memory, (self._machine, self._state) = _into_one_block(machine, state)
        self._world = world
        self._own = [ast.dump(own.tree) for own in parsed.own]
        self._drive = partial(run_kernel, compiled_replay(), rules, world, self._machine)
        self._schedule = partial(
            schedule_of, workload, cluster, rules, estimate=known, policy=policy, estimates=name, engine_s=0.0, conditions=conditions
        )

    @property
    def now(self) -> float:
        """The time of the last instant."""
        return float(self._state.clock.now)

    def run(self, until: float = np.inf) -> None:
        """Advance through all instants up to and including a time."""
        self._state.clock.stop_at = until
        self._state = self._drive(self._state)

    def follow(self, log: Schedule, until: float = np.inf) -> None:
        """Advance like `run`, but follow a log of this same replay instead of asking the policy (docs/simulator.md)."""
        self._state.clock.stop_at = until
        self._state = LogFollower(log, self._world, self._machine, self._state).run()

    def fingerprint(self) -> str:
        """A hash of everything that a log determines (docs/simulator.md).

        Two simulations with equal fingerprints are in the same state, bit for bit.
        """
        digest = hashlib.sha256(self._world_fingerprint().tobytes())
        for part in logged_state(self._machine, self._state):
            digest.update(part.tobytes())
        return digest.hexdigest()

    def snapshot(self) -> Snapshot:
        used = int(self._state.count.pieces)
        return Snapshot(self.now, self._memory.copy(), tuple(getattr(self._state, name)[:used].copy() for name in PIECE_COLUMNS))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the state of the snapshot."""
        self._check(snapshot)
        np.copyto(self._memory, snapshot.memory)
        for name, written in zip(PIECE_COLUMNS, snapshot.pieces, strict=True):
            getattr(self._state, name)[: len(written)] = written

    def schedule(self) -> Schedule:
        """What has happened so far."""
        state = self._state.replace(status=self._state.status.copy())
        state.status[(state.status == DONE) & self._killed] = KILLED
        return self._schedule(state=state)

    def save(self, path: Path) -> None:
        """Write the current state to a file."""
        snapshot = self.snapshot()
        pieces = dict(zip(PIECE_COLUMNS, snapshot.pieces, strict=True))
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, world=self._world_fingerprint(), memory=snapshot.memory, **pieces)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        """Return to the state that `save` wrote, in a simulation of the same jobs, cluster and policy."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                kept = {name: stored[name] for name in ("world", "memory", *PIECE_COLUMNS)}
        except FileNotFoundError:
            raise InputError("no such file", where=str(path), hint="check the path") from None
        except Exception as error:  # a zip file can be broken in many ways
            raise InputError(f"is not a snapshot: {error}", where=str(path), hint="take the snapshot again") from None
        if kept["world"].tobytes() != self._world_fingerprint().tobytes():
            raise InputError(
                "is a snapshot of other jobs, another cluster or another policy",
                where=str(path),
                hint="load it into a simulation of the same jobs, cluster and policy",
            )
        self.restore(Snapshot(0.0, kept["memory"], tuple(kept[name] for name in PIECE_COLUMNS)))

    def _check(self, snapshot: Snapshot) -> None:
        room = len(self._state.piece_job)
        if len(snapshot.memory) != len(self._memory) or len(snapshot.pieces[0]) > room:
            raise InputError("the snapshot belongs to another simulation", hint="restore it into the simulation it was taken from")

    def _world_fingerprint(self) -> NDArray[np.uint8]:
        """A hash of the jobs, the cluster and the policy."""
        digest = hashlib.sha256("".join(self._own).encode())
        policy = self._world.policy.copy()
        policy.node_scorer = policy.node_scorer != 0  # the address of the function differs between processes
        for name, column in zip(self._world.columns, self._world.replace(policy=policy), strict=True):
            if name != "sizes":  # it holds the length of the log
                digest.update(np.ascontiguousarray(column).tobytes())
        return np.frombuffer(digest.digest(), np.uint8)


def _into_one_block(machine: Machine, state: State) -> tuple[NDArray[np.uint8], tuple[Machine, State]]:
    """Copies of both structures with their columns in one block, except for scratch columns and the log of pieces."""
    wholes: dict[int, NDArray[Any]] = {}  # columns that are fields of the same rows count once
    for structure in (machine, state):
        for name in structure.columns:
            if name not in SCRATCH and name not in PIECE_COLUMNS:
                whole = _whole(getattr(structure, name))
                wholes[id(whole)] = whole
    offsets, size = {}, 0
    for key, whole in wholes.items():
        offsets[key] = size
        size += -(-whole.nbytes // ALIGNMENT) * ALIGNMENT
    memory = np.zeros(size, np.uint8)
    moved = {}
    for key, whole in wholes.items():
        moved[key] = memory[offsets[key] : offsets[key] + whole.nbytes].view(whole.dtype).view(type(whole))
        moved[key][...] = whole

    def place(structure: Machine | State, name: str) -> NDArray[Any]:
        column: NDArray[Any] = getattr(structure, name)
        whole = _whole(column)
        if id(whole) not in moved:
            return column
        return moved[id(whole)][name] if whole.dtype.names and whole is not column else moved[id(whole)]

    new_machine = Machine(*(place(machine, name) for name in Machine.columns))
    return memory, (new_machine, State(*(place(state, name) for name in State.columns)))


def _whole(column: NDArray[Any]) -> NDArray[Any]:
    """The rows that a column is a field of, or the column itself."""
    base = column.base
    return base if isinstance(base, np.ndarray) and base.dtype.names and not column.dtype.names else column
