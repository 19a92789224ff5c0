"""Settings of a task: what is decided, what is seen and what is paid. Every field is described in docs/mdp.md."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from queuewise.cluster.conditions import Preemption
from queuewise.config import Config
from queuewise.envs.rewards import Term

Problem = Literal["job", "host", "joint"]
Metric = Literal["wait", "jct", "slowdown", "bounded_slowdown", "utilisation"]


class Baseline(Config):
    """The policy that the `relative` term compares an episode with, replayed on the same window."""

    policy: str = "fcfs+easy"
    metric: Metric = "bounded_slowdown"


class TaskSettings(Config):
    problem: Problem = "job"
    # what is decided
    window: int = Field(64, ge=1)
    window_order: str = "fcfs"  # order of the window, and of the queue in the host problem: any order that never changes
    dispatch: Literal["mask", "commit"] = "mask"
    backfill: str = "none"  # commit: what may start in the shade; host problem: none (the head blocks) or greedy
    placement: str = "pack"  # job problem
    illegal: Literal["error", "wait"] = "error"
    skip_forced: bool = False
    stops: int = Field(0, ge=0)  # running jobs that are shown and may be preempted; job problem, dispatch mask
    moves: bool = False  # whether they may be migrated too
    most_stops: int = Field(256, ge=1)  # of an episode, migrations among them
    stopping: Preemption = Preemption()  # what they cost
    # what is seen
    observation: Literal["flat", "dict"] = "flat"
    view: Literal["tokens", "gpu-optimizer", "drl-scheduler", "lsf", "rltune", "rlscheduler"] = "tokens"  # or a published vector
    estimates: str = "requested"
    lookahead: Literal["off", "per_gpu", "sorted", "cdf"] = "sorted"
    scores: tuple[str, ...] = ()  # heuristics whose scores are features
    host_slots: int | None = Field(None, ge=1)  # rows of the host part; None: the cluster's nodes
    time_scale_s: float = Field(14_400.0, gt=0)
    # what is paid
    reward: tuple[Term, ...] = (Term(name="bounded_slowdown", weight=1.0, per=("jobs",)),)
    pay: Literal["event", "terminal"] = "event"
    discount_per_s: float = Field(0.0, ge=0)
    baseline: Baseline | None = None
    # when it ends
    horizon_factor: float = Field(10.0, gt=0)  # horizon: last submission + factor × work ÷ capacity
    max_steps: int | None = Field(None, ge=1)
