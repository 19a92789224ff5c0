"""Settings of a task: decisions, observations and rewards. docs/mdp.md describes every field."""

from __future__ import annotations

import math
from typing import Any, Literal

from pydantic import Field, field_validator

from queuewise.cluster.conditions import Preemption
from queuewise.config import Config
from queuewise.envs.rewards import Term, parse_reward
from queuewise.policies.names import BOUND, Policy, parse_bound, parse_policy, split_estimates
from queuewise.policies.preemptive import PREEMPTIVE

Problem = Literal["job", "host", "joint"]
Metric = Literal["wait", "jct", "slowdown", "bounded_slowdown", "utilisation"]


class Baseline(Config):
    """The policy that the reward terms `relative` and `log_ratio` compare an episode with. It is replayed on the same window."""

    policy: str = "fcfs+easy"
    metric: Metric = "bounded_slowdown"


class TaskSettings(Config):
    problem: Problem = "job"
    start: Literal["warm", "empty"] | None = None  # with the jobs that wait and run then, or on an empty cluster; None: warm for logs
    # decisions
    window: int = Field(64, ge=1)
    window_order: str = "fcfs"  # order of the window, and of the queue in the host problem; it must not change with time
    dispatch: Literal["mask", "commit", "head"] = "mask"
    backfill: str | None = None  # what may start behind the job that is awaited, as in names of policies; None: `filling` says which
    max_wait: str | None = None  # a bound on waiting, for example "3d"
    placement: str = "pack"  # job problem
    illegal: Literal["error", "wait"] = "error"
    skip_forced: bool = False
    one_event: bool = False  # each step lets one event pass, a placement as well; job problem, dispatch mask
    stops: int = Field(0, ge=0)  # slots for running jobs that may be preempted; job problem, dispatch mask
    moves: bool = False  # whether these jobs may also be migrated
    most_stops: int = Field(256, ge=1)  # per episode, including migrations
    jobs_per_limit: int = Field(0, ge=0)  # if given, most_stops holds for so many jobs that have arrived instead
    stopping: Preemption = Preemption()  # what preemptions and migrations cost
    # observations
    observation: Literal["flat", "dict"] = "flat"
    view: Literal["tokens", "gpu-optimizer", "drl-scheduler", "lsf", "rltune", "rlscheduler"] = "tokens"  # or a published vector
    estimates: str | None = None  # None: requested, predicted or oracle, as in replays
    shown_estimates: str | None = None  # what the feature `estimate` shows; None: the same, by which reservations go
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

    @field_validator("reward", mode="before")
    @classmethod
    def _read_reward(cls, value: Any) -> Any:
        return parse_reward(value) if isinstance(value, str) else value

    @property
    def filling(self) -> Policy:
        """The order of the window and the backfill. Dispatch commit, head: behind the job that is awaited; host problem: none, greedy."""
        return parse_policy(f"{self.window_order}+{self.backfill or ('easy' if self.dispatch == 'head' else 'none')}")

    def complete(self, policy: str) -> str:
        """The policy as it plays in this task: with the task's backfill and placement, where its name has none.

        Under dispatch mask, what starts is the agent's choice, so there is no backfill to share.
        """
        known = parse_policy(policy)
        if known.model or known.decides_in_python:
            return policy
        name, at, placement = policy.partition("@")
        if self.problem == "job" and not at and self.placement != "pack":
            placement = self.placement
        rule = self.filling.backfill if self.dispatch != "mask" or self.problem == "host" else "none"
        if rule != "none" and known.backfill == "none" and "+" not in name and known.order not in PREEMPTIVE:
            order, *bound = BOUND.split(name)
            name = "~".join([f"{order}+{self.backfill or rule}", *bound])
        return f"{name}@{placement}" if placement else name

    @property
    def own_estimates(self) -> set[str]:
        """Estimates other than those of the episode that orders and observations go by."""
        by_scores = {split_estimates(name)[1] for name in self.scores}
        return (by_scores | {*self.filling.own_estimates, self.shown_estimates or ""}) - {""}

    @property
    def max_wait_s(self) -> float:
        return math.inf if self.max_wait is None else parse_bound(self.max_wait, "max_wait")
