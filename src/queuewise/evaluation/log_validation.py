"""Is a replay like what happened? Recorded beside replayed waits, a verdict, and likely causes of the differences.

docs/validation.md defines the figures and justifies the limits of the verdict.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from queuewise.cluster.cluster_loader import load_cluster
from queuewise.cluster.conditions import PERFECT, Conditions
from queuewise.cluster.from_log import cluster_of_log
from queuewise.cluster.spec import Cluster
from queuewise.errors import InputError
from queuewise.evaluation.breakdown import size_class, size_label
from queuewise.evaluation.log_replay import LogReplay, default_policy, replay_log, require_waits
from queuewise.evaluation.validation_causes import likely_causes
from queuewise.workload import Loaded, ReadOptions, load_workload
from queuewise.workload.jobs import UNKNOWN, Floats

TIME_BINS = 240
TIME_STEPS_H = ((168, 9600), (24, 240), (6, 60), (1, 0))  # waits over time are by week for logs of at least 9,600 h (400 days), and so on
QUANTILES = 201  # points of the stored distributions
WAIT_FLOOR_S = 60.0  # means closer than this are called equal: schedulers decide about that often


@dataclass(frozen=True)
class Limits:
    """What a verdict allows."""

    mean_ratio: float  # replayed ÷ recorded mean wait, or its inverse
    rank_correlation: float
    utilisation_error: float
    rejected: float  # share of the jobs


CLOSE = Limits(mean_ratio=1.25, rank_correlation=0.7, utilisation_error=0.05, rejected=0.0)
USABLE = Limits(mean_ratio=2.0, rank_correlation=0.4, utilisation_error=0.10, rejected=0.05)


@dataclass(frozen=True)
class Waits:
    """Seconds."""

    mean: float
    p50: float
    p90: float
    p99: float

    @classmethod
    def of(cls, waits: Floats) -> Waits:
        return cls(float(waits.mean()), *np.percentile(waits, [50, 90, 99]).tolist())


@dataclass(frozen=True)
class WaitsOf:
    """The waits of a part of the jobs."""

    key: str
    jobs: int
    recorded: Waits
    replayed: Waits


@dataclass(frozen=True, eq=False)
class Validation:
    log: str
    cluster: str
    policy: str
    estimates: str
    jobs: int  # compared ones
    at_begin: int  # jobs that ran or waited when the log begins; they are replayed and not compared
    rejected: int
    recorded: Waits
    replayed: Waits
    rank_correlation: float | None  # Spearman's; None if one of the two has no spread
    utilisation_error: float  # mean difference of the share in use, over time
    verdict: str  # close, usable or off
    why: tuple[str, ...]
    by: dict[str, tuple[WaitsOf, ...]]  # partition, size, account, hour of day, time (hours since the log begins)
    recorded_quantiles: tuple[float, ...]
    replayed_quantiles: tuple[float, ...]
    hours: tuple[float, ...]  # middles of the time bins, since the log begins
    recorded_use: tuple[float, ...]  # share of the cluster in use, by time bin
    replayed_use: tuple[float, ...]
    resource: str  # of which the share is: GPUs or cores
    replay: LogReplay

    def __repr__(self) -> str:
        waits = f"mean wait {self.recorded.mean:,.0f} s recorded, {self.replayed.mean:,.0f} s replayed"
        return f"Validation({self.log} on {self.cluster} under {self.policy}: {self.verdict}, {waits})"

    def as_json(self) -> dict[str, Any]:
        """What `queuewise validate --json` prints."""
        keys = ("rank_correlation", "utilisation_error", "verdict")
        waits = {"recorded": asdict(self.recorded), "replayed": asdict(self.replayed)}
        return waits | {key: getattr(self, key) for key in keys} | {"why": list(self.why)}

    def details(self) -> dict[str, Any]:
        """Everything but the schedule, as plain data for `validation.json`."""
        plain = {key: value for key, value in vars(self).items() if key not in ("replay", "by", "recorded", "replayed")}
        by = {key: [asdict(row) for row in rows] for key, rows in self.by.items()}
        return self.as_json() | {key: list(value) if isinstance(value, tuple) else value for key, value in plain.items()} | {"by": by}


def validate(
    log: str | os.PathLike[str] | Loaded,
    cluster: Cluster | str | None = None,
    policy: str | None = None,
    *,
    options: ReadOptions | None = None,
    estimates: str | None = None,
    conditions: Conditions = PERFECT,
    seed: int = 0,
    keep_partitions: bool = False,
    notify: Callable[[str], None] = lambda remark: None,
) -> Validation:
    """Replay a log and compare the waits with the recorded ones.

    Without a cluster it is that of the log, without a policy the one that is most like the log's scheduler. Jobs keep their
    partitions if the cluster has all of them, or with `keep_partitions`. A `Loaded` must have been read with `recorded` and
    `partitions`. `notify` is called with a remark if the cluster was guessed.
    """
    if isinstance(cluster, str):
        cluster = load_cluster(cluster)
    loaded = log if isinstance(log, Loaded) else _read(log, options or ReadOptions())
    require_waits(loaded)
    if cluster is None:
        cluster, remark = cluster_of_log(loaded, loaded.workload.name)
        if remark:
            notify(remark)
    chosen = policy or default_policy(loaded.format)
    settings: dict[str, Any] = {"estimates": estimates, "conditions": conditions, "seed": seed}
    return compare_waits(replay_log(loaded, cluster, chosen, keep_partitions=keep_partitions, **settings))


def _read(log: str | os.PathLike[str], options: ReadOptions) -> Loaded:
    return load_workload(log, options=replace(options, recorded=True, partitions=True))


def compare_waits(replay: LogReplay) -> Validation:
    """The figures, the verdict and the likely causes."""
    rows = replay.compared
    recorded, replayed = replay.recorded_wait[rows], replay.replayed_wait[rows]
    if not len(recorded):
        raise InputError(
            f"no job of {replay.workload.name} with a recorded wait can run on {replay.schedule.cluster.name}",
            hint="describe the cluster of the log with queuewise clusters from-log, or give another --cluster",
        )
    edges = np.linspace(replay.begin, replay.end, TIME_BINS + 1)
    _, capacity, resource = replay.amounts()
    uses = [replay.in_use(start, edges) for start in (replay.recorded_start, replay.replayed_start)]
    whole = capacity if capacity < np.inf else max(float(np.max(uses)), 1e-9)
    use, replayed_use = (amount / whole for amount in uses)
    schedule = replay.schedule
    figures: dict[str, Any] = {
        "recorded": Waits.of(recorded),
        "replayed": Waits.of(replayed),
        "rank_correlation": rank_correlation(recorded, replayed),
        "utilisation_error": float(np.abs(use - replayed_use).mean()),
        "rejected": replay.rejected,
    }
    verdict, missed = judge_replay(**figures, jobs=len(replay.workload))
    share = np.linspace(0, 1, QUANTILES)
    return Validation(
        log=replay.workload.name,
        cluster=schedule.cluster.name,
        policy=schedule.policy,
        estimates=schedule.estimates,
        jobs=len(recorded),
        at_begin=int(replay.at_begin.sum()),
        **figures,
        verdict=verdict,
        why=(*missed, *likely_causes(replay, verdict)),
        by=_parts(replay, rows, recorded, replayed),
        recorded_quantiles=tuple(np.quantile(recorded, share).tolist()),
        replayed_quantiles=tuple(np.quantile(replayed, share).tolist()),
        hours=tuple((((edges[:-1] + edges[1:]) / 2 - replay.begin) / 3600).tolist()),
        recorded_use=tuple(use.tolist()),
        replayed_use=tuple(replayed_use.tolist()),
        resource=resource,
        replay=replay,
    )


def rank_correlation(x: Floats, y: Floats) -> float | None:
    """Spearman's rank correlation; ties have the mean of their ranks. None if x or y has no spread."""
    a, b = _ranks(x), _ranks(y)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / spread if spread > 0 else None


