"""Which days of a log a model has seen in training, so that no comparison counts them unnoticed.

A log is recognised by the content of its file, whatever the options it is read with (`--clean`, `--load-factor`, `--jobs`, …). Where
another file holds the same jobs, or some of them, it is recognised by these: a model's card names a sample of the jobs that it has seen,
by submission and runtime. Days are those of the file: a load factor does not move them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from queuewise.config import Config, validate
from queuewise.errors import InputError
from queuewise.evaluation.identity import digest, digest_log
from queuewise.evaluation.protocol import block_jobs
from queuewise.policies.found_rules import rule_data
from queuewise.policies.model_file import find_model, read_card
from queuewise.policies.names import MODEL, found_rule, parse_policy
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models import is_model

CARD_KEY = "trained_on"  # of a model's card: a list of TrainedOn
DAY_S = 86_400.0
DECIMALS = 3  # of times in seconds; load factors leave rounding errors
SAMPLE = 128  # jobs in a card
FEWEST = 3  # jobs of a sample on days of another file; with fewer, nothing is said about it
SHARE = 0.25  # of these must be in the file; in that of another log, few are by chance


class TrainedOn(Config):
    """The days of a log that a model was trained on (train) and chosen by (val), from the first to the last submission."""

    log: str  # digest of the file
    jobs: str  # digest of the jobs, by which cards without a sample are recognised in another file
    sample: tuple[tuple[int, int], ...] = ()  # submission and runtime of some of the jobs, rounded to seconds
    split: tuple[float, float, float]
    train: tuple[float, float]  # Unix time, or the log's own clock if it has no date
    val: tuple[float, float]


@dataclass(frozen=True, eq=False)
class LogIdentity:
    """A log as it was read, and when its jobs were submitted according to the file."""

    log: str
    jobs: str
    times: Floats  # [J] Unix time, or the log's own clock if it has no date
    runtime: Floats  # [J]
    dated: bool

    def day(self, time: float) -> str:
        """The name of a day: a date, or a number counted from the log's first submission."""
        if self.dated:
            return datetime.fromtimestamp(time, UTC).date().isoformat()
        return f"day {int((time - self.times[0]) // DAY_S) + 1}"

    @cached_property
    def seconds(self) -> list[tuple[int, int]]:
        """[J] submission and runtime, as in a sample."""
        return list(zip(*(np.round(column).astype(np.int64).tolist() for column in (self.times, self.runtime)), strict=True))

    def is_of(self, trained: TrainedOn) -> bool:
        """Whether this is the log of a training, or a part or an edited copy of it."""
        if trained.log == self.log or trained.jobs == self.jobs:
            return True
        days = {submit // int(DAY_S) for submit, _ in self.seconds}
        here = [job for job in trained.sample if job[0] // int(DAY_S) in days]
        return len(here) >= FEWEST and len(set(here) & set(self.seconds)) >= SHARE * len(here)


def identify_log(workload: Workload, path: str | Path, load_factor: float | None = None) -> LogIdentity:
    """`load_factor` is the factor by which the jobs are submitted faster than in the file."""
    first = workload.submit[:1]
    times = np.round(workload.epoch + first + (workload.submit - first) * (load_factor or 1.0), DECIMALS)
    jobs = digest(times, workload.runtime, workload.num_tasks)
    return LogIdentity(digest_log(Path(path)), jobs, times, workload.runtime, workload.epoch != 0)


def record_training(workload: Workload, identity: LogIdentity, split: tuple[float, float, float]) -> TrainedOn:
    """What the card of a model says that is trained on this log with this split."""
    blocks = block_jobs(workload, split)
    if empty := [name for name in ("train", "val") if not len(blocks[name])]:
        raise InputError(f"the {empty[0]} days of {workload.name} have no jobs", hint="use a longer log, or another --split")
    train, val = ((float(identity.times[rows[0]]), float(identity.times[rows[-1]])) for rows in (blocks["train"], blocks["val"]))
    sample = _sample(workload, identity, len(blocks["train"]) + len(blocks["val"]))
    return TrainedOn(log=identity.log, jobs=identity.jobs, sample=sample, split=split, train=train, val=val)


def _sample(workload: Workload, identity: LogIdentity, seen: int) -> tuple[tuple[int, int], ...]:
    """Jobs at equal distances among the first `seen`, but for those that --clean drops or cuts at the requested time."""
    runtime = workload.runtime[:seen]
    plain = np.flatnonzero((runtime > 0) & ~(runtime >= workload.requested[:seen]))
    rows = plain if len(plain) else np.arange(seen)
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, SAMPLE).astype(np.int64))]
    return tuple(dict.fromkeys(identity.seconds[row] for row in chosen.tolist()))


