"""A replay that can be stopped at any time, copied, stored in a file and continued: for planning and "what if".

Everything that changes lies in one block of memory (except the log of pieces, which only grows), so going back to an
earlier instant of the same simulation is one copy (`remember`, `restore`). A `Snapshot` takes longer, holds only what
may be known at that instant, and can start a replay of other jobs under another policy.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.following import LogFollower, logged_state
from queuewise.policies.names import parse_policy
from queuewise.policies.replaying import known_estimates, known_jobs, named_accounts
from queuewise.policies.resuming import rules_after, start_from
from queuewise.policies.snapshot import Snapshot
from queuewise.policies.snapshot_taking import SnapshotTaker
from queuewise.runs import replacing
from queuewise.sim.core.blocks import PIECE_COLUMNS, SCRATCH, into_one_block
from queuewise.sim.core.engine import compiled_replay, limited_runtime, run_kernel, schedule_of
from queuewise.sim.core.events import KIND_SHIFT, TIMER
from queuewise.sim.core.schedule import DONE, KILLED, Schedule
from queuewise.sim.core.setup import lay_out
from queuewise.workload.estimates import Estimates
from queuewise.workload.jobs import Floats, Workload

piece_columns = attrgetter(*PIECE_COLUMNS)


@dataclass(frozen=True, eq=False)
class SimulationMemory:
    """A simulation at one instant, bit for bit. Valid only for simulations of the same jobs, cluster and policy."""

    now: float
    memory: NDArray[np.uint8]
    pieces: tuple[NDArray[Any], ...]  # PIECE_COLUMNS, those written so far

    def same_as(self, other: SimulationMemory) -> bool:
        """Whether both are equal, bit for bit."""
        same_pieces = all(mine.tobytes() == its.tobytes() for mine, its in zip(self.pieces, other.pieces, strict=True))
        return np.array_equal(self.memory, other.memory) and same_pieces


class Simulation:
    """One replay, from the beginning or from a snapshot."""

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        policy: str,
        *,
        dispatch: str = "reorder",
        estimates: str | Floats | Estimates | None = None,
        seed: int = 0,
        kill_at_limit: bool = False,
        conditions: Conditions = PERFECT,
        max_wait: str | None = None,
        params: Sequence[float] | None = None,
        start: Snapshot | None = None,
        index: NDArray[np.int64] | None = None,
    ) -> None:
        """`index` [J] are the positions of the jobs in the log, if they are not all of it."""
        parsed = parse_policy(policy).bounded(max_wait)
        if parsed.decides_in_python:
            raise InputError(f"{policy} keeps its state in Python, which cannot be copied", hint="use a score function, or simulate")
        name, known = known_estimates(workload, cluster, estimates, seed)
        jobs = known_jobs(parsed, workload, cluster, known, seed, conditions)
        if index is not None:
            jobs = replace(jobs, history={**jobs.history, "index": index.astype(np.float64)})
        rules = rules_after(start, parsed.rules(jobs, dispatch, params))
        runtime, self._killed = limited_runtime(workload, kill_at_limit)
        world, machine, state = lay_out(
            workload, cluster, rules, runtime=runtime, estimate=known.values, history=jobs.history, conditions=conditions
        ).tables
        accounts = named_accounts(rules, jobs)
        if start is not None:
            state = start_from(start, workload, accounts, world, machine, state)
        self._memory, (self._machine, self._state) = into_one_block((machine, state), (*SCRATCH, *PIECE_COLUMNS))
        self._world = world
        self._taker = SnapshotTaker(workload, cluster, rules, accounts, world, self._machine)
        self._own = [ast.dump(own.tree) for own in parsed.own]
        self._drive = partial(run_kernel, compiled_replay(world), rules, world, self._machine)
        self._schedule = partial(
            schedule_of, workload, cluster, rules, estimate=known.values, policy=policy, estimates=name, engine_s=0.0, conditions=conditions
        )

    @property
    def now(self) -> float:
        """The time of the last instant."""
        return float(self._state.clock.now)

    @property
    def next_timer(self) -> float:
        """When the policy wants to decide next, even if no job arrives or ends before: the end of a hold, level or quantum."""
        events = slice(0, self._state.count.events)
        timers = self._state.event_time[events][self._state.event_code[events] >> KIND_SHIFT == TIMER]
        return float(min(self._state.clock.wake_at, timers.min(initial=np.inf)))

    def run(self, until: float = np.inf) -> None:
        """Advance through all instants up to and including a time."""
        self._state.clock.stop_at = until
        self._state = self._drive(self._state)

    def decide(self) -> None:
        """Make one pass at the present instant, although nothing has happened."""
        count = self._state.count
        count.log_full = 1  # a pass is due: the kernel begins with it
        count.decisions += 1
        self._state.dirty[:] = 1
        self.run(until=np.nextafter(self.now, -np.inf))

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

    def snapshot(self, *, history: bool = True) -> Snapshot:
        """What may be known now. Without `history`, jobs that have ended are left out."""
        return self._taker.take(self._state, killed=self._killed, history=history)

    def remember(self) -> SimulationMemory:
        """The current state, for `restore`."""
        used = int(self._state.count.pieces)
        return SimulationMemory(self.now, self._memory.copy(), tuple(column[:used].copy() for column in piece_columns(self._state)))

    def restore(self, memory: SimulationMemory) -> None:
        """Return to a remembered state."""
        self._check(memory)
        self._memory[:] = memory.memory
        for column, written in zip(piece_columns(self._state), memory.pieces, strict=True):
            column[: len(written)] = written

    def schedule(self) -> Schedule:
        """What has happened so far."""
        state = self._state.replace(status=self._state.status.copy())
        state.status[(state.status == DONE) & self._killed] = KILLED
        return self._schedule(state=state)

    def save(self, path: Path) -> None:
        """Write the current state to a file."""
        now = self.remember()
        pieces = dict(zip(PIECE_COLUMNS, now.pieces, strict=True))
        with replacing(path) as temporary, temporary.open("wb") as file:
            np.savez(file, world=self._world_fingerprint(), memory=now.memory, **pieces)  # type: ignore[arg-type]

    def load(self, path: Path) -> None:
        """Return to the state that `save` wrote, in a simulation of the same jobs, cluster and policy."""
        try:
            with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
                kept = {name: stored[name] for name in ("world", "memory", *PIECE_COLUMNS)}
        except FileNotFoundError:
            raise InputError("no such file", where=str(path), hint="check the path") from None
        except Exception as error:  # a zip file can be broken in many ways
            raise InputError(f"is not a saved simulation: {error}", where=str(path), hint="save it again") from None
        if kept["world"].tobytes() != self._world_fingerprint().tobytes():
            raise InputError(
                "is a simulation of other jobs, another cluster or another policy",
                where=str(path),
                hint="load it into a simulation of the same jobs, cluster and policy",
            )
        self.restore(SimulationMemory(0.0, kept["memory"], tuple(kept[name] for name in PIECE_COLUMNS)))

    def _check(self, memory: SimulationMemory) -> None:
        room = len(self._state.piece_job)
        if len(memory.memory) != len(self._memory) or len(memory.pieces[0]) > room:
            raise InputError("the memory belongs to another simulation", hint="restore it into the simulation that remembers it")

    def _world_fingerprint(self) -> NDArray[np.uint8]:
        """A hash of the jobs, the cluster and the policy."""
        digest = hashlib.sha256("".join(self._own).encode())
        policy = self._world.policy.copy()
        policy.node_scorer, policy.solver, policy.solver_number = policy.node_scorer != 0, policy.solver != 0, 0  # of this process
        for name, column in zip(self._world.columns, self._world.replace(policy=policy), strict=True):
            if name != "sizes":  # it holds the length of the log
                digest.update(np.ascontiguousarray(column).tobytes())
        return np.frombuffer(digest.digest(), np.uint8)
