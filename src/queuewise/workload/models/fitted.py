"""A model fitted to a log (by `queuewise.workload.fitting`): its parameters as TOML, and sampling from them.

It describes
- inter-arrival times: a quantile table for each tier of the week (hours that are similarly busy), and their autocorrelation over many
  scales, which gives daily cycles and bursts;
- demands: every kind of job with its share, separately for jobs in batches and single jobs, and the probability that the next job has the
  same kind;
- runtimes: a quantile table for each band of sizes, and the autocorrelation along the jobs of one kind;
- a pace, if samples of all this would bring more or less work per second than the log;
- if the log has them: users with their shares and repeated job names, and requested times given the runtime.
It contains no jobs, only tables of quantiles and shares. Users are numbered, and names are generated.

Every sample has exactly these quantiles, not only on average: correlated sequences are converted to ranks before the tables are looked up,
and kinds of jobs are assigned in exact proportion. To keep short samples different from each other, a sample is the start of a longer one
with the length of the log (at most `LONGEST_BLOCK` jobs, or a multiple of it).
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from queuewise.config import Config, read_toml, to_toml
from queuewise.runs import write_text
from queuewise.workload.jobs import Floats, Workload
from queuewise.workload.models.latent import Autocorrelation, even_ranks, ordered_groups
from queuewise.workload.sorting import stable_order

HOUR_S = 3600
WEEK_HOURS = 168
WEEK_S = WEEK_HOURS * HOUR_S
DAY_S = 24 * HOUR_S
WALKS = 2  # the second corrects the length of the first
LONGEST_BLOCK = 100_000  # jobs
BLOCK = 16_384  # jobs whose arrivals are computed at a time, so that they fit into the processor cache

Mask = NDArray[np.bool_]
Codes = NDArray[np.int64]


class QuantileTable(Config):
    """Values at ascending probabilities from 0 to 1, interpolated in log(1 + x)."""

    probabilities: tuple[float, ...]
    seconds: tuple[float, ...]

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        p, x = np.asarray(self.probabilities), np.asarray(self.seconds)
        if len(p) != len(x) or len(p) < 2 or p[0] != 0 or p[-1] != 1 or (np.diff(p) <= 0).any() or (np.diff(x) < 0).any() or x[0] < 0:
            raise ValueError("needs one non-negative, non-descending value for each ascending probability from 0 to 1")
        return self

    def at(self, u: Floats) -> Floats:
        logs = np.interp(u, self.probabilities, np.log1p(self.seconds))
        return np.expm1(logs, out=logs)


class Arrivals(Config):
    tier_of_hour: tuple[int, ...]  # [168] from Thursday 0:00, the weekday of the Unix epoch
    tiers: tuple[QuantileTable, ...]  # inter-arrival seconds
    all_hours: QuantileTable
    memory: Autocorrelation
    batch_gap_s: float  # jobs at most this far apart are in one batch

    @model_validator(mode="after")
    def _tiers_exist(self) -> Self:
        if len(self.tier_of_hour) != WEEK_HOURS or not set(self.tier_of_hour) <= set(range(len(self.tiers))):
            raise ValueError(f"tier_of_hour needs {WEEK_HOURS} numbers of tiers below {len(self.tiers)}")
        return self


class JobKinds(Config):
    """Kinds of jobs; every column has one entry per kind."""

    lone_share: tuple[float, ...]  # among single jobs
    batched_share: tuple[float, ...]  # among jobs in batches
    band: tuple[int, ...]  # which runtime tables
    num_tasks: tuple[int, ...]
    gpu_milli: tuple[int, ...]
    cpu_milli: tuple[int, ...]
    mem_mib: tuple[int, ...]
    gpu_kinds: tuple[tuple[str, ...], ...]
    partition: tuple[str, ...]  # "" any
    group: tuple[str, ...]  # "" unknown
    lone_jobs: float  # share of single jobs
    stay_in_batch: float  # probability of the same kind as the previous job, inside a batch
    stay_across_batches: float
    stay_alone: float

    @model_validator(mode="after")
    def _one_length(self) -> Self:
        if len({len(value) for value in self.__dict__.values() if isinstance(value, tuple)}) != 1 or not self.band:
            raise ValueError("all columns need the same number of kinds, at least one")
        return self


class UserShares(Config):
    band_shares: tuple[tuple[float, ...], ...]  # for each band, the share of each user
    stay: float  # probability that the next job of a kind has the same user
    names_per_user: int  # 0: the log has no names
    name_stay: float  # probability that the user's next job of a kind has the same name


class RequestedTimes(Config):
    """Requested times for each band of runtimes. These are values from the log, not interpolated, because users prefer round times."""

    runtime_edges: tuple[float, ...]  # ascending, one fewer than tables
    tables: tuple[tuple[float, ...], ...]  # equally likely values
    known_share: float
    overrun_share: float  # jobs that ran longer, among those with a request


class FittedModel(Config):
    name: str
    source: str  # description of the log
    jobs: int
    epoch: float  # Unix time of the first submission, 0 unknown
    whole_seconds: bool
    arrivals: Arrivals
    kinds: JobKinds
    lone_runtimes: tuple[QuantileTable, ...]  # by band
    batched_runtimes: tuple[QuantileTable, ...]
    runtime_memory: Autocorrelation  # along the jobs of one kind
    pace: float = 1.0  # factor of the time between submissions, so that jobs bring as much work per second as those of the log
    users: UserShares | None = None
    requests: RequestedTimes | None = None

    @classmethod
    def load(cls, path: Path) -> FittedModel:
        return read_toml(path, cls)

    def save(self, path: Path) -> None:
        write_text(path, to_toml(self))

    def sample(self, rng: np.random.Generator, num_jobs: int = 0) -> Workload:
        """The first `num_jobs` of a sample at least that long; 0: as many as the log had."""
        num_jobs = num_jobs or self.jobs
        block = min(self.jobs, LONGEST_BLOCK)
        length = block * -(-num_jobs // block)
        submit = self._submissions(rng, length)
        near, batched = self._batches(submit)
        kind = self._assign_kinds(rng, near, batched)
        stream = np.argsort((kind * 2 + batched).astype(np.uint16), kind="stable")  # sorted by kind
        runtime = self._runtimes(rng, kind, batched, stream)
        paced = np.rint(submit * self.pace) if self.whole_seconds else submit * self.pace
        columns: dict[str, Any] = self._columns(kind) | self._users(rng, kind, stream) | {"submit": paced, "runtime": runtime}
        if self.requests is not None:
            columns["requested"] = _requested(rng, self.requests, runtime)
        columns = {key: value[:num_jobs] if isinstance(value, np.ndarray) else value for key, value in columns.items()}
        return Workload(**columns, name=self.name, epoch=self.epoch)

    def _submissions(self, rng: np.random.Generator, length: int) -> Floats:
        """[J] submission times from 0. A walk along the week gives daily cycles and bursts; then the gaps get their exact quantiles."""
        place = np.empty(length, np.int64)
        place[stable_order(self.arrivals.memory.sample(rng, length))] = np.arange(length)
        ascending = even_ranks(length)
        by_tier = np.empty((len(self.arrivals.tiers), length))
        for table, gaps in zip(self.arrivals.tiers, by_tier, strict=True):
            np.take(table.at(ascending), place, out=gaps)
        exact = self.arrivals.all_hours.at(ascending)
        if self.whole_seconds:
            exact = np.rint(exact)
        stretch = 1.0
        for _ in range(WALKS):
            submit = self._walk(by_tier, stretch)
            stretch *= float(exact.sum() / max(submit[-1], 1.0))
        order = stable_order(np.diff(submit, append=np.inf))
        walked = np.empty(length)
        walked[order] = exact
        return self._align_days(submit, walked)

    def _walk(self, by_tier: Floats, stretch: float) -> Floats:
        """[J] times of jobs whose gaps come from the tier in which they start, computed for one period of equal tier at a time.

        `by_tier` [tiers, J] are the gaps after each job. The part of a gap that exceeds the gap of a batch is stretched.
        """
        tiers = self.arrivals.tier_of_hour
        hours_left = _hours_of_equal_tier(tiers)
        times = np.empty(by_tier.shape[1])
        first = clock = self.epoch % WEEK_S
        for begin in range(0, len(times), BLOCK):
            elapsed = self._elapsed(by_tier[:, begin : begin + BLOCK], stretch)
            j, last = 0, elapsed.shape[1] - 1
            while j < last:
                hour = int(clock // HOUR_S)
                here = elapsed[tiers[hour % WEEK_HOURS]]
                left = (hour + hours_left[hour % WEEK_HOURS]) * HOUR_S - clock
                after = min(int(here.searchsorted(here[j] + left)), last)
                times[begin + j : begin + after] = here[j:after] + (clock - here[j])
                clock += float(here[after] - here[j])
                j = after
        return times - first

    def _elapsed(self, gaps: Floats, stretch: float) -> Floats:
        """[tiers, jobs + 1] time before each job of a block and after the last one, if the whole block were in one tier."""
        within = np.minimum(gaps, self.arrivals.batch_gap_s)
        elapsed = np.zeros((gaps.shape[0], gaps.shape[1] + 1))
        np.cumsum(within + (gaps - within) * stretch, axis=1, out=elapsed[:, 1:])
        return elapsed

    def _align_days(self, submit: Floats, gaps: Floats) -> Floats:
        """[J] times with these `gaps`, aligned with `submit` day by day by scaling the longest gaps, by a factor of at most two.

        Only the longest percent of the gaps changes. What a day cannot compensate is left to the next ones.
        """
        longest = float(self.arrivals.all_hours.at(np.array([0.99]))[0])
        slack = np.where(gaps > longest, gaps, 0.0)
        day_begins = np.unique(np.searchsorted(submit, np.arange(0.0, submit[-1], DAY_S)))
        drift = 0.0
        for begin, end in itertools.pairwise([*day_begins.tolist(), len(submit)]):
            until = submit[end] if end < len(submit) else submit[-1] + gaps[-1]
            drift += float(gaps[begin:end].sum() - (until - submit[begin]))
            room = float(slack[begin:end].sum())
            if room > 0:
                factor = min(2.0, max(0.5, 1.0 - drift / room))
                stretched = np.where(slack[begin:end] > 0, np.maximum(longest, slack[begin:end] * factor), gaps[begin:end])
                drift += float((stretched - gaps[begin:end]).sum())
                gaps[begin:end] = stretched
        clock = np.cumsum(np.rint(gaps) if self.whole_seconds else gaps)
        return np.concatenate(([0.0], clock[:-1]))

    def _batches(self, submit: Floats) -> tuple[Mask, Mask]:
        """Which jobs follow their predecessor in a batch, and which are in a batch: all except those farthest from their neighbours."""
        gap = np.diff(submit, prepend=-np.inf, append=np.inf)
        apart = np.minimum(gap[:-1], gap[1:])
        lone = stable_order(-apart)[: round(self.kinds.lone_jobs * len(submit))]
        batched = np.ones(len(submit), np.bool_)
        batched[lone] = False
        return gap[:-1] <= self.arrivals.batch_gap_s, batched

    def _assign_kinds(self, rng: np.random.Generator, near: Mask, batched: Mask) -> Codes:
        """[J] kinds in runs. Kinds are assigned along shuffled runs, so that every kind gets its exact share."""
        kinds = self.kinds
        kind = np.empty(len(near), np.int64)
        stay = np.where(near, kinds.stay_in_batch, kinds.stay_across_batches)
        for members, shares, chance in (
            (batched, kinds.batched_share, stay[batched]),
            (~batched, kinds.lone_share, np.full(int((~batched).sum()), kinds.stay_alone)),
        ):
            run = np.cumsum(rng.random(len(chance)) >= chance, dtype=np.int64)
            laid = np.repeat(np.arange(len(shares)), _apportion(shares, len(run)))
            kind[members] = laid[_shuffle_runs(rng, run)]
        return kind

    def _runtimes(self, rng: np.random.Generator, kind: Codes, batched: Mask, stream: Codes) -> Floats:
        score = np.empty(len(kind))
        score[stream] = self.runtime_memory.sample(rng, len(kind))
        by_arrival = (self.lone_runtimes, self.batched_runtimes)
        runtime = np.empty(len(kind))
        for number, members in enumerate(ordered_groups(score, np.asarray(self.kinds.band)[kind] * 2 + batched)):
            band, arrival = divmod(number, 2)
            runtime[members] = by_arrival[arrival][band].at(even_ranks(len(members)))
        return np.rint(runtime) if self.whole_seconds else runtime

    def _columns(self, kind: Codes) -> dict[str, Any]:
        kinds = self.kinds
        columns: dict[str, Any] = {
            c: np.asarray(getattr(kinds, c), np.int32)[kind] for c in ("num_tasks", "gpu_milli", "cpu_milli", "mem_mib")
        }
        for column, table, names in (("partition", "partitions", kinds.partition), ("group", "groups", kinds.group)):
            known = tuple(dict.fromkeys(name for name in names if name))
            columns[column] = np.array([known.index(name) if name else -1 for name in names], np.int32)[kind]
            columns[table] = known
        kind_sets = ((), *dict.fromkeys(allowed for allowed in kinds.gpu_kinds if allowed))
        columns["kind_set"] = np.array([kind_sets.index(allowed) for allowed in kinds.gpu_kinds], np.int32)[kind]
        columns["kind_sets"] = kind_sets
        return columns

    def _users(self, rng: np.random.Generator, kind: Codes, stream: Codes) -> dict[str, Any]:
        if self.users is None:
            return {}
        band = np.asarray(self.kinds.band)[kind][stream]
        fresh = rng.random(len(kind)) >= self.users.stay
        fresh[np.flatnonzero(np.diff(kind[stream], prepend=-1))] = True
        drawn = np.empty(len(kind), np.int64)
        for b, shares in enumerate(self.users.band_shares):
            members = band == b
            drawn[members] = rng.choice(len(shares), int(members.sum()), p=np.asarray(shares) / np.sum(shares))
        user = np.empty(len(kind), np.int32)
        user[stream] = _hold(drawn, fresh)
        columns: dict[str, Any] = {"user": user, "users": tuple(f"user{i + 1}" for i in range(len(self.users.band_shares[0])))}
        if self.users.names_per_user:
            many = self.users.names_per_user
            new_name = fresh | (rng.random(len(kind)) >= self.users.name_stay)
            favourite = np.minimum(many - 1, ((many + 1.0) ** rng.random(len(kind))).astype(np.int64) - 1)  # Zipf-like: log-uniform
            name = np.empty(len(kind), np.int32)
            name[stream] = user[stream] * many + _hold(favourite, new_name)
            columns["job_name"] = name
        return columns


def _hours_of_equal_tier(tiers: tuple[int, ...]) -> list[float]:
    """[168] hours from the start of this hour until the tier changes; infinite if it never does."""
    if len(set(tiers)) == 1:
        return [np.inf] * WEEK_HOURS
    left = [1.0] * (2 * WEEK_HOURS)
    for hour in reversed(range(2 * WEEK_HOURS - 1)):
        if tiers[hour % WEEK_HOURS] == tiers[(hour + 1) % WEEK_HOURS]:
            left[hour] = left[hour + 1] + 1
    return left[:WEEK_HOURS]


def _apportion(shares: tuple[float, ...], total: int) -> Codes:
    """Integers that add up to `total`, proportional to `shares` (largest remainders)."""
    wish = np.asarray(shares) / np.sum(shares) * total
    counts: Codes = np.floor(wish).astype(np.int64)
    counts[np.argsort(counts - wish, kind="stable")[: total - int(counts.sum())]] += 1
    return counts


def _shuffle_runs(rng: np.random.Generator, run: Codes) -> Codes:
    """[J] the position of each job after shuffling whole runs (numbered from 0 or 1, ascending). Order within a run is kept."""
    place = rng.permutation(int(run.max(initial=0)) + 1)  # of each run among the runs
    size = np.bincount(run, minlength=len(place))
    begin = np.cumsum(size) - size
    shuffled = np.empty(len(place), np.int64)
    shuffled[place] = size
    begin_shuffled = (np.cumsum(shuffled) - shuffled)[place]
    return np.arange(len(run)) + (begin_shuffled - begin)[run]


def _hold(values: Codes, fresh: Mask) -> Codes:
    """Replace each entry by the latest value whose flag is set. The first flag must be set."""
    latest = np.maximum.accumulate(np.where(fresh, np.arange(len(values)), 0))
    held: Codes = values[latest]
    return held


def _requested(rng: np.random.Generator, requests: RequestedTimes, runtime: Floats) -> Floats:
    band = np.searchsorted(requests.runtime_edges, runtime, side="right")
    requested = np.full(len(runtime), np.nan)
    known = rng.random(len(runtime)) < requests.known_share
    for b, table in enumerate(requests.tables):
        members = known & (band == b)
        requested[members] = rng.choice(np.asarray(table), int(members.sum()))
    # Independent draws are below the runtime more often than in the log: use the next value that is long enough.
    values = np.unique(np.concatenate([*map(np.asarray, requests.tables), [np.inf]]))
    enough = values[np.searchsorted(values, runtime)]
    too_short = (requested < runtime) & np.isfinite(enough) & (rng.random(len(runtime)) >= requests.overrun_share)
    return np.where(too_short, enough, requested)