def read_training(path: Path) -> tuple[TrainedOn, ...] | None:
    """What a model file says that its model has seen of logs. None if it does not say, as files of earlier versions."""
    card = read_card(path)
    if CARD_KEY in card:
        return tuple(validate(TrainedOn, one, source=str(path)) for one in card[CARD_KEY])
    return () if is_model(card["settings"]["workload"]) else None


def _training_of(policy: str) -> tuple[TrainedOn, ...] | None:
    """What the file behind `model:RUN` says: that of a trained network, or of a rule that was found."""
    rule = found_rule(policy)
    if rule is None:
        return read_training(find_model(parse_policy(policy).model))
    listed = rule_data(rule).get(CARD_KEY, [])
    return tuple(validate(TrainedOn, one, source=str(rule)) for one in listed) if isinstance(listed, list) else None


@dataclass(frozen=True)
class SeenDays:
    """Which of the policies have seen days that count, and what a user should know about them."""

    seen: Mapping[str, str]  # policy -> what was done on which days
    split: tuple[float, float, float] | None = None  # of the training of the first of them
    remarks: tuple[str, ...] = ()  # one line each

    def refuse(self) -> None:
        """Raise an error if a policy has seen days that count."""
        for policy, what in self.seen.items():
            split = ",".join(f"{share:g}" for share in self.split or ())
            raise InputError(
                f"{policy} {what}",
                hint=f"count later days, as --protocol days and blocks do with --split {split}; or add --seen, and the result says so",
            )


def find_seen(policies: Sequence[str], workload: Workload, path: str, load_factor: float | None, counted: NDArray[np.bool_]) -> SeenDays:
    """Look for models that were trained or chosen on days of the jobs that count, a mask [J]."""
    models = [policy for policy in dict.fromkeys(policies) if policy.startswith(MODEL)]
    training = {policy: _training_of(policy) for policy in models}
    remarks = [
        f"{policy} does not say which days it was trained on (an earlier version wrote it), so it may have seen those that count"
        for policy, trained in training.items()
        if trained is None
    ]
    if not any(training.values()):
        return SeenDays({}, remarks=tuple(remarks))
    log = identify_log(workload, path, load_factor)
    same = {policy: [one for one in trained or () if log.is_of(one)] for policy, trained in training.items()}
    seen = {policy: what for policy, trained in same.items() if (what := _describe(log, trained, counted))}
    split = next((same[policy][0].split for policy in seen), None)
    return SeenDays(seen, split, (*remarks, *(f"{policy} {what}" for policy, what in seen.items())))


def remarks_on_log(policies: Sequence[str], workload: Workload, path: str, load_factor: float | None) -> tuple[str, ...]:
    """What a user should know about models if the whole log counts, one line each."""
    if workload.generated:
        return ()
    return find_seen(policies, workload, path, load_factor, np.ones(len(workload), dtype=bool)).remarks


def _describe(log: LogIdentity, trained: Sequence[TrainedOn], counted: NDArray[np.bool_]) -> str:
    """What was done on days that count, empty if nothing."""
    parts = []
    for verb, spans in (("trained", [one.train for one in trained]), ("chosen", [one.val for one in trained])):
        inside = np.zeros(len(counted), dtype=bool)
        for begin, end in spans:
            inside |= counted & (log.times >= begin) & (log.times <= end)
        if inside.any():
            first, last = (log.day(time) for time in log.times[inside][[0, -1]].tolist())
            days = first if first == last else f"{first} to {last}"
            parts.append(f"{verb} on {days} ({int(inside.sum()):,} of the {int(counted.sum()):,} jobs that count)")
    return f"was {' and '.join(parts)}" if parts else ""
