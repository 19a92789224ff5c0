"""Settings of a task: decisions, observations and rewards. docs/mdp.md describes every field."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from queuewise.cluster.conditions import Preemption
from queuewise.config import Config
from queuewise.envs.rewards import Term

Problem = Literal["job", "host", "joint"]
Metric = Literal["wait", "jct", "slowdown", "bounded_slowdown", "utilisation"]


class Baseline(Config):
    """The policy that the reward term `relative` compares an episode with. It is replayed on the same window."""

    policy: str = "fcfs+easy"
    metric: Metric = "bounded_slowdown"


class TaskSettings(Config):
    problem: Problem = "job"
    start: Literal["warm", "empty"] | None = None  # with the jobs that wait and run then, or on an empty cluster; None: warm for logs
    # decisions
    window: int = Field(64, ge=1)
    window_order: str = "fcfs"  # order of the window, and of the queue in the host problem; it must not change with time
    dispatch: Literal["mask", "commit"] = "mask"
    backfill: str = "none"  # commit: what may start behind the committed job; host problem: none (the head blocks) or greedy
    placement: str = "pack"  # job problem
    illegal: Literal["error", "wait"] = "error"
    skip_forced: bool = False
    stops: int = Field(0, ge=0)  # slots for running jobs that may be preempted; job problem, dispatch mask
    moves: bool = False  # whether these jobs may also be migrated
    most_stops: int = Field(256, ge=1)  # per episode, including migrations
    jobs_per_limit: int = Field(0, ge=0)  # if given, most_stops holds for so many jobs that have arrived instead
    stopping: Preemption = Preemption()  # what preemptions and migrations cost
    # observations
    observation: Literal["flat", "dict"] = "flat"
    view: Literal["tokens", "gpu-optimizer", "drl-scheduler", "lsf", "rltune", "rlscheduler"] = "tokens"  # or a published vector
    estimates: str | None = None  # None: requested, predicted or oracle, as in replays
    lookahead: Literal["off", "per_gpu", "sorted", "cdf"] = "sorted"
    scores: tuple[str, ...] = ()  # heuristics whose scores are features
    host_slots: int | None = Field(None, ge=1)  # rows of the host part; None: one per node of the cluster
    time_scale_s: float = Field(14_400.0, gt=0)
    # rewards
    reward: tuple[Term, ...] = (Term(name="bounded_slowdown", weight=1.0, per=("jobs",)),)
    pay: Literal["event", "terminal"] = "event"
    discount_per_s: float = Field(0.0, ge=0)
    baseline: Baseline | None = None
    # end of the episode
    horizon_factor: float = Field(10.0, gt=0)  # horizon: last submission + factor × work ÷ capacity
    max_steps: int | None = Field(None, ge=1)
    never_cut: bool = False  # play until every job has ended, whatever the horizon and max_steps