def _ranks(values: Floats) -> Floats:
    _, inverse, count = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    middle: Floats = (last - (count - 1) / 2)[inverse]
    return middle


def judge_replay(
    *, recorded: Waits, replayed: Waits, rank_correlation: float | None, utilisation_error: float, rejected: int, jobs: int
) -> tuple[str, list[str]]:
    """The verdict, and a sentence for every limit of `close` that is missed."""
    nobody_waits = max(recorded.mean, replayed.mean) < WAIT_FLOOR_S
    same = abs(recorded.mean - replayed.mean) < WAIT_FLOOR_S
    ratio = 1.0 if same else max(recorded.mean, replayed.mean) / max(min(recorded.mean, replayed.mean), 1e-9)
    rank = 1.0 if nobody_waits else (rank_correlation or 0.0)
    sentences = {
        "mean_ratio": f"the replayed mean wait is {replayed.mean:,.0f} s, the recorded one {recorded.mean:,.0f} s "
        f"(close: within {CLOSE.mean_ratio - 1:.0%}, usable: within a factor of {USABLE.mean_ratio:g})",
        "rank_correlation": f"the rank correlation of the waits is {'undefined' if rank_correlation is None else f'{rank:.2f}'} "
        f"(close: at least {CLOSE.rank_correlation}, usable: {USABLE.rank_correlation})",
        "utilisation_error": f"the share of the cluster in use differs by {utilisation_error:.1%} on average "
        f"(close: at most {CLOSE.utilisation_error:.0%}, usable: {USABLE.utilisation_error:.0%})",
        "rejected": f"{rejected:,} of {jobs:,} jobs can never run on the cluster "
        f"(close: {CLOSE.rejected:.0%}, usable: at most {USABLE.rejected:.0%})",
    }

    def missed(limits: Limits) -> list[str]:
        misses = {
            "mean_ratio": ratio > limits.mean_ratio,
            "rank_correlation": rank < limits.rank_correlation,
            "utilisation_error": utilisation_error > limits.utilisation_error,
            "rejected": rejected > limits.rejected * jobs,
        }
        return [name for name, miss in misses.items() if miss]

    short = missed(CLOSE)
    verdict = "close" if not short else "usable" if not missed(USABLE) else "off"
    return verdict, [sentences[name] for name in short] or [
        "mean and ranks of the waits and the use over time are within the limits of close"
    ]


