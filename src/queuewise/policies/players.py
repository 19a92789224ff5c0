"""Policies that are no rules for the engine but play by themselves: `model:RUN`. What plays them lies above this layer and is found by
name, on first use, as commands are (docs/decisions/0009)."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from queuewise.cluster.spec import Cluster
from queuewise.sim.core.schedule import Schedule
from queuewise.workload.jobs import Floats, Workload

PLAYERS: dict[str, str] = {  # what a name begins with -> the module that plays it: a Player
    "model": "queuewise.agents.playing",
}


@dataclass(frozen=True, eq=False)
class Replay:
    """What is to be played, and by which rules."""

    workload: Workload
    cluster: Cluster
    policy: str  # the whole name
    dispatch: str
    estimate: Floats  # [J] what is known of runtimes
    estimates: str  # how that was made
    seed: int


class Player(Protocol):
    def describe(self, reference: str) -> str:
        """One line on what is behind `prefix:reference`, or an InputError if nothing fit to play is."""

    def play(self, replay: Replay) -> Schedule: ...


def is_played(policy: str) -> bool:
    return policy.partition(":")[0] in PLAYERS


def describe_played(policy: str) -> str:
    prefix, _, reference = policy.partition(":")
    return _player(prefix).describe(reference)


def play(replay: Replay) -> Schedule:
    return _player(replay.policy.partition(":")[0]).play(replay)


def _player(prefix: str) -> Player:
    player: Player = import_module(PLAYERS[prefix])
    return player
