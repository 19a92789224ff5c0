"""Policies that are not rules for the engine but play a workload themselves, such as `model:RUN`.

A *player* is registered under the prefix of the names it plays. Players may live in layers above the policies: the
registry holds factories, which import them on first use. `queuewise/__init__.py` registers those of this package, so
every way into the package knows them (docs/decisions/0009).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from queuewise.cluster.conditions import Conditions
    from queuewise.cluster.spec import Cluster
    from queuewise.sim.core.schedule import Schedule
    from queuewise.workload.jobs import Floats, Workload


class PlayRequest(NamedTuple):
    """What to play, and under which rules."""

    workload: Workload
    cluster: Cluster
    policy: str  # the whole name
    dispatch: str
    estimate: Floats  # [J] seconds: what is known of the runtimes
    estimates: str  # how that was made
    seed: int
    kill_at_limit: bool
    conditions: Conditions
    max_wait: str | None  # for a name without a bound on waiting


class Player(Protocol):
    def describe(self, policy: str) -> str:
        """Return one line about what the name stands for; raise an InputError if it cannot be played."""

    def play(self, request: PlayRequest) -> Schedule: ...


_FACTORIES: dict[str, Callable[[], Player]] = {}


def register_player(prefix: str, factory: Callable[[], Player]) -> None:
    """Let the player that `factory` returns play all policies named `prefix:…`."""
    _FACTORIES[prefix] = factory


def is_played(policy: str) -> bool:
    return policy.partition(":")[0] in _FACTORIES


def describe_played(policy: str) -> str:
    return _FACTORIES[policy.partition(":")[0]]().describe(policy)


def play(request: PlayRequest) -> Schedule:
    return _FACTORIES[request.policy.partition(":")[0]]().play(request)
