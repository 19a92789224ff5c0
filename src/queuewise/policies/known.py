"""What a policy may know of the jobs of a replay before it begins: columns that hold no runtime, and no wait that the log records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.accounts import Fairness
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.policies.budgets import USUAL_BUDGETS, Budgets
from queuewise.workload.history import NO_HISTORY, History
from queuewise.workload.jobs import Floats, Ints, Workload

COLUMNS = ("submit", "size", "num_tasks", "gpu_milli", "cpu_milli", "mem_mib", "priority", "deadline", "user", "group", "partition", "qos")
NAMES = ("users", "groups", "partitions", "qos_names")


@dataclass(frozen=True, eq=False)
class Jobs:
    """Columns of jobs as in Workload, with what is known of their runtimes."""

    submit: Floats
    size: Floats
    num_tasks: Ints
    gpu_milli: Ints
    cpu_milli: Ints
    mem_mib: Ints
    priority: Floats
    deadline: Floats
    user: Ints
    group: Ints
    partition: Ints
    qos: Ints
    users: tuple[str, ...]
    groups: tuple[str, ...]
    partitions: tuple[str, ...]
    qos_names: tuple[str, ...]
    estimate: Floats
    guessed: bool = False  # jobs that outlive the estimates that reservations go by are expected to go on
    seed: int = 0
    history: History = field(default_factory=lambda: NO_HISTORY)  # columns of it that the policy uses
    own_estimates: Mapping[str, Floats] = field(default_factory=dict)  # of orders that have estimates of their own, by name
    cluster: Cluster | None = None  # for fair orders
    fairness: Fairness = field(default_factory=Fairness)
    budgets: Budgets = USUAL_BUDGETS

    @classmethod
    def of(cls, workload: Workload, estimate: Floats, **others: Any) -> Self:
        return cls(**{name: getattr(workload, name) for name in (*COLUMNS, *NAMES)}, estimate=estimate, **others)

    def estimated_by(self, estimates: str) -> Self:
        """The same jobs with other estimates of their runtimes."""
        return replace(self, estimate=self.own_estimates[estimates])

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def machine(self) -> Cluster:
        if self.cluster is None:
            raise InputError("an order that looks at what users have had is for replays only", hint="take another, such as fcfs or sjf")
        return self.cluster

    @property
    def index(self) -> NDArray[np.int64]:
        """Positions in the log."""
        return self.history.get("index", np.arange(len(self))).astype(np.int64)

    @property
    def predicted(self) -> Floats:
        """Runtimes predicted from jobs that had ended before."""
        if "predicted" not in self.history:
            raise InputError("an order uses predictions and does not say so", hint="register it with uses_predictions=True")
        return self.history["predicted"]

    @cached_property
    def at_least_a_second(self) -> Floats:
        return np.maximum(self.estimate, 1.0)

    @cached_property
    def log_submit(self) -> Floats:
        return np.log10(np.maximum(self.submit, 1.0))


@dataclass(frozen=True, eq=False)
class OracleJobs(Jobs):
    """With all runtimes. Only rules that are registered as oracles are given this."""

    runtime: Floats = field(kw_only=True)

    @classmethod
    def of(cls, workload: Workload, estimate: Floats, **others: Any) -> Self:
        return super().of(workload, estimate, runtime=workload.runtime, **others)