# --- parts of the jobs


def _parts(replay: LogReplay, rows: NDArray[np.bool_], recorded: Floats, replayed: Floats) -> dict[str, tuple[WaitsOf, ...]]:
    workload, records = replay.workload, replay.recorded
    moment, since = workload.submit[rows] + workload.epoch, workload.submit[rows] - replay.begin
    step = next(hours for hours, least_h in TIME_STEPS_H if since[-1] >= least_h * 3600)
    keys: dict[str, tuple[NDArray[Any], Callable[[Any], str]]] = {
        "partition": (records.partition[rows], _name_in(records.partitions)),
        "size": (size_class(workload.size[rows]), size_label),
        "account": (workload.group[rows], _name_in(workload.groups)),
        "hour of day": ((moment // 3600 % 24).astype(np.int64), str),
        "time": ((since // (step * 3600) * step).astype(np.int64), str),
    }
    return {name: tuple(_split(codes, label, recorded, replayed)) for name, (codes, label) in keys.items()}


def _name_in(labels: Sequence[str]) -> Callable[[int], str]:
    return lambda code: "unknown" if code == UNKNOWN else labels[code]


def _split(codes: NDArray[Any], label: Callable[[Any], str], recorded: Floats, replayed: Floats) -> list[WaitsOf]:
    order = np.argsort(codes, kind="stable")
    values, first = np.unique(codes[order], return_index=True)
    groups = np.split(order, first[1:])
    return [
        WaitsOf(label(value), len(rows), Waits.of(recorded[rows]), Waits.of(replayed[rows]))
        for value, rows in zip(values.tolist(), groups, strict=True)
    ]
