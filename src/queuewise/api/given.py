"""What users pass to the functions of `queuewise`, as the objects that the package works with.

A workload may be a path, the name of a model, a data frame or a `Workload`; a cluster may be a name, a file or a `Cluster`; a policy may
be a name, a function, a class or an object with a method decide. Anything else is an error that says what to pass.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from queuewise.api.checked_options import as_count, as_seed
from queuewise.api.written_functions import label_of, write_function
from queuewise.cluster import Cluster, load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions, load_conditions
from queuewise.cluster.from_log import cluster_of_log
from queuewise.errors import InputError
from queuewise.policies import parse_policy
from queuewise.policies.interface import Decider
from queuewise.workload import Loaded, ReadOptions, Workload, load_workload
from queuewise.workload.loaded import Tally

OnePolicy = str | Decider | type | Callable[..., float]
GivenWorkload = str | os.PathLike[str] | Workload | Loaded | Any  # or a data frame of Polars or pandas
GivenCluster = str | os.PathLike[str] | Cluster | None

TO_PASS = {
    "workload": "pass a path such as 'log.swf.gz', the name of a model such as 'bursty', a data frame, or a Workload",
    "cluster": "pass a name such as '4x8:V100-16' or 'flat:256', a .toml file, or a Cluster",
    "policy": "pass a name such as 'sjf+easy', a function of job, a class with a method decide, or a list of these",
    "conditions": "pass a .toml file, or Conditions",
}


def wrong_type(role: str, value: object) -> InputError:
    """An error that says what to pass as workload, cluster, policy or conditions."""
    what = "a list" if isinstance(value, list | tuple) else f"{type(value).__name__} {value!r:.60}"
    return InputError(f"{role} is {what}", hint=TO_PASS[role])


@dataclass(frozen=True)
class GivenLog:
    """A workload and where it comes from."""

    loaded: Loaded
    source: str  # path or name
    from_model: bool  # more jobs can be drawn

    @property
    def workload(self) -> Workload:
        return self.loaded.workload


def as_log(value: GivenWorkload, jobs: int | None = None, seed: int = 0, *, recorded: bool = False) -> GivenLog:
    """The jobs of what a user passed as `workload`. With `jobs`, the first so many of them, or that many of a model."""
    jobs, seed = as_count("jobs", jobs), as_seed(seed)
    if isinstance(value, str | os.PathLike):
        options = ReadOptions(recorded=recorded, partitions=recorded)
        try:
            loaded = load_workload(value, jobs=jobs, seed=seed, options=options)
        except InputError:
            if _names_cluster(os.fspath(value)):
                raise InputError(f"workload is {value!r}, the name of a cluster", hint="the order is workload, cluster, policy") from None
            raise
        return GivenLog(loaded, os.fspath(value), loaded.format.startswith("model:"))
    if isinstance(value, Loaded):
        loaded = value
    elif isinstance(value, Workload):
        loaded = Loaded(value, None, Tally(), "workload")
    elif hasattr(value, "columns") and hasattr(value, "__getitem__"):
        loaded = Loaded(Workload.from_frame(value), None, Tally(), "frame")
    else:
        raise wrong_type("workload", value)
    if jobs is not None:
        loaded = loaded.take(slice(0, jobs))
    return GivenLog(loaded, loaded.workload.name, False)


def _names_cluster(name: str) -> bool:
    try:
        load_cluster(name)
    except InputError:
        return False
    return True


def as_cluster(value: GivenCluster, log: GivenLog) -> Cluster:
    """The cluster that a user named, or that of the log."""
    if value is None:
        return cluster_of_log(log.loaded, log.source)[0]
    if isinstance(value, Cluster):
        return value
    if isinstance(value, str | os.PathLike):
        return load_cluster(os.fspath(value))
    raise wrong_type("cluster", value)


def as_conditions(value: Conditions | str | os.PathLike[str] | None, workload: Workload) -> Conditions:
    if value is None:
        return PERFECT
    if isinstance(value, Conditions):
        return value
    if isinstance(value, str | os.PathLike):
        return load_conditions(Path(value), epoch=workload.epoch)
    raise wrong_type("conditions", value)


@dataclass(frozen=True)
class GivenPolicy:
    """A policy and the name that stands for it in results."""

    label: str
    name: str | None  # None: `make` makes an object that decides
    make: Callable[[], Decider] | None = None

    def for_replay(self) -> str | Decider:
        """What `queuewise.policies.simulate` takes. Every replay gets an object of its own if a class was given."""
        return self.make() if self.make is not None else self.name or ""


def as_policy(value: OnePolicy) -> GivenPolicy:
    if isinstance(value, str):
        parse_policy(value)
        return GivenPolicy(label_of(value), value)
    if isinstance(value, type):
        if not callable(getattr(value, "decide", None)):
            raise InputError(f"class {value.__name__} has no method decide", hint="add def decide(self, view); see docs/policies.md")
        return GivenPolicy(value.__name__, None, value)
    if callable(getattr(value, "decide", None)):
        decider: Any = value
        return GivenPolicy(type(value).__name__, None, lambda: decider)
    function = getattr(value, "py_func", value)  # a function that Numba has compiled
    if isinstance(function, FunctionType):
        return GivenPolicy(function.__name__, write_function(function))
    raise wrong_type("policy", value)


def as_policies(value: OnePolicy | Sequence[OnePolicy]) -> list[GivenPolicy]:
    """All policies of a list, or the one that was given. Labels are distinct: a name that occurs twice is refused."""
    values: list[Any] = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    policies = [as_policy(one) for one in values]
    if not policies:
        raise InputError("no policy is given", hint=TO_PASS["policy"])
    labels = [policy.label for policy in policies]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise InputError(f"policy {twice[0]!r} is given twice", hint="pass each policy once; give functions different names")
    return policies
