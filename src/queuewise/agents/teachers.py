"""Heuristics that play an environment, to be imitated: they choose from what an observation shows.

job problem: `order` starts the first job of the order and waits until it fits, `order+greedy` the first that fits. host problem: a
placement rule `first`, `pack` (the least that is free) or `spread` (the greatest free share), as in `fcfs@pack`. joint problem: both.
Names are those of policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from queuewise.agents.spec import Spec
from queuewise.envs.env_setup import EnvSetup
from queuewise.errors import InputError
from queuewise.policies.names import parse_policy
from queuewise.sim.core.tables import F32, F64, I64

RULES = ("first", "pack", "spread")
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Teacher:
    order: str
    blocking: bool  # the first of the order holds up the others
    rule: str

    def setup(self, setup: EnvSetup) -> EnvSetup:
        """The same task with the order's score as an additional, last feature of jobs."""
        scores = (*setup.layout.scores, self.order)
        return EnvSetup(
            setup.cluster, setup.settings.model_copy(update={"scores": scores}), setup.source, replace(setup.layout, scores=scores)
        )

    def choose(self, observations: F32, mask: Bools, spec: Spec) -> I64:
        """[E] flat actions for [E, F] observations of `setup`, not scaled, and [E, A] flat masks."""
        parts = spec.layout.parts(observations)
        wait, everyone = spec.num_actions - 1, np.arange(len(mask))
        if spec.problem == "host":
            return np.where(mask[:, :-1].any(axis=1), self._preference(spec, parts["hosts"], mask[:, :-1]).argmin(1), wait)
        pairs = mask[:, :-1].reshape(len(mask), spec.layout.window, -1)  # [E, Q, H], or [E, Q, 1]
        fits = np.asarray(pairs.any(axis=2))
        candidates = parts["jobs"][:, :, 0] > 0 if self.blocking else fits
        slot = np.where(candidates, parts["jobs"][:, :, -1], np.inf).argmin(1)
        starts = fits[everyone, slot]
        if spec.problem == "job":
            return np.where(starts, slot, wait)
        host = self._preference(spec, parts["hosts"], pairs[everyone, slot]).argmin(1)
        return np.where(starts, slot * spec.layout.hosts + host, wait)

    def _preference(self, spec: Spec, hosts: F32, legal: Bools) -> F64:
        """[E, H] the host with the least is taken; infinite where not legal."""
        column = {name: hosts[:, :, index].astype(np.float64) for index, name in enumerate(spec.layout.host_features)}
        has_gpus = column["gpu_total"] > 0
        share = np.where(has_gpus, column["gpu_free"], 1.0 - column["core_util"])
        amount = np.round(share * np.where(has_gpus, column["gpu_total"], column["cores_norm"]), 6)  # ties go to the first
        order = {"first": np.zeros_like(share), "pack": amount, "spread": -share}[self.rule]
        return np.where(legal, order, np.inf)


def find_teacher(name: str, setup: EnvSetup) -> Teacher:
    """The teacher of this name for this task."""
    policy = parse_policy(name)
    if policy.backfill not in ("none", "greedy"):
        raise InputError(f"{name} cannot be imitated: it looks ahead", hint="imitate an order or order+greedy, e.g. sjf+greedy")
    if setup.settings.dispatch == "commit" and policy.backfill == "greedy":
        raise InputError(f"{name} cannot be imitated with dispatch commit: there every job may be chosen", hint=f"imitate {policy.order}")
    if setup.settings.problem != "job" and policy.placement not in RULES:
        raise InputError(f"{name} cannot be imitated: its placement is not seen", hint=f"use one of @{', @'.join(RULES)}")
    return Teacher(policy.order, policy.backfill == "none", policy.placement)
