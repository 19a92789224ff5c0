"""A simulation laid out but not begun, and the names of the engine that tests of its kernels use: all of them are imported here."""

from __future__ import annotations

from dataclasses import dataclass

from queuewise.cluster.spec import Cluster
from queuewise.policies.known import Jobs
from queuewise.policies.names import parse_policy
from queuewise.sim.core.setup import lay_out
from queuewise.sim.core.state import Machine, State, World
from queuewise.workload.jobs import Floats, Workload


@dataclass(frozen=True)
class Simulation:
    world: World
    machine: Machine
    scratch: Machine
    state: State

    def set_time(self, now: float, bound: float = float("inf")) -> None:
        """`bound`: when a job that starts now must have ended, where a reservation limits its class."""
        self.state.clock.now, self.state.clock.bound = now, bound

    def put(self, pieces: list[tuple[int, int, int]]) -> None:
        """Let the placement in question be these (node, tasks, bit mask of GPUs)."""
        self.state.count.placed = len(pieces)
        for k, piece in enumerate(pieces):
            self.state.place_node[k], self.state.place_tasks[k], self.state.place_gpus[k] = piece

    @property
    def tracks_free_times(self) -> bool:
        return bool(self.world.policy.tracks_free_times)


def laid_out(workload: Workload, cluster: Cluster, policy: str, estimate: Floats) -> Simulation:
    rules = parse_policy(policy).rules(Jobs.of(workload, estimate, cluster=cluster), "reorder")
    world, machine, state = lay_out(workload, cluster, rules, runtime=workload.runtime, estimate=estimate).tables
    return Simulation(world, machine, machine.clone(), state)
